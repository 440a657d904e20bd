use crate::custody::Cause;
use crate::failure::Failure;
use crate::signals;
use crate::text::{millis, ordinal, plain};
use fencelock::{Guard, Span, Unknown, Waiting};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// Tells on stderr what happens: a line of text, or a line of JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// What can happen in `run`.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    Waiting(&'a Waiting),
    /// Servers may have forgotten their locks, and the end of that is waited for.
    Quarantined(&'a Unknown),
    /// A claim came to nothing, and is made again until it is answered.
    Trouble(&'a Unknown),
    Acquired(&'a Guard),
    Started {
        pid: i32,
    },
    Passed(Signal),
    /// The command is asked to end.
    Terminating {
        key: &'a str,
        cause: &'a Cause,
        grace: Duration,
    },
    /// The command is killed.
    Killing {
        key: &'a str,
        cause: Option<&'a Cause>,
    },
    /// The lock is lost, and the command goes on.
    Warning {
        key: &'a str,
        cause: &'a Cause,
    },
    Exited {
        code: u8,
    },
    Killed {
        signal: i32,
    },
    /// The command has ended before the least hold was over.
    Keeping {
        left: Duration,
    },
    Released,
    /// The release was not confirmed.
    NotReleased {
        key: &'a str,
        why: String,
    },
    /// The lock was lost after the end of the command, within the least hold.
    NotKept {
        key: &'a str,
        why: String,
    },
    /// The lock had been lost when it was to be given back.
    WasLost {
        key: &'a str,
        why: String,
    },
    /// A signal ended the wait.
    GivenUp(Signal),
}

/// Who needs to know.
#[derive(PartialEq, Eq)]
enum Weight {
    Detail,
    Notice,
}

impl Reporter {
    /// Tells an event, in the way that was asked for.
    pub(crate) fn tell(self, event: &Event<'_>) {
        if self.json {
            line(&event.json().to_string());
        } else if self.verbose || event.weight() == Weight::Notice {
            line(&format!("fencelock: {}", plain(&event.text())));
        }
    }

    /// Tells why the program ends.
    pub(crate) fn fail(self, failure: &Failure) {
        let Failure { exit, message } = failure;
        if self.json {
            line(&json!({ "event": "error", "exit": exit.code(), "message": message }).to_string());
        } else if !(self.quiet && matches!(exit, crate::exit::Exit::Busy | crate::exit::Exit::BusyAs(_))) {
            line(&format!("fencelock: {message}"));
        }
    }
}

/// Nobody can be told that stderr cannot be written.
fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Event<'_> {
    fn weight(&self) -> Weight {
        match self {
            Self::Quarantined(_)
            | Self::Terminating { .. }
            | Self::Killing { .. }
            | Self::Warning { .. }
            | Self::NotReleased { .. }
            | Self::NotKept { .. }
            | Self::WasLost { .. } => Weight::Notice,
            _ => Weight::Detail,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Waiting(waiting) => format!("waiting for {}, {}", waiting.key, place(waiting)),
            Self::Quarantined(cause) | Self::Trouble(cause) => format!("waiting: {cause}"),
            Self::Acquired(guard) => format!("holding {} under token {}", guard.key(), guard.fencing_token()),
            Self::Started { pid } => format!("started the command as process {pid}"),
            Self::Passed(signal) => format!("passed {} on", signals::name(*signal)),
            Self::Terminating { key, cause, grace } => {
                format!("{key}: {cause}; ending the command (TERM, then KILL in {})", Span(*grace))
            }
            Self::Killing { key, cause: Some(cause) } => format!("{key}: {cause}; killing the command"),
            Self::Killing { key, cause: None } => format!("{key}: the command did not end; killing it"),
            Self::Warning { key, cause } => {
                format!("{key}: {cause}; the command goes on, so another one may run beside it (--on-lost warn)")
            }
            Self::Exited { code } => format!("the command ended with {code}"),
            Self::Killed { signal } => format!("the command was ended by {}", signals::by_number(*signal)),
            Self::Keeping { left } => format!("keeping the lock for another {}", Span(*left)),
            Self::Released => "released the lock".to_owned(),
            Self::NotReleased { key, why } => {
                format!("{key} was not given back, so others wait for the end of its lease: {why}")
            }
            Self::NotKept { key, why } => format!("{key} was lost before --hold-for was over: {why}"),
            Self::WasLost { key, why } => format!("{key} was lost before the command had ended: {why}"),
            Self::GivenUp(signal) => format!("gave up waiting on {}", signals::name(*signal)),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Waiting(waiting) => json!({
                "event": "waiting",
                "key": waiting.key.as_str(),
                "ahead": waiting.ahead,
                "holder": waiting.holder.to_string(),
                "expires_in_ms": waiting.expiry.span().map(millis),
                "held_for_ms": waiting.held_for.map(millis),
                "waited_ms": millis(waiting.waited),
            }),
            Self::Quarantined(cause) => json!({ "event": "quarantined", "reason": cause.to_string() }),
            Self::Trouble(cause) => json!({ "event": "trouble", "reason": cause.to_string() }),
            Self::Acquired(guard) => json!({
                "event": "acquired",
                "key": guard.key().as_str(),
                "holder": guard.holder().to_string(),
                "fence": guard.fencing_token().get(),
            }),
            Self::Started { pid } => json!({ "event": "started", "pid": pid }),
            Self::Passed(signal) => json!({ "event": "signal", "signal": signals::name(*signal) }),
            Self::Terminating { key, cause, grace } => json!({
                "event": "terminating", "key": key, "reason": cause.to_string(), "grace_ms": millis(*grace),
            }),
            Self::Killing { key, cause } => json!({
                "event": "killing", "key": key, "reason": cause.map(ToString::to_string),
            }),
            Self::Warning { key, cause } => json!({ "event": "lost", "key": key, "reason": cause.to_string() }),
            Self::Exited { code } => json!({ "event": "exited", "code": code }),
            Self::Killed { signal } => json!({ "event": "exited", "signal": signals::by_number(*signal) }),
            Self::Keeping { left } => json!({ "event": "keeping", "left_ms": millis(*left) }),
            Self::Released => json!({ "event": "released" }),
            Self::NotReleased { key, why } => json!({ "event": "not_released", "key": key, "reason": why }),
            Self::NotKept { key, why } => json!({ "event": "not_kept", "key": key, "reason": why }),
            Self::WasLost { key, why } => json!({ "event": "was_lost", "key": key, "reason": why }),
            Self::GivenUp(signal) => json!({ "event": "given_up", "signal": signals::name(*signal) }),
        }
    }
}

/// `2nd in line, held by web-1:4242 (nightly)`
pub(crate) fn place(waiting: &Waiting) -> String {
    let line = waiting.ahead.map(|ahead| format!("{} in line, ", ordinal(ahead.saturating_add(1)))).unwrap_or_default();
    plain(&format!("{line}held by {}", waiting.holder))
}
