pub(crate) mod args;
mod observe;

use super::claim::check;
use super::run::{Ended, hold};
use crate::context::{Context, LEAVING};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::metrics_file;
use crate::plan::Plan;
use crate::report::Event;
use crate::signals::Signals;
use args::Elect;
use fencelock::Client;

/// Runs a command while this process leads, and campaigns again after each loss. Exits with the status of a command that
/// has exited by itself.
pub(super) async fn elect(elect: Elect, context: &Context) -> Result<Exit, Failure> {
    if elect.observe {
        return observe::observe(&elect.name, context).await;
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
