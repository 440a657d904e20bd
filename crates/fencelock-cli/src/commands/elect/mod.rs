pub(crate) mod args;

use crate::context::{Context, print_next};
use crate::exit::{Exit, Failure};
use crate::json::{expires_in, owner};
use crate::stdout::reader_gone;
use crate::text::plain;
use fencelock::backends::ConnectError;
use fencelock::{Error, FencingToken, Leader, Observation};
use serde_json::{Value, json};
use std::pin::pin;

/// Prints the leader and each change, until a signal arrives or the reader of the output ends.
pub(super) async fn observe(name: &str, context: &Context) -> Result<Exit, Failure> {
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
    let (leads, leader, reason) = match observation {
        Observation::Leader(leader) => (Some(true), Some(leader), None),
        Observation::NoLeader => (Some(false), None, None),
        Observation::Unreachable(cause) => (None, None, Some(cause.to_string())),
        _ => (None, None, None),
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
