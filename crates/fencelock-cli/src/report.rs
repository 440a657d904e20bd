use crate::custody::Cause;
use crate::descendants::Refusal;
use crate::failure::Failure;
use crate::json::{millis, with_occupant};
use crate::signals;
use crate::text::plain;
use crate::wait_status::WaitStatus;
use fencelock::{Guard, Span, Unknown};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// A wait that was longer is worth a line when it is over.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// Tells on stderr what happens: a line of text, or a line of JSON.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reporter {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// What can happen in `run`.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// Where the lock lives.
    Place {
        key: &'a str,
        place: &'a str,
    },
    /// Somebody else has the key; `first` if nobody was told so before.
    Waiting {
        status: &'a WaitStatus,
        first: bool,
    },
    /// It cannot be told who has the key, and the end of that is waited for.
    Trouble(&'a Unknown),
    /// A long wait is over.
    Waited {
        key: &'a str,
        what: &'a str,
        waited: Duration,
    },
    /// Servers may have forgotten their locks, and the end of that is waited for.
    Quarantined(&'a Unknown),
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
    /// A process of the command takes no signal from this one, so it goes on.
    Refused {
        key: &'a str,
        refusal: &'a Refusal,
    },
    /// It is time to kill the command, and nothing of it can be killed.
    Unkillable {
        key: &'a str,
        cause: Option<&'a Cause>,
    },
    /// This process was late, and the guardian has sent this signal to the command.
    Late {
        key: &'a str,
        signal: Signal,
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
    GivenUp {
        signal: Signal,
        waited: Duration,
    },
}

/// Who needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// Those who want to know all.
    Detail,
    /// All but those who want to know nothing.
    News,
    Notice,
}

impl Reporter {
    /// Tells an event, in the way that was asked for.
    pub(crate) fn tell(self, event: &Event<'_>) {
        let weight = event.weight();
        if self.quiet && weight == Weight::News {
            return;
        }
        if self.json {
            line(&event.json().to_string());
        } else if self.verbose || weight != Weight::Detail {
            line(&format!("fencelock: {}", plain(&event.text())));
        }
    }

    /// Tells why the program ends.
    pub(crate) fn fail(self, failure: &Failure) {
        let Failure { exit, message } = failure;
        if self.json {
            line(
                &json!({ "event": "error", "exit": exit.code(), "kind": exit.kind(), "message": message }).to_string(),
            );
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
            Self::Waiting { first: true, .. } | Self::Trouble(_) | Self::Waited { .. } | Self::Quarantined(_) => {
                Weight::News
            }
            Self::GivenUp { waited, .. } if *waited >= LONG => Weight::News,
            Self::Terminating { .. }
            | Self::Killing { .. }
            | Self::Refused { .. }
            | Self::Unkillable { .. }
            | Self::Late { .. }
            | Self::Warning { .. }
            | Self::NotReleased { .. }
            | Self::NotKept { .. }
            | Self::WasLost { .. } => Weight::Notice,
            _ => Weight::Detail,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Place { key, place } => format!("{key} lives at {place}"),
            Self::Waiting { status, .. } => {
                let held = status.held_for.map(|span| format!(" for {}", Span(span))).unwrap_or_default();
                format!("waiting for {}, {}{held}", status.key, status.place())
            }
            Self::Trouble(cause) => format!("waiting for an answer: {cause}"),
            Self::Waited { key, what, waited } => format!("{key} {what}, after {}", Span(*waited)),
            Self::Quarantined(cause) => format!("waiting: {cause}"),
            Self::Acquired(guard) => format!("holding {} under token {}", guard.key(), guard.fencing_token()),
            Self::Started { pid } => format!("started the command as process {pid}"),
            Self::Passed(signal) => format!("passed {} on", signals::name(*signal)),
            Self::Terminating { key, cause, grace } => {
                format!("{key}: {cause}; ending the command (TERM, then KILL in {})", Span(*grace))
            }
            Self::Killing { key, cause: Some(cause) } => format!("{key}: {cause}; killing the command"),
            Self::Killing { key, cause: None } => {
                format!("{key}: the command, or what it has started, did not end; killing it")
            }
            Self::Refused { key, refusal: Refusal { pid, uid } } => {
                let user = uid.map_or_else(|| "another user".to_owned(), |uid| format!("user {uid}"));
                format!(
                    "{key}: process {pid} runs as {user} and takes no signal from this program: it still runs, and may \
                     overlap the next holder"
                )
            }
            Self::Unkillable { key, cause: Some(cause) } => format!("{key}: {cause}; the command cannot be killed"),
            Self::Unkillable { key, cause: None } => {
                format!("{key}: the command, or what it has started, did not end and cannot be killed")
            }
            Self::Late { key, signal } => format!(
                "{key}: this process was stopped or too slow; its guardian has sent {} to the command before the lease \
                 would end",
                signals::name(*signal)
            ),
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
            Self::GivenUp { signal, waited } => {
                format!("gave up waiting on {} after {}", signals::name(*signal), Span(*waited))
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Place { key, place } => json!({ "event": "place", "key": key, "place": place }),
            Self::Waiting { status, .. } => {
                let told = json!({
                    "event": "waiting",
                    "key": status.key,
                    "ahead": status.ahead,
                    "expires_in_ms": status.expires_in.map(millis),
                    "held_for_ms": status.held_for.map(millis),
                    "waited_ms": millis(status.waited),
                });
                with_occupant(told, status.holders.first())
            }
            Self::Trouble(cause) => json!({ "event": "unreachable", "reason": cause.to_string() }),
            Self::Waited { key, waited, .. } => json!({ "event": "waited", "key": key, "waited_ms": millis(*waited) }),
            Self::Quarantined(cause) => json!({ "event": "quarantined", "reason": cause.to_string() }),
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
            Self::Refused { key, refusal: Refusal { pid, uid } } => json!({
                "event": "refused", "key": key, "pid": pid, "uid": uid,
            }),
            Self::Unkillable { key, cause } => json!({
                "event": "unkillable", "key": key, "reason": cause.map(ToString::to_string),
            }),
            Self::Late { key, signal } => json!({ "event": "late", "key": key, "signal": signals::name(*signal) }),
            Self::Warning { key, cause } => json!({ "event": "lost", "key": key, "reason": cause.to_string() }),
            Self::Exited { code } => json!({ "event": "exited", "code": code, "signal": null }),
            Self::Killed { signal } => json!({
                "event": "exited", "code": null, "signal": signals::by_number(*signal),
            }),
            Self::Keeping { left } => json!({ "event": "keeping", "left_ms": millis(*left) }),
            Self::Released => json!({ "event": "released" }),
            Self::NotReleased { key, why } => json!({ "event": "not_released", "key": key, "reason": why }),
            Self::NotKept { key, why } => json!({ "event": "not_kept", "key": key, "reason": why }),
            Self::WasLost { key, why } => json!({ "event": "was_lost", "key": key, "reason": why }),
            Self::GivenUp { signal, waited } => json!({
                "event": "given_up", "signal": signals::name(*signal), "waited_ms": millis(*waited),
            }),
        }
    }
}
