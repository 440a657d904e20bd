use std::fmt;
use std::time::Duration;

/// The subject of the finding of a trial.
pub(crate) const TRIAL: &str = "trial";

/// How much a [`Finding`] matters.
///
/// Exhaustive: a program that shows findings must not let one of a new level pass for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// As it should be.
    Fine,
    /// Works, but slower or with a lesser promise.
    Note,
    /// A promise may break.
    Warning,
    /// It does not work.
    Failure,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Failure => "FAILED",
        })
    }
}

/// One line of an examination: what was examined, what was found, what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What was examined, in a word or two.
    pub subject: &'static str,
    /// What was found, and what follows from it.
    pub text: String,
    /// What to do about it; empty if nothing.
    pub advice: String,
}

impl Finding {
    /// A finding that requires no action.
    pub fn fine(subject: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Fine, subject, text: text.into(), advice: String::new() }
    }

    /// The finding of a trial that was not made.
    pub fn not_tried(why: impl fmt::Display, advice: impl Into<String>) -> Self {
        Self::note(TRIAL, format!("not tried: {why}"), advice)
    }

    /// A [`Level::Note`].
    pub fn note(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Level::Note, subject, text, advice)
    }

    /// A [`Level::Warning`].
    pub fn warning(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Level::Warning, subject, text, advice)
    }

    /// A [`Level::Failure`].
    pub fn failure(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Level::Failure, subject, text, advice)
    }

    /// A finding with advice.
    pub fn new(level: Level, subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level, subject, text: text.into(), advice: advice.into() }
    }
}

// What a backend consists of, what works there, and what follows from it.

/// The servers of a backend, what works on each of them, the options in effect, and what follows for the locks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendReport {
    /// The servers, in the order of the URL. Empty if the backend has none.
    pub servers: Vec<ServerReport>,
    /// The options in effect by their names in the URL, without passwords.
    pub options: Vec<(&'static str, String)>,
    /// The version of the format in which clients share locks on this backend; `None` if there is none.
    pub wire: Option<u32>,
    /// One for each check, for people. [`ServerReport::features`] has the same for programs.
    pub findings: Vec<Finding>,
}

impl BackendReport {
    /// Of a backend with one server, without options.
    pub fn of_server(server: ServerReport) -> Self {
        Self { servers: vec![server], ..Self::default() }
    }

    /// Of a backend whose only server did not reply.
    pub fn unreachable(node: impl Into<String>, why: impl Into<String>, advice: &str) -> Self {
        let why = why.into();
        let findings = vec![Finding::failure("connection", why.clone(), advice)];
        Self { findings, ..Self::of_server(ServerReport::failed(node, why)) }
    }

    /// Of a backend without servers.
    pub fn of_findings(findings: Vec<Finding>) -> Self {
        Self { findings, ..Self::default() }
    }
}

/// One server of a backend. A quorum compares its nodes by what they report of themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// Its name, without secrets.
    pub node: String,
    /// `Redis`, `Valkey`; `None` if it is unknown.
    pub product: Option<String>,
    /// The version of the product; `None` if it is unknown.
    pub version: Option<String>,
    /// What it is part of.
    pub topology: Topology,
    /// Why it did not reply; `None` if it replied.
    pub failure: Option<String>,
    /// Its features. Empty if it did not reply.
    pub features: Vec<Feature>,
    /// Identifies the server, independent of its address.
    pub identity: Option<String>,
    /// The machine that its address names.
    pub host: Option<String>,
    /// Its wall clock, relative to that of this process.
    pub clock: Option<ClockOffset>,
    /// The time since it started.
    pub up_for: Option<Duration>,
}

impl ServerReport {
    /// A report with a name only.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), ..Self::default() }
    }

    /// A report on a server that did not reply.
    pub fn failed(node: impl Into<String>, why: impl Into<String>) -> Self {
        Self { failure: Some(why.into()), ..Self::new(node) }
    }
}

/// The deployment that a server belongs to, as far as it reports this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// A server of its own, with or without replicas.
    Single,
    /// A replica.
    Replica,
    /// A master that sentinels name.
    SentinelMaster,
    /// A node of a cluster.
    ClusterNode,
    /// A server behind a proxy, which answers in its place.
    Proxy,
    /// The server does not say.
    #[default]
    Unknown,
}

impl Topology {
    /// A word for programs: `single`, `sentinel_master`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Replica => "replica",
            Self::SentinelMaster => "sentinel_master",
            Self::ClusterNode => "cluster_node",
            Self::Proxy => "proxy",
            Self::Unknown => "unknown",
        }
    }
}

/// Something that a server may be able to do for its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Feature {
    /// A name for programs: `shared_locks`.
    pub name: &'static str,
    /// Whether it works there.
    pub works: bool,
    /// Why it does not work; empty if it does.
    pub reason: String,
}

impl Feature {
    /// It works if there is no reason why not.
    pub fn new(name: &'static str, checked: Result<(), String>) -> Self {
        let (works, reason) = checked.map_or_else(|reason| (false, reason), |()| (true, String::new()));
        Self { name, works, reason }
    }
}

/// How far a wall clock is from that of this process: a number and its error. There are no other fields, so the struct is
/// exhaustive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Microseconds by which it is ahead; negative if it is behind.
    pub ahead: i64,
    /// The truth is within this of it: half the time that the answer took.
    pub within: Duration,
}

impl ClockOffset {
    /// From the time that a server reported, in microseconds since 1970, and the times of this process before the request and
    /// after the reply.
    pub fn measured(before: u64, named: u64, after: u64) -> Self {
        let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
        Self {
            ahead: signed(named) - signed(before.midpoint(after)),
            within: Duration::from_micros(after.saturating_sub(before) / 2),
        }
    }

    /// The minimum difference of the two clocks, regardless of the latency of the replies.
    pub fn apart_at_least(self, other: Self) -> Duration {
        Duration::from_micros(self.ahead.abs_diff(other.ahead)).saturating_sub(self.within + other.within)
    }

    /// The minimum difference from the clock of this process.
    pub fn off_at_least(self) -> Duration {
        self.apart_at_least(Self { ahead: 0, within: Duration::ZERO })
    }
}

#[cfg(test)]
mod clock_offset_tests {
    use super::*;

    #[test]
    fn half_the_round_trip_is_subtracted_and_the_uncertainty_is_kept() {
        let one = ClockOffset::measured(1_000, 1_500, 2_000);
        assert_eq!((one.ahead, one.within), (0, Duration::from_micros(500)));
        let other = ClockOffset::measured(1_000, 4_500, 2_000);
        assert_eq!(one.apart_at_least(other), Duration::from_millis(2));
        assert_eq!(other.apart_at_least(one), Duration::from_millis(2));
        assert_eq!(one.apart_at_least(one), Duration::ZERO);
    }

    #[test]
    fn a_clock_that_is_behind_is_negative() {
        assert_eq!(ClockOffset::measured(9_000, 4_000, 9_000).ahead, -5_000);
    }
}
