//! A counterexample on a real server: the same steps in the same order, and the same answers.

mod environment;

use crate::fault::Faults;
use crate::model::Model;
use crate::model::state::{Action, State};
use crate::not_replayed::NotReplayed;
use crate::property::Property;
use crate::verdict::Verdict;
use environment::ReplayEnvironment;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where to replay.
#[derive(Debug, Clone)]
pub struct ReplayTarget {
    /// The server: `redis://HOST[:PORT]`. Everything is kept below one prefix, and removed in the end.
    pub url: String,
    /// A replica of it, for what breaks by a failover. It is promoted, and made a replica again.
    pub replica: Option<String>,
    /// How long a tick is at first. It doubles while the machine is too slow for it.
    pub tick: Duration,
}

/// A tick is never longer than this.
const LONGEST_TICK: Duration = Duration::from_secs(4);

impl ReplayTarget {
    /// With ticks of a tenth of a second.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), replica: None, tick: Duration::from_millis(100) }
    }
}

/// What came out: every answer and the state of the lock after each step were as the model says.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The answers of the server to each step, in its own words.
    pub answers: Vec<String>,
    /// How long a tick was in the end.
    pub tick: Duration,
}

/// Does on a real server what breaks `property` in the model, and compares every answer.
///
/// Blocks for as many ticks as the counterexample has; `halt` ends it early. The keys are removed however it ends.
///
/// # Errors
/// [`NotReplayed`]; a difference between server and model is one.
pub fn replay(
    verdict: &Verdict,
    property: Property,
    faults: impl Into<Faults>,
    site: &ReplayTarget,
    halt: &AtomicBool,
) -> Result<Replayed, NotReplayed> {
    let faults = faults.into();
    let way = verdict.way(property, faults).ok_or(NotReplayed::Holds)?;
    let model = Model { scheme: &verdict.scheme, faults };
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
    model: &Model<'_>,
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
        let played = environment.play(model, &state, action, &step, halt);
        // Whatever was found too late says nothing about the server.
        environment.check_time(step.after.now)?;
        let differs = |(expected, got)| NotReplayed::Differs { step: number, expected, got };
        answers.push(played?.map_err(differs)?);
        state = step.after;
    }
    Ok(answers)
}
