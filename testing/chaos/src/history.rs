//! What happened, line by line, on the one clock that all processes of a machine share.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A client asked for a key. Without a fence it is a foreign client, that knows of no tokens.
    Acquire,
    /// A holder made its lease longer.
    Renew,
    /// A holder is about to give the key back, and does not believe from here on that it holds. Its process may die before
    /// it can tell more.
    Yield,
    /// A holder gave the key back. From `invoke_us` on it does not believe that it holds.
    Release,
    /// A holder was told that its hold is over.
    Lost,
    /// A holder wrote to what the lock protects.
    Write,
    /// Somebody broke something: from `invoke_us` until it was whole again at `return_us`.
    Fault,
    /// Everything is whole; `bound_us` is how long the next acquire may take.
    Heal,
    /// All clients have ended.
    Stop,
    /// Somebody looked at a key. `holder` is what was there, `valid_until_us` when it goes by itself.
    Look,
    /// The run is worth nothing unless `what` is seen.
    Expect,
    /// It was seen.
    Seen,
    /// On this key the check named by `what` was meant to fail.
    Control,
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    #[default]
    Ok,
    /// It was not done.
    Fail,
    /// It may or may not have been done.
    Info,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Who: one task of one process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// What about; empty for what concerns all keys.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// What was done.
    pub op: Op,
    /// Just before, in microseconds of the boot clock.
    pub invoke_us: u64,
    /// Just after.
    pub return_us: u64,
    /// How it went.
    #[serde(default)]
    pub result: Outcome,
    /// The attempt: no two have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The fencing token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Until when the holder believed that it held, as far as it knew then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_us: Option<u64>,
    /// The TTL that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_us: Option<u64>,
    /// The place of a write in the order of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How long something may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_us: Option<u64>,
    /// Which fault, which event, which check, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The checks that a fault may break.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excuses: Vec<String>,
}

impl Line {
    /// A line that says no more than what and when.
    pub fn new(client: &str, key: &str, op: Op, invoke_us: u64, return_us: u64) -> Self {
        Self {
            client: client.to_owned(),
            key: key.to_owned(),
            op,
            invoke_us,
            return_us,
            result: Outcome::Ok,
            holder: None,
            fence: None,
            valid_until_us: None,
            ttl_us: None,
            seq: None,
            bound_us: None,
            what: None,
            excuses: Vec::new(),
        }
    }

    /// The same line, about something.
    #[must_use]
    pub fn what(mut self, what: impl Into<String>) -> Self {
        self.what = Some(what.into());
        self
    }

    /// The same line with another end.
    #[must_use]
    pub fn result(mut self, result: Outcome) -> Self {
        self.result = result;
        self
    }

    /// The same line, of a hold.
    #[must_use]
    pub fn hold(mut self, holder: &str, fence: Option<u64>) -> Self {
        self.holder = Some(holder.to_owned());
        self.fence = fence;
        self
    }

    /// Whether it is what was done, and was done.
    pub fn is(&self, op: Op) -> bool {
        self.op == op && self.result == Outcome::Ok
    }
}

/// A whole run. A line's number is its place, from 1.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The lines.
    pub lines: Vec<Line>,
}

impl History {
    /// Reads JSON lines. Empty lines and those that begin with `#` count in the numbers of the text, not here.
    ///
    /// # Errors
    /// A line that is none, with its number.
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

    /// Reads what a process has left that may have been killed in the middle of its last line.
    ///
    /// # Errors
    /// A line that is none and not the last.
    pub fn read_torn(text: &str) -> io::Result<Self> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Self::read(whole.as_bytes())
    }

    /// Adds another's lines.
    pub fn merge(&mut self, other: Self) {
        self.lines.extend(other.lines);
    }

    /// In the order of their ends.
    pub fn sort(&mut self) {
        self.lines.sort_by_key(|line| (line.return_us, line.invoke_us));
    }

    /// Writes it as JSON lines: a line's number is that of the file.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        for line in &self.lines {
            serde_json::to_writer(&mut to, line)?;
            to.write_all(b"\n")?;
        }
        to.flush()
    }
}

fn parse(line: &str) -> serde_json::Result<Line> {
    serde_json::from_str(line)
}

fn invalid(number: usize, error: &serde_json::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {error}"))
}
