//! A counterexample on a real server: the same steps in the same order, and the same answers.

mod stage;

use crate::fault::Faults;
use crate::model::Model;
use crate::model::state::{Action, State};
use crate::property::Property;
use crate::server::trouble;
use crate::verdict::Verdict;
use crate::words::Lang;
use stage::Stage;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where to replay.
#[derive(Debug, Clone)]
pub struct Site {
    /// The server: `redis://HOST[:PORT]`. Everything is kept below one prefix, and removed in the end.
    pub url: String,
    /// A replica of it, for what breaks by a failover. It is promoted, and made a replica again.
    pub replica: Option<String>,
    /// How long a tick is at first. It doubles while the machine is too slow for it.
    pub tick: Duration,
}

/// A tick is never longer than this.
const LONGEST_TICK: Duration = Duration::from_secs(4);

impl Site {
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

/// Why there is no replay.
#[derive(Debug)]
pub enum NotReplayed {
    /// This property holds, so there is nothing to show.
    Holds,
    /// It needs a replica.
    NeedsReplica,
    /// The replica is none, or none of this master's.
    NoReplica(String),
    /// The server did not do what was asked.
    Server(redis::RedisError),
    /// The server does not do what the model says.
    Differs {
        /// Which step, counted from 1.
        step: usize,
        /// What the model says.
        expected: String,
        /// What the server says.
        got: String,
    },
    /// The machine was too slow even for the longest ticks.
    TooSlow,
    /// It was told to stop.
    Stopped,
}

impl NotReplayed {
    /// The reason, for people.
    pub fn text(&self, lang: Lang) -> String {
        match (self, lang) {
            (Self::Holds, Lang::En) => "the property holds, so there is nothing to replay".to_owned(),
            (Self::Holds, Lang::Zh) => "该性质成立，没有可以重放的反例".to_owned(),
            (Self::NeedsReplica, Lang::En) => {
                "this needs a replica of that master: say which with --replica URL; it is promoted and re-attached"
                    .to_owned()
            }
            (Self::NeedsReplica, Lang::Zh) => {
                "需要该主库的一个从库：用 --replica URL 指定；它会被提升为主库，结束后再接回去".to_owned()
            }
            (Self::NoReplica(why), Lang::En) => format!("not a replica of that master: {why}"),
            (Self::NoReplica(why), Lang::Zh) => format!("不是该主库的从库：{why}"),
            (Self::Server(error), lang) => trouble(error, lang),
            (Self::Differs { step, expected, got }, Lang::En) => {
                format!("step {step}: the model says {expected}, the server {got}")
            }
            (Self::Differs { step, expected, got }, Lang::Zh) => {
                format!("第 {step} 步：模型认为是 {expected}，服务器是 {got}")
            }
            (Self::TooSlow, Lang::En) => "this machine is too slow for it now".to_owned(),
            (Self::TooSlow, Lang::Zh) => "这台机器现在太慢，没法按时执行".to_owned(),
            (Self::Stopped, Lang::En) => "stopped".to_owned(),
            (Self::Stopped, Lang::Zh) => "已中止".to_owned(),
        }
    }
}

impl fmt::Display for NotReplayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(Lang::En))
    }
}

impl std::error::Error for NotReplayed {}

impl From<redis::RedisError> for NotReplayed {
    fn from(error: redis::RedisError) -> Self {
        Self::Server(error)
    }
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
    site: &Site,
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
    site: &Site,
    tick: Duration,
    halt: &AtomicBool,
) -> Result<Vec<String>, NotReplayed> {
    let mut theatre = Stage::set(model, site, tick)?;
    let mut state = State::default();
    let mut answers = Vec::new();
    for (number, &action) in (1..).zip(way) {
        let step = model.step(&state, action);
        let played = theatre.play(model, &state, action, &step, halt);
        // Whatever was found too late says nothing about the server.
        theatre.check_time(step.after.now)?;
        let differs = |(expected, got)| NotReplayed::Differs { step: number, expected, got };
        answers.push(played?.map_err(differs)?);
        state = step.after;
    }
    Ok(answers)
}
