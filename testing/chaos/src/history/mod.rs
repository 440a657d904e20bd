//! The recorded events of a run, one per line, with the clock that all processes of a machine share.

mod hold_mode;
mod slot_of;

pub use hold_mode::HoldMode;
pub use slot_of::SlotOf;

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// The text in which a rejected access records the greater token.
pub(crate) const SUPERSEDED_BY: &str = "superseded by ";

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A client requested a key. Without a fence it is a foreign client without tokens.
    Acquire,
    /// A writer became a reader, with the fence of the shared hold. It counts as a reader from `invoke_us` on, because
    /// the request may be executed at any time; a `Yield` has ended its exclusive hold.
    Downgrade,
    /// A holder extended its lease.
    Renew,
    /// A holder is about to release the key, and no longer assumes that it holds it. Recorded first, because its
    /// process may be killed during the release.
    Yield,
    /// A holder released the key. From `invoke_us` on, it does not assume that it holds it.
    Release,
    /// A holder was notified that its hold is over.
    Lost,
    /// The holder of several keys was notified that it holds all of them. Recorded for the first of them.
    Held,
    /// A holder recorded the success of work that succeeds at most once in each window.
    Succeed,
    /// A holder started work that starts at most once in each window.
    Start,
    /// A client read that the work of a window is done, or was started, by the run with this fence.
    Done,
    /// An observer of an election was notified who leads. It failed if no leader is known, and is unknown if the observer
    /// ended before the next report. From `invoke_us` on, the observer had waited for it.
    Observe,
    /// From `invoke_us` to `return_us`, this leader led without faults, and every observer had to notice.
    Lead,
    /// A holder wrote to the protected resource.
    Write,
    /// A holder of a shared hold read from the protected resource, which checked and stored its token.
    Read,
    /// A fault, from `invoke_us` until its end at `return_us`.
    Fault,
    /// All faults have ended; the next acquire must complete within `bound_us`.
    Heal,
    /// All clients have stopped.
    Stop,
    /// The state of a key: `holder` is its value, and `valid_until_us` its expiry.
    Inspect,
    /// The run is valid only if `what` is observed.
    Expect,
    /// `what` was observed.
    Seen,
    /// The check `what` must fail on this key.
    Control,
}

/// The result of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It succeeded.
    #[default]
    Ok,
    /// It failed.
    Fail,
    /// The result is unknown.
    Info,
}

/// A line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryLine {
    /// The task and its process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// The key; empty for all keys.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The event.
    pub op: Op,
    /// The start, in microseconds of the boot clock.
    pub invoke_us: u64,
    /// The end.
    pub return_us: u64,
    /// The result.
    #[serde(default)]
    pub result: Outcome,
    /// The holder id of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The mode of the hold, for a grant.
    #[serde(default, skip_serializing_if = "HoldMode::is_exclusive")]
    pub mode: HoldMode,
    /// The slot, for a grant of a slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<SlotOf>,
    /// The fencing token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The end of the lease, as known to the holder at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_us: Option<u64>,
    /// The requested TTL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_us: Option<u64>,
    /// The keys that were requested together, for a grant of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// The end of a window, in microseconds of the clock of the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_us: Option<u64>,
    /// What a leader publishes, or what an observer of its election has observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The position of a write or a read in the order of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The allowed duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_us: Option<u64>,
    /// The fault, the event, the check, or the reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The checks that a fault may violate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excuses: Vec<String>,
}

impl HistoryLine {
    /// A line with a time and an event.
    pub fn new(client: &str, key: &str, op: Op, invoke_us: u64, return_us: u64) -> Self {
        Self {
            client: client.to_owned(),
            key: key.to_owned(),
            op,
            invoke_us,
            return_us,
            result: Outcome::Ok,
            holder: None,
            mode: HoldMode::Exclusive,
            slot: None,
            fence: None,
            valid_until_us: None,
            ttl_us: None,
            keys: Vec::new(),
            window_us: None,
            value: None,
            seq: None,
            bound_us: None,
            what: None,
            excuses: Vec::new(),
        }
    }

    /// Sets `what`.
    #[must_use]
    pub fn what(mut self, what: impl Into<String>) -> Self {
        self.what = Some(what.into());
        self
    }

    /// Sets the checks that the fault may violate.
    #[must_use]
    pub fn excuses(mut self, checks: &[&str]) -> Self {
        self.excuses = checks.iter().map(|check| (*check).to_owned()).collect();
        self
    }

    /// Sets the result.
    #[must_use]
    pub fn result(mut self, result: Outcome) -> Self {
        self.result = result;
        self
    }

    /// Sets the holder and the fence.
    #[must_use]
    pub fn hold(mut self, holder: &str, fence: Option<u64>) -> Self {
        self.holder = Some(holder.to_owned());
        self.fence = fence;
        self
    }

    /// Sets the mode.
    #[must_use]
    pub fn mode(mut self, mode: impl Into<HoldMode>) -> Self {
        self.mode = mode.into();
        self
    }

    /// Whether this is the begin of a hold.
    pub fn is_grant(&self) -> bool {
        self.is(Op::Acquire) || self.is(Op::Downgrade)
    }

    /// Whether this is a successful `op`.
    pub fn is(&self, op: Op) -> bool {
        self.op == op && self.result == Outcome::Ok
    }
}

/// A whole run. The number of a line is its index, from 1.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The lines.
    pub lines: Vec<HistoryLine>,
}

impl History {
    /// Reads JSON lines. Empty lines and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// The number of an invalid line.
    pub fn read(text: impl BufRead) -> io::Result<Self> {
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line?;
            if !line.is_empty() && !line.starts_with('#') {
                lines.push(parse(&line).map_err(|error| invalid(number + 1, &error))?);
            }
        }
        Ok(Self { lines })
    }

    /// Reads the output of a process that may have been killed while it wrote its last line.
    ///
    /// # Errors
    /// The number of an invalid line other than the last.
    pub fn read_torn(text: &str) -> io::Result<Self> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Self::read(whole.as_bytes())
    }

    /// Appends the lines of another history.
    pub fn merge(&mut self, other: Self) {
        self.lines.extend(other.lines);
    }

    /// Sorts the lines by their end.
    pub fn sort(&mut self) {
        self.lines.sort_by_key(|line| (line.return_us, line.invoke_us));
    }

    /// Writes JSON lines. The number of a line is its number in the file.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        for line in &self.lines {
            serde_json::to_writer(&mut to, line)?;
            to.write_all(b"\n")?;
        }
        to.flush()
    }
}

fn parse(line: &str) -> serde_json::Result<HistoryLine> {
    serde_json::from_str(line)
}

fn invalid(number: usize, error: &serde_json::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {error}"))
}
