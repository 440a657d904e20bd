use crate::context::Context;
use crate::exit::Failure;
use crate::nesting::Nesting;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::Event;
use fencelock::contract::Occupied;
use fencelock::{Client, Error, Guards, Lock, Mode, OnceStart, UnfinishedRun, WindowDone};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Refuses a lock that this program runs under, and reports the backend.
pub(super) async fn check(key: &str, nested_ok: bool, client: &Client, context: &Context) -> Result<String, Failure> {
    let (backend, name) = (context.identity(client)?, client.name());
    if !nested_ok {
        Nesting::of_this_process().check(key, &backend, client).await?;
    }
    let text = format!("{key} is stored at {name}");
    context.report.emit(&Event::detail("backend", text, json!({ "key": key, "backend": name })));
    Ok(backend)
}

/// What every claim of this plan says of itself.
pub(crate) fn settings(plan: &Plan, client: &Client) -> Lock {
    let mut lock = client.lock(&plan.keys[0]).ttl(plan.ttl);
    if let Some(wait) = plan.wait {
        lock = lock.wait(wait);
    }
    if let Some(label) = &plan.label {
        lock = lock.label(label);
    }
    lock
}

/// Waits for the locks of a plan, and shows it.
pub(crate) async fn claim(plan: &Plan, client: &Client, progress: &Arc<Progress>) -> Result<Claimed, Error> {
    let mut lock = settings(plan, client);
    // Without a wait, the error reports the holder.
    if plan.wait != Some(Duration::ZERO) {
        let (waits, troubles) = (Arc::clone(progress), Arc::clone(progress));
        lock = lock.on_wait(move |waiting| {
            let by = Occupied::new(waiting.holders.clone(), waiting.expiry).with_held_for(waiting.held_for);
            waits.waiting(&waiting.key, waiting.ahead, &by, waiting.waited);
        });
        lock = lock.on_trouble(move |cause| troubles.trouble(cause));
    }
    let claimed = claim_as(plan, lock, client).await;
    match &claimed {
        Ok(Claimed::Held { .. }) if plan.keys.len() > 1 => progress.done("were acquired"),
        Ok(Claimed::Held { .. }) => progress.done("was acquired"),
        _ => progress.clear(),
    }
    claimed
}

/// Waits for the locks of a plan, with the settings of `lock`, which is the first of them.
pub(crate) async fn claim_as(plan: &Plan, lock: Lock, client: &Client) -> Result<Claimed, Error> {
    let keys = &plan.keys[..];
    if let Some(slots) = plan.slots {
        let held = client.slots(&keys[0], slots).settings_of(&lock).acquire().await?;
        let slot = Some(held.slot());
        return Ok(Claimed::Held { guards: held.into_guard().into(), once: None, slot });
    }
    if let Some(once) = plan.once {
        let mut work = once.window.work(&keys[0], client).settings_of(&lock);
        if once.even_if_failed {
            work = work.even_if_failed();
        }
        return Ok(match work.begin().await? {
            OnceStart::Started(run) => {
                let (guard, rest) = run.into_parts();
                Claimed::Held { guards: guard.into(), once: Some(rest), slot: None }
            }
            OnceStart::AlreadyDone(done) => Claimed::AlreadyDone(done),
        });
    }
    let guards = match (plan.of_path(), plan.mode, keys) {
        (Some(locks), ..) => client.lock_each(locks).settings_of(&lock).await?,
        (_, Mode::Permits { weight, limit, .. }, [key]) => {
            client.semaphore(key, limit).settings_of(&lock).acquire(weight).await?.into()
        }
        (_, Mode::Shared, [_]) => lock.shared().await?.into(),
        (_, Mode::Shared, _) => client.lock_all(keys).settings_of(&lock).shared().await?,
        (_, _, [_]) => lock.await?.into(),
        _ => client.lock_all(keys).settings_of(&lock).await?,
    };
    Ok(Claimed::Held { guards, once: None, slot: None })
}

/// The settings of a candidate are checked as such: the lock of an election is claimed as any other.
pub(crate) fn check_election(plan: &Plan, client: &Client) -> Result<(), Error> {
    let mut election = client.election(&plan.keys[0]).ttl(plan.ttl);
    if let Some(value) = &plan.label {
        election = election.value(value);
    }
    election.check()
}

/// What became of the claim of a plan. Dropping it gives the locks back.
#[allow(clippy::large_enum_variant, reason = "there is one, and it is matched right away")]
pub(crate) enum Claimed {
    /// With --once-per, the command runs now; with --slots, the number of the slot.
    Held { guards: Guards, once: Option<UnfinishedRun>, slot: Option<u32> },
    /// The command has succeeded in this window.
    AlreadyDone(WindowDone),
}
