pub(crate) mod args;

use super::claim::check;
use super::run::{Ended, hold};
use crate::context::{Context, LEAVING, print_next};
use crate::exit::{Exit, Failure};
use crate::json::{expires_in, owner};
use crate::metrics_file;
use crate::plan::Plan;
use crate::report::Event;
use crate::signals::Signals;
use crate::stdout::reader_gone;
use crate::text::plain;
use args::Elect;
use fencelock::backends::ConnectError;
use fencelock::{Client, Error, FencingToken, Leader, Observation};
use serde_json::{Value, json};
use std::pin::pin;

/// Runs a command while this process leads, and campaigns again after each loss. Exits with the status of a command that
/// has exited by itself.
pub(super) async fn elect(elect: Elect, context: &Context) -> Result<Exit, Failure> {
    if elect.observe {
        return observe(&elect.name, context).await;
    }
    let name = elect.name.clone();
    let plan = Plan::of_election(elect).map_err(|why| Failure::new(Exit::Usage, why))?;
    metrics_file::check(&plan)?;
    context.report.emit_if_blind();
    let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    let prepare = async {
        let client = context.connect_to_wait().await?;
        check_settings(&name, &plan, &client)?;
        let backend = check(&name, plan.nested_ok, &client, context).await?;
        Ok((client, backend))
    };
    let (client, backend) = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.into()),
        prepared = metrics_file::write_failure(&plan, context.report, prepare) => prepared?,
    };
    let ended = lead(&name, &plan, &client, &backend, &mut signals, context).await;
    let _ = client.close(ended.as_ref().map_or(LEAVING, |ended| ended.closing)).await;
    ended.map(|ended| ended.exit)
}

/// A client holds the lock of an election as `run` holds any other, so the settings are checked as those of a candidate.
fn check_settings(name: &str, plan: &Plan, client: &Client) -> Result<(), Failure> {
    let mut election = client.election(name).ttl(plan.ttl);
    if let Some(value) = &plan.label {
        election = election.value(value);
    }
    Ok(election.check()?)
}

async fn lead(
    name: &str,
    plan: &Plan,
    client: &Client,
    backend: &str,
    signals: &mut Signals,
    context: &Context,
) -> Result<Ended, Failure> {
    loop {
        match hold(plan, client, backend, signals, context.report).await {
            Ok(Ended { by_loss: true, .. }) => {}
            // The lock was lost before the command was started.
            Err(failure) if failure.exit == Exit::Lost => {}
            ended => return ended,
        }
        context.report.emit(&Event::Campaigning { key: name });
    }
}

/// Prints the leader and each change, until a signal arrives or the reader of the output ends.
async fn observe(name: &str, context: &Context) -> Result<Exit, Failure> {
    if context.report.quiet {
        return Err(Failure::new(Exit::Usage, "--observe prints the leader, so it cannot be combined with -q"));
    }
    context
        .with(context.connect_to_wait(), async |client| {
            let mut observer = client.election(name).observe()?;
            let mut reader_gone = pin!(reader_gone());
            loop {
                let observation = tokio::select! {
                    biased;
                    observation = observer.next() => observation,
                    () = &mut reader_gone => None,
                };
                let Some(observation) = observation else { break };
                let line =
                    if context.report.json { json(name, &observation).to_string() } else { text(name, &observation) };
                if !print_next(&format!("{line}\n"))? {
                    break;
                }
                if let Observation::Unreachable(cause) = observation
                    && cause.is_permanent()
                {
                    return Err(Error::from(ConnectError::Unknown(cause)).into());
                }
            }
            Ok(Exit::Success)
        })
        .await
}

fn text(name: &str, observation: &Observation) -> String {
    let state = match observation {
        Observation::Leader(leader) => {
            let term = leader.term.map(|term| format!(", term {term}")).unwrap_or_default();
            format!("{leader} leads{term}")
        }
        Observation::NoLeader => "no leader".to_owned(),
        Observation::Unreachable(cause) => format!("unknown ({cause})"),
        _ => "unknown".to_owned(),
    };
    plain(&format!("{name}: {state}"))
}

fn json(name: &str, observation: &Observation) -> Value {
    let leader = match observation {
        Observation::Leader(leader) => Some(leader),
        _ => None,
    };
    let (leads, reason) = match observation {
        Observation::Leader(_) => (Some(true), None),
        Observation::NoLeader => (Some(false), None),
        Observation::Unreachable(cause) => (None, Some(cause.to_string())),
        _ => (None, None),
    };
    json!({
        "key": name,
        "led": leads,
        "value": leader.and_then(|leader| leader.value.as_deref()),
        "owner": leader.map(|leader| owner(&leader.owner)),
        "fence": leader.and_then(|leader| leader.term).map(FencingToken::get),
        "expires_in_ms": leader.and_then(|Leader { expiry, .. }| expires_in(*expiry)),
        "reason": reason,
    })
}
