use crate::exit::{Exit, Failure};
use crate::json::millis;
use crate::stderr::Stderr;
use crate::text::plain;
use crate::{signals, stderr};
use clap::error::ErrorKind;
use fencelock::Span;
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
    pub(crate) fn reject(self, error: &clap::Error) -> Exit {
        if self.json || matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::MissingSubcommand) {
            return self.exit_of(&Failure::of_arguments(error));
        }
        let text = error.render().to_string();
        let lines: Vec<_> = text.strip_prefix("error: ").unwrap_or(&text).trim_end().lines().map(plain).collect();
        line(&format!("fencelock: {}", lines.join("\n")));
        Exit::Usage
    }

    /// Reports the error that ends the program, and returns its exit status.
    pub(crate) fn exit_of(self, failure: &Failure) -> Exit {
        let Failure { exit, message } = failure;
        if self.json {
            line(
                &json!({ "event": "error", "exit": exit.code(), "kind": exit.kind(), "message": message }).to_string(),
            );
        } else if !(self.quiet && matches!(exit, Exit::Busy | Exit::BusyAs(_))) {
            line(&format!("fencelock: {message}"));
        }
        *exit
    }
}

/// That this program cannot see what a command starts. On systems that never have a `/proc`, the pages say so.
pub(crate) const BLIND: &str = "\
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
