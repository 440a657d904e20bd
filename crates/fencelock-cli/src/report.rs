use crate::exit::{Exit, Failure};
use crate::json::{millis, with_occupant};
use crate::stderr::Stderr;
use crate::text::{ordinal, plain};
use crate::{proc, signals, stderr};
use clap::error::ErrorKind;
use fencelock::contract::Occupied;
use fencelock::{Holders, Holding, Span, Waiting};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// A wait of at least this length is reported when it ends.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// Reports events on stderr, as lines of text or JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reporter {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// An event: what it is called, its text, and its fields in JSON. It is stated where it occurs.
#[derive(Debug)]
pub(crate) struct Event {
    severity: Severity,
    text: String,
    json: Value,
}

/// The severity of an event, which decides whether it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// Shown with `-v`.
    Detail,
    /// Shown unless `-q` is given.
    Info,
    Notice,
}

impl Reporter {
    /// Reports, once, if this program cannot see what a command starts. On systems that never have a `/proc`, the pages say so.
    pub(crate) fn emit_if_blind(self) {
        if proc::is_blind() {
            self.emit(&Event::info("no_proc", BLIND, json!({ "reason": BLIND })));
        }
    }

    /// Reports an event in the configured format.
    pub(crate) fn emit(self, event: &Event) {
        if let Some(text) = self.line_of(event) {
            line(&text);
        }
    }

    /// An event in the configured format, if it is reported.
    pub(crate) fn line_of(self, event: &Event) -> Option<String> {
        let Event { severity, text, json } = event;
        let severity = *severity;
        if self.quiet && severity == Severity::Info {
            return None;
        }
        if self.json {
            return Some(json.to_string());
        }
        (self.verbose || severity != Severity::Detail).then(|| format!("fencelock: {}", plain(text)))
    }

    /// Tells somebody at a terminal where the locks are if no URL is set. Where `/run/lock` is missing, the library warns of that.
    pub(crate) fn tell_default(self, url: &str) {
        let warned = cfg!(target_os = "linux") && !Path::new("/run/lock").exists();
        if !self.quiet && !self.json && !self.verbose && !warned && io::stderr().is_terminal() {
            line(&format!(
                "fencelock: no URL is set: the lock is at {}, for this user on this machine only",
                plain(url)
            ));
        }
    }

    /// Whether progress is drawn on stderr.
    pub(crate) fn draws_progress(self) -> bool {
        !self.quiet && !self.json && !self.verbose && stderr::is_terminal_in_foreground()
    }

    /// Reports invalid arguments. As text, hints and the usage follow the error, unless it says how to go on.
    pub(crate) fn reject(self, error: &clap::Error) {
        if self.json || matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::MissingSubcommand) {
            return self.fail(&Failure::of_arguments(error));
        }
        let text = error.render().to_string();
        let lines: Vec<_> = text.strip_prefix("error: ").unwrap_or(&text).trim_end().lines().map(plain).collect();
        line(&format!("fencelock: {}", lines.join("\n")));
    }

    /// Reports the error that ends the program, and returns its exit status.
    pub(crate) fn exit_of(self, failure: &Failure) -> Exit {
        self.fail(failure);
        failure.exit
    }

    /// Reports the error that ends the program.
    pub(crate) fn fail(self, failure: &Failure) {
        let Failure { exit, message } = failure;
        if self.json {
            line(
                &json!({ "event": "error", "exit": exit.code(), "kind": exit.kind(), "message": message }).to_string(),
            );
        } else if !(self.quiet && matches!(exit, Exit::Busy | Exit::BusyAs(_))) {
            line(&format!("fencelock: {message}"));
        }
    }
}

const BLIND: &str = "\
without /proc, the processes that the command starts are not seen: they continue without the lock if this program is killed (kill -9) \
or stopped, and those outside the process group of the command also if the lock is lost. A signal that was ignored at the start, as by \
nohup, is not ignored";

pub(crate) fn line(text: &str) {
    // It never fails.
    let _ = Stderr.write_all(format!("{text}\n").as_bytes());
}

impl Event {
    /// Shown with `-v`.
    pub(crate) fn detail(name: &str, text: impl Into<String>, fields: Value) -> Self {
        Self::new(Severity::Detail, name, text, fields)
    }

    /// Shown unless `-q` is given.
    pub(crate) fn info(name: &str, text: impl Into<String>, fields: Value) -> Self {
        Self::new(Severity::Info, name, text, fields)
    }

    /// Always shown.
    pub(crate) fn notice(name: &str, text: impl Into<String>, fields: Value) -> Self {
        Self::new(Severity::Notice, name, text, fields)
    }

    fn new(severity: Severity, name: &str, text: impl Into<String>, mut json: Value) -> Self {
        json["event"] = name.into();
        Self { severity, text: text.into(), json }
    }

    /// A signal ended the wait.
    pub(crate) fn given_up(signal: Signal, waited: Duration) -> Self {
        let severity = if waited >= LONG { Severity::Info } else { Severity::Detail };
        let signal = signals::name(signal);
        let text = format!("received {signal}: stopped waiting after {}", Span(waited));
        Self::new(severity, "given_up", text, json!({ "signal": signal, "waited_ms": millis(waited) }))
    }

    /// About one of the locks of a command, or all of them.
    pub(crate) fn about(self, keys: &[String], one: Option<&str>) -> Self {
        let text = format!("{}: {}", one.map_or_else(|| keys.join(", "), str::to_owned), self.text);
        Self { text, ..self }.with_keys(keys, one)
    }

    /// With `key`, which is null for several locks, and `keys`, those of the command.
    pub(crate) fn with_keys(mut self, keys: &[String], one: Option<&str>) -> Self {
        let only = if let [key] = keys { Some(key.as_str()) } else { None };
        (self.json["key"], self.json["keys"]) = (json!(one.or(only)), json!(keys));
        self
    }
}

/// The status of a wait, for queued waiters and for pollers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitStatus {
    pub(crate) key: String,
    /// The number of waiters ahead; `None` without a queue, and for pollers.
    pub(crate) ahead: Option<u32>,
    pub(crate) holders: Holders,
    pub(crate) expires_in: Option<Duration>,
    pub(crate) held_for: Option<Duration>,
    pub(crate) waited: Duration,
}

impl WaitStatus {
    /// The status of a poller that has waited for `waited`.
    pub(crate) fn of_watcher(held: &Holding, waited: Duration) -> Self {
        let occupied = Occupied::from(held.clone());
        Self {
            key: held.key.to_string(),
            ahead: None,
            holders: occupied.holders,
            expires_in: occupied.expiry.span(),
            held_for: occupied.held_for,
            waited,
        }
    }

    /// What the event has.
    pub(crate) fn fields(&self) -> Value {
        let fields = json!({
            "key": self.key,
            "ahead": self.ahead,
            "expires_in_ms": self.expires_in.map(millis),
            "held_for_ms": self.held_for.map(millis),
            "waited_ms": millis(self.waited),
            "holder_count": self.holders.count(),
        });
        with_occupant(fields, self.holders.first())
    }

    /// `2nd in the queue, held by web-1:4242 (nightly)`
    pub(crate) fn position(&self) -> String {
        let line =
            self.ahead.map(|ahead| format!("{} in the queue, ", ordinal(ahead.saturating_add(1)))).unwrap_or_default();
        plain(&format!("{line}held by {}", self.holders))
    }
}

impl From<&Waiting> for WaitStatus {
    fn from(waiting: &Waiting) -> Self {
        Self {
            key: waiting.key.to_string(),
            ahead: waiting.ahead,
            holders: waiting.holders.clone(),
            expires_in: waiting.expiry.span(),
            held_for: waiting.held_for,
            waited: waiting.waited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lock_is_named_and_several_are_listed() {
        let (one, two) = (["a".to_owned()], ["a".to_owned(), "b".to_owned()]);
        for (keys, named, text, json) in [
            (&one[..], None, "a: x", r#"{"event":"killing","key":"a","keys":["a"]}"#),
            (&two, None, "a, b: x", r#"{"event":"killing","key":null,"keys":["a","b"]}"#),
            (&two, Some("b"), "b: x", r#"{"event":"killing","key":"b","keys":["a","b"]}"#),
        ] {
            let event = Event::notice("killing", "x", json!({})).about(keys, named);
            assert_eq!((event.text.as_str(), event.json.to_string().as_str()), (text, json));
        }
    }
}
