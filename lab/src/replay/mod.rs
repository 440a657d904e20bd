//! Runs a counterexample on a real server: the same steps in the same order must give the same replies.

mod environment;

use crate::fault::Faults;
use crate::model::LockModel;
use crate::model::state::{Action, State};
use crate::not_replayed::NotReplayed;
use crate::property::Property;
use crate::scheme_results::SchemeResults;
use environment::ReplayEnvironment;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where to replay.
#[derive(Debug, Clone)]
pub struct ReplayTarget {
    /// The server: `redis://HOST[:PORT]`. All keys have one prefix, and are removed at the end.
    pub url: String,
    /// A replica of the server, for violations by a failover. It is promoted, and made a replica again.
    pub replica: Option<String>,
    /// The initial length of a tick. It doubles while the machine is too slow.
    pub tick: Duration,
}

/// The maximum length of a tick.
const LONGEST_TICK: Duration = Duration::from_secs(4);

impl ReplayTarget {
    /// A target with ticks of 100 ms.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), replica: None, tick: Duration::from_millis(100) }
    }
}

/// A successful replay: every reply, and the lock after each step, matched the model.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The replies of the server to each step.
    pub answers: Vec<String>,
    /// The final length of a tick.
    pub tick: Duration,
}

/// Runs the steps that violate `property` in the model on a real server, and compares every reply.
///
/// Blocks for the ticks of the counterexample; `halt` ends it early. The keys are always removed.
///
/// # Errors
/// [`NotReplayed`], for example a difference between server and model.
pub fn replay(
    results: &SchemeResults,
    property: Property,
    faults: impl Into<Faults>,
    site: &ReplayTarget,
    halt: &AtomicBool,
) -> Result<Replayed, NotReplayed> {
    let faults = faults.into();
    let way = results.way(property, faults).ok_or(NotReplayed::Holds)?;
    let model = LockModel { scheme: &results.scheme, faults };
    let mut tick = site.tick;
    loop {
        match once(&model, way, site, tick, halt) {
            Err(NotReplayed::TooSlow) if tick < LONGEST_TICK => tick = (tick * 2).min(LONGEST_TICK),
            Err(reason) => return Err(reason),
            Ok(answers) => return Ok(Replayed { answers, tick }),
        }
    }
}

fn once(
    model: &LockModel<'_>,
    way: &[Action],
    site: &ReplayTarget,
    tick: Duration,
    halt: &AtomicBool,
) -> Result<Vec<String>, NotReplayed> {
    let mut environment = ReplayEnvironment::set(model, site, tick)?;
    let mut state = State::default();
    let mut answers = Vec::new();
    for (number, &action) in (1..).zip(way) {
        let step = model.step(&state, action);
        let reply = environment.step(model, &state, action, &step, halt);
        // A late reply says nothing about the server.
        environment.check_time(step.after.now)?;
        let differs = |(expected, got)| NotReplayed::Differs { step: number, expected, got };
        answers.push(reply?.map_err(differs)?);
        state = step.after;
    }
    Ok(answers)
}
