use super::claim::check;
use super::slots;
use super::slots::Unlisted;
use crate::args::Wait;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::json::{millis, state};
use crate::keeper::held_above;
use crate::nesting::Nesting;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::Event;
use crate::text::{holding, plain, quarantine};
use fencelock::contract::Occupied;
use fencelock::{Capabilities, Client, Error, Expiry, Fault, Holding, Span, Unknown};
use serde_json::json;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Without a limit, the wait ends after this time without an answer: the default TTL of what is waited for.
const SILENCE: Duration = Duration::from_secs(30);
/// The minimum timeout of a poll: a healthy server answers faster.
const MIN_INSPECT_TIMEOUT: Duration = Duration::from_millis(50);

/// Waits until a key is free.
pub(super) async fn wait(wait: Wait, context: &Context) -> Result<Exit, Failure> {
    context
        .with(context.connect_to_wait(), async |client| {
            let nested_ok = wait.nested.nested_ok;
            let backend = check(&wait.key, nested_ok, client, context).await?;
            let outer = Nesting::of_this_process();
            let is_slot = |key: &&str| !nested_ok && slots::number(&wait.key, key).is_some();
            for slot in outer.keys().filter(is_slot) {
                outer.check(slot, &backend, client).await?;
            }
            // It is free when no hold of any mode is left, as for an exclusive lock, and no slot.
            let plan = Plan { keys: vec![wait.key.clone()], nested_ok, awaits_slots: true, ..Plan::default() };
            tokio::select! {
                biased;
                ended = until_free(&wait, client, context) => ended,
                refused = held_above(&plan, None, &backend, client) => Err(refused),
            }
        })
        .await
}

async fn until_free(wait: &Wait, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let progress = &Progress::of_keys(std::slice::from_ref(&wait.key), context.report);
    let Capabilities { queues, polls, .. } = client.capabilities();
    let (mut attempts, mut last, mut answered) = (0, None, Duration::ZERO);
    // Text output has only the exit code, or the error.
    let answer = |held: Option<&Holding>| -> Result<Exit, Failure> {
        if context.report.json {
            let mut answer = state(&wait.key, held, queues);
            answer["waited_ms"] = millis(progress.waited()).into();
            context.answer(&format!("{answer}\n"))?;
        }
        Ok(if held.is_some() { Exit::Busy } else { Exit::Success })
    };
    // With a limit, only the limit counts.
    let left = |answered| wait.limit.unwrap_or(answered + SILENCE).saturating_sub(progress.waited());
    loop {
        let seen = look(left(answered), wait, client, last, context).await;
        if !matches!(&seen, Err(Error::Unreachable { cause, .. }) if !cause.is_quarantine()) {
            answered = progress.waited();
        }
        last = seen.as_ref().ok().cloned().flatten();
        let left = left(answered);
        let over = left.is_zero();
        let expiry = match seen {
            Ok(None) => {
                progress.done("is free");
                return answer(None);
            }
            Ok(Some(held)) if over && context.report.json => return answer(Some(&held)),
            Ok(Some(held)) if over => {
                let waited = Some(progress.waited()).filter(|_| wait.limit != Some(Duration::ZERO));
                let waited = waited.map(|span| format!("; stopped waiting after {}", Span(span))).unwrap_or_default();
                return Err(Failure::new(Exit::Busy, format!("{} is {}{waited}", plain(&held.key), holding(&held))));
            }
            Ok(Some(held)) => {
                let key = held.key.clone();
                let by = Occupied::from(held);
                progress.waiting(&key, None, &by, progress.waited());
                by.expiry
            }
            // A quarantine that has not started does not end by itself.
            Err(Error::Unreachable { cause, .. }) if cause.is_quarantine() && (over || !will_end(&cause)) => {
                let why = format!("{} is unknown ({})", plain(&wait.key), quarantine(&cause));
                return Err(Failure::new(Exit::Unreachable, why));
            }
            Err(Error::Unreachable { cause, .. }) if !over && !cause.is_permanent() => {
                progress.trouble(&cause);
                Expiry::Never
            }
            Err(mut error) => {
                if let Error::Unreachable { waited, attempts: all, .. } = &mut error {
                    (*waited, *all) = (progress.waited(), attempts + 1);
                }
                return Err(error.into());
            }
        };
        // As for a lock: each poll of some stores costs money.
        sleep(polls.pause(attempts, expiry, 0).min(left)).await;
        attempts += 1;
    }
}

/// The key, or one of its slots that is held. A slot that was held is asked for first, because a list costs more.
async fn look(
    left: Duration,
    wait: &Wait,
    client: &Client,
    last: Option<Holding>,
    context: &Context,
) -> Result<Option<Holding>, Error> {
    let once = wait.limit == Some(Duration::ZERO);
    // A single poll uses the timeout of the backend, and others last at most until the wait ends. Without a reply within a limit, the
    // holder of the poll before is still the last one that is known.
    let inspect = async |key: &str| {
        if once {
            return client.inspect(key).await;
        }
        timeout(left.max(MIN_INSPECT_TIMEOUT), client.inspect(key)).await.unwrap_or_else(|_| {
            let cause = Unknown::new(client.name(), Fault::Timeout, "the wait ended before a reply arrived");
            last.clone().filter(|_| wait.limit.is_some()).map(Some).ok_or_else(|| Error::unreachable(cause))
        })
    };
    let slot = last.as_ref().map(|last| last.key.as_str()).filter(|last| *last != wait.key);
    for key in slot.into_iter().chain([wait.key.as_str()]) {
        if let Some(held) = inspect(key).await? {
            return Ok(Some(held));
        }
    }
    let within = if once { slots::LISTING } else { left.clamp(MIN_INSPECT_TIMEOUT, slots::LISTING) };
    match slots::held(&wait.key, client, within).await {
        Ok(slots) => Ok(slots.into_iter().next()),
        // It may be answered next time.
        Err(Unlisted::Failed(Error::Unreachable { cause, .. })) if !cause.is_permanent() => {
            Err(Error::unreachable(cause))
        }
        Err(why) => {
            let text = format!("{} is free; whether slots of it are held is unknown: {why}", wait.key);
            let fields = json!({ "key": wait.key, "reason": why.to_string() });
            context.report.emit(&Event::info("slots_unknown", text, fields));
            Ok(None)
        }
    }
}

/// Whether every quarantine has started, and therefore ends.
fn will_end(cause: &Unknown) -> bool {
    cause.nodes().iter().all(|node| node.fault != Fault::Quarantined || node.passes_in.is_some())
}
