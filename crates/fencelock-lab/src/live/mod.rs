//! The articles' two stories as a load on a real server: a flash sale, and two payments from one account.
//!
//! Every scheme gets the same load, spread over processes. What it protects is a number that is read, thought about and
//! written. So a lock that lets two in at once shows in the books, and one that lets nobody in shows in the answers.

mod account;
mod books;
mod chart;
mod hand;
mod job;
mod library;
mod part;
mod program;
mod round;
mod score;
mod successor;
mod work;

pub use chart::chart;
pub use job::{Job, Tally};
pub use part::work;
pub use round::Round;
pub use score::{Score, json_scores, scores};
pub use successor::{Entrance, Successor};
pub use work::Host;

use crate::scheme::{Home, Scheme};
use crate::schemes::{catalog, find};
use crate::trouble::trouble;
use crate::words::Lang;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Story {
    /// A few pieces in stock, and thousands of requests for one.
    Stock,
    /// Accounts with 1000, from each of which 500 and 300 are paid at the same time.
    Bank,
}

/// What every scheme has to bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Which story.
    pub story: Story,
    /// Processes, each of which serves eight requests at a time.
    pub processes: u32,
    /// Requests altogether.
    pub requests: u32,
    /// Pieces in stock.
    pub stock: u32,
    /// The time between reading and writing.
    pub work: Duration,
    /// How long a lock lasts, if it ends by itself.
    pub ttl: Duration,
    /// Some holders take so long between reading and writing.
    pub sleep: Option<Duration>,
    /// One process is killed while one of its requests is between reading and writing.
    pub crash: bool,
    /// Before they write, holders tell their [`Host`], who may let their whole process stand still.
    pub pause: bool,
}

/// Requests that a process serves at a time.
pub(crate) const HANDS: u32 = 8;

/// The scheme without a lock.
pub(crate) const NONE: &str = "none";

/// Why a story could not be told to its end.
#[derive(Debug)]
pub enum NotRun {
    /// The server did not do what was asked.
    Server(redis::RedisError),
    /// This project's own client did not.
    Client(Box<fencelock::Error>),
    /// There is no such scheme, or it is not one for a server.
    Scheme(String),
    /// A process was told something that it does not understand.
    Job(String),
    /// A process could not begin.
    Start(std::io::Error),
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => f.write_str(&trouble(error, Lang::En)),
            Self::Client(error) => write!(f, "the client did not do what was asked: {error:#}"),
            Self::Scheme(id) => write!(f, "{id} is no scheme for one server"),
            Self::Job(text) => write!(f, "not a job: {text}"),
            Self::Start(error) => write!(f, "a process could not begin: {error}"),
        }
    }
}

impl std::error::Error for NotRun {}

impl From<redis::RedisError> for NotRun {
    fn from(error: redis::RedisError) -> Self {
        Self::Server(error)
    }
}

impl From<fencelock::Error> for NotRun {
    fn from(error: fencelock::Error) -> Self {
        Self::Client(Box::new(error))
    }
}

/// How the protected number is reached.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// Without a lock.
    Open,
    /// By the lines of a scheme.
    Program(Scheme),
    /// By this project's own client.
    Library {
        /// Whether its fencing token is checked where the number is read and written.
        fenced: bool,
    },
}

impl Way {
    pub(crate) fn of(id: &str) -> Result<Self, NotRun> {
        let unknown = || NotRun::Scheme(id.to_owned());
        match id {
            NONE => Ok(Self::Open),
            "fencelock" => Ok(Self::Library { fenced: true }),
            "fencelock-unfenced" => Ok(Self::Library { fenced: false }),
            _ => find(id).filter(is_for_one_server).map(Self::Program).ok_or_else(unknown),
        }
    }

    pub(crate) const fn is_fenced(&self) -> bool {
        matches!(self, Self::Library { fenced: true })
    }

    /// Whether a second one comes in, sooner or later, while the process of the first stands still.
    pub(crate) const fn lets_others_in(&self) -> bool {
        !matches!(self, Self::Program(Scheme { has_lease: false, .. }))
    }
}

/// Locks of a system are on no server, and without a failover a replica makes no difference.
fn is_for_one_server(scheme: &Scheme) -> bool {
    matches!(scheme.home, Home::Redis | Home::Three)
}

/// The schemes that a story can be told with, the one without a lock first, this project's own last.
pub fn schemes_of_stories() -> Vec<&'static str> {
    let on_servers = catalog().into_iter().filter(is_for_one_server).map(|scheme| scheme.id);
    std::iter::once(NONE).chain(on_servers).chain(["fencelock-unfenced", "fencelock"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_of_the_stories_has_a_way_and_the_own_one_is_the_last() {
        let all = schemes_of_stories();
        assert!(all.iter().all(|id| Way::of(id).is_ok()), "{all:?}");
        assert_eq!((all.first(), all.last()), (Some(&"none"), Some(&"fencelock")));
        assert!(all.contains(&"s4-redlock") && !all.contains(&"s2-process") && !all.contains(&"s3-replica-lag"));
        assert!(matches!(Way::of("s2-thread"), Err(NotRun::Scheme(_))));
    }
}
