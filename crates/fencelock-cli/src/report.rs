use crate::descendants::UnsignalledProcess;
use crate::exit::Failure;
use crate::json::{millis, window_done, with_occupant};
use crate::stderr::Stderr;
use crate::text::{ordinal, plain};
use crate::{descendants, signals, stderr};
use clap::error::ErrorKind;
use fencelock::contract::Occupied;
use fencelock::{FencingToken, HolderId, Holders, Holding, Key, Span, Unknown, Waiting, WindowDone};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

/// A wait of at least this length is reported when it ends.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// Reports events on stderr, as lines of text or JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reporter {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// An event of `run`.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// The backend of the lock.
    Backend {
        key: &'a str,
        backend: &'a str,
    },
    /// Another client holds the key; `first` on the first report.
    Waiting {
        status: &'a WaitStatus,
        first: bool,
    },
    /// The holder of the key is unknown. The client waits until it is known.
    Trouble(&'a Unknown),
    /// The key is free, and slots of it may be held.
    SlotsUnknown {
        key: &'a str,
        why: String,
    },
    /// Nothing is kept for this owner of a process.
    NothingKept {
        pid: u32,
        owner: Option<&'a str>,
    },
    /// A long wait has ended.
    Waited {
        locks: Locks<'a>,
        what: &'a str,
        waited: Duration,
    },
    /// Servers are in quarantine. The client waits until it ends.
    Quarantined(&'a Unknown),
    /// One of the locks is held, or the only one.
    Acquired {
        key: &'a Key,
        holder: HolderId,
        fence: FencingToken,
    },
    Started {
        pid: i32,
    },
    /// The descendants of the command are not visible, because there is no `/proc`.
    Blind,
    Passed(Signal),
    /// TERM was sent to the command.
    Terminating {
        locks: Locks<'a>,
        why: &'a str,
        grace: Duration,
    },
    /// KILL was sent to the command.
    Killing {
        locks: Locks<'a>,
        why: Option<&'a str>,
    },
    /// A descendant of the command cannot be signalled and continues.
    Refused {
        locks: Locks<'a>,
        process: &'a UnsignalledProcess,
    },
    /// KILL is due, but no process can be killed.
    Unkillable {
        locks: Locks<'a>,
        why: Option<&'a str>,
    },
    /// This process was late, and the parent-death watcher sent this signal to the command.
    Late {
        locks: Locks<'a>,
        signal: Signal,
    },
    /// The lock is lost, and the command continues.
    Warning {
        locks: Locks<'a>,
        why: &'a str,
    },
    Exited {
        code: u8,
    },
    Killed {
        signal: i32,
    },
    /// The command exited before --hold-for elapsed.
    Keeping {
        left: Duration,
    },
    Released,
    /// The release was not confirmed.
    NotReleased {
        locks: Locks<'a>,
        why: String,
    },
    /// The lock was lost after the command exited, before --hold-for elapsed.
    NotKept {
        key: &'a str,
        why: String,
    },
    /// The lock was already lost when it was released.
    WasLost {
        key: &'a str,
        why: String,
    },
    /// The command has succeeded in this window, and is not started.
    AlreadyDone(&'a WindowDone),
    /// The success of the command is recorded.
    Recorded,
    /// `--metrics-file` cannot be written.
    NotMeasured {
        why: &'a str,
    },
    /// The leadership was lost.
    Campaigning {
        key: &'a str,
    },
    /// A signal ended the wait.
    GivenUp {
        signal: Signal,
        waited: Duration,
    },
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
        if descendants::is_blind() {
            self.emit(&Event::Blind);
        }
    }

    /// Reports an event in the configured format.
    pub(crate) fn emit(self, event: &Event<'_>) {
        if let Some(text) = self.line_of(event) {
            line(&text);
        }
    }

    /// An event in the configured format, if it is reported.
    pub(crate) fn line_of(self, event: &Event<'_>) -> Option<String> {
        let severity = event.severity();
        if self.quiet && severity == Severity::Info {
            return None;
        }
        if self.json {
            return Some(event.json().to_string());
        }
        (self.verbose || severity != Severity::Detail).then(|| format!("fencelock: {}", plain(&event.text())))
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

    /// Reports the error that ends the program.
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

const BLIND: &str = "\
without /proc, the processes that the command starts are not seen: they continue without the lock if this program is killed (kill -9) \
or stopped, and those outside the process group of the command also if the lock is lost. A signal that was ignored at the start, as by \
nohup, is not ignored";

pub(crate) fn line(text: &str) {
    // It never fails.
    let _ = Stderr.write_all(format!("{text}\n").as_bytes());
}

impl Event<'_> {
    fn severity(&self) -> Severity {
        match self {
            Self::Waiting { first: true, .. }
            | Self::Trouble(_)
            | Self::SlotsUnknown { .. }
            | Self::NothingKept { .. }
            | Self::Waited { .. }
            | Self::Quarantined(_)
            | Self::AlreadyDone(_)
            | Self::NotMeasured { .. }
            | Self::Blind
            | Self::Campaigning { .. } => Severity::Info,
            Self::GivenUp { waited, .. } if *waited >= LONG => Severity::Info,
            Self::Terminating { .. }
            | Self::Killing { .. }
            | Self::Refused { .. }
            | Self::Unkillable { .. }
            | Self::Late { .. }
            | Self::Warning { .. }
            | Self::NotReleased { .. }
            | Self::NotKept { .. }
            | Self::WasLost { .. } => Severity::Notice,
            _ => Severity::Detail,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Backend { key, backend } => format!("{key} is stored at {backend}"),
            Self::Waiting { status, .. } => {
                let held = status.held_for.map(|span| format!(" for {}", Span(span))).unwrap_or_default();
                format!("waiting for {}, {}{held}", status.key, status.position())
            }
            Self::Trouble(cause) => format!("waiting for a reply: {cause}"),
            Self::SlotsUnknown { key, why } => format!("{key} is free; whether slots of it are held is unknown: {why}"),
            Self::NothingKept { pid, owner } => {
                let whose = owner.map_or_else(|| "without a name".to_owned(), |owner| format!("named {owner}"));
                format!("nothing was released: process {pid} has no locks here for the owner {whose}")
            }
            Self::Waited { locks, what, waited } => format!("{locks} {what}, after {}", Span(*waited)),
            Self::Quarantined(cause) => format!("waiting: {cause}"),
            Self::Acquired { key, fence, .. } => format!("acquired {key} with fencing token {fence}"),
            Self::Started { pid } => format!("started the command as process {pid}"),
            Self::Blind => BLIND.to_owned(),
            Self::Passed(signal) => format!("forwarded {}", signals::name(*signal)),
            Self::Terminating { locks, why, grace } => {
                format!("{locks}: {why}; terminating the command (TERM, then KILL in {})", Span(*grace))
            }
            Self::Killing { locks, why: Some(why) } => format!("{locks}: {why}; killing the command"),
            Self::Killing { locks, why: None } => {
                format!("{locks}: the command or its descendants did not exit in time; killing them")
            }
            Self::Refused { locks, process: UnsignalledProcess { pid, uid } } => {
                let user = uid.map_or_else(|| "another user".to_owned(), |uid| format!("user {uid}"));
                format!(
                    "{locks}: process {pid} runs as {user} and cannot be signalled: it is still running, and may overlap \
                     the next holder"
                )
            }
            Self::Unkillable { locks, why: Some(why) } => format!("{locks}: {why}; the command cannot be killed"),
            Self::Unkillable { locks, why: None } => {
                format!("{locks}: the command or its descendants did not exit in time and cannot be killed")
            }
            Self::Late { locks, signal } => format!(
                "{locks}: this process was stopped or too slow; the parent-death watcher sent {} to the command before \
                 the lease ended",
                signals::name(*signal)
            ),
            Self::Warning { locks, why } => {
                format!("{locks}: {why}; the command continues and may overlap the next holder (--on-lost warn)")
            }
            Self::Exited { code } => format!("the command exited with {code}"),
            Self::Killed { signal } => format!("the command was terminated by {}", signals::by_number(*signal)),
            Self::Keeping { left } => format!("holding the lock for another {}", Span(*left)),
            Self::Released => "released the lock".to_owned(),
            Self::NotReleased { locks, why } => {
                format!("{locks}: not released, so others wait until the lease ends: {why}")
            }
            Self::NotKept { key, why } => format!("{key} was lost before --hold-for elapsed: {why}"),
            Self::WasLost { key, why } => format!("{key} was lost before the command exited: {why}"),
            Self::AlreadyDone(done) => format!("{}: {done}", done.key()),
            Self::Recorded => "recorded the success".to_owned(),
            Self::NotMeasured { why } => format!("cannot write --metrics-file: {why}"),
            Self::Campaigning { key } => format!("{key}: the leadership is lost; campaigning again"),
            Self::GivenUp { signal, waited } => {
                format!("received {}: stopped waiting after {}", signals::name(*signal), Span(*waited))
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Backend { key, backend } => json!({ "event": "backend", "key": key, "backend": backend }),
            Self::Waiting { status, .. } => {
                let object = json!({
                    "event": "waiting",
                    "key": status.key,
                    "ahead": status.ahead,
                    "expires_in_ms": status.expires_in.map(millis),
                    "held_for_ms": status.held_for.map(millis),
                    "waited_ms": millis(status.waited),
                    "holder_count": status.holders.count(),
                });
                with_occupant(object, status.holders.first())
            }
            Self::Trouble(cause) => json!({ "event": "unreachable", "reason": cause.to_string() }),
            Self::SlotsUnknown { key, why } => json!({ "event": "slots_unknown", "key": key, "reason": why }),
            Self::NothingKept { pid, owner } => json!({ "event": "nothing_kept", "while_pid": pid, "name": owner }),
            Self::Waited { locks, waited, .. } => {
                locks.add_to(json!({ "event": "waited", "waited_ms": millis(*waited) }))
            }
            Self::Quarantined(cause) => json!({ "event": "quarantined", "reason": cause.to_string() }),
            Self::Acquired { key, holder, fence } => json!({
                "event": "acquired", "key": key.as_str(), "holder": holder.to_string(), "fence": fence.get(),
            }),
            Self::Started { pid } => json!({ "event": "started", "pid": pid }),
            Self::Blind => json!({ "event": "no_proc", "reason": BLIND }),
            Self::Passed(signal) => json!({ "event": "signal", "signal": signals::name(*signal) }),
            Self::Terminating { locks, why, grace } => locks.add_to(json!({
                "event": "terminating", "reason": why, "grace_ms": millis(*grace),
            })),
            Self::Killing { locks, why } => locks.add_to(json!({ "event": "killing", "reason": why })),
            Self::Refused { locks, process: UnsignalledProcess { pid, uid } } => {
                locks.add_to(json!({ "event": "refused", "pid": pid, "uid": uid }))
            }
            Self::Unkillable { locks, why } => locks.add_to(json!({ "event": "unkillable", "reason": why })),
            Self::Late { locks, signal } => locks.add_to(json!({ "event": "late", "signal": signals::name(*signal) })),
            Self::Warning { locks, why } => locks.add_to(json!({ "event": "lost", "reason": why })),
            Self::Exited { code } => json!({ "event": "exited", "code": code, "signal": null }),
            Self::Killed { signal } => json!({
                "event": "exited", "code": null, "signal": signals::by_number(*signal),
            }),
            Self::Keeping { left } => json!({ "event": "keeping", "left_ms": millis(*left) }),
            Self::Released => json!({ "event": "released" }),
            Self::NotReleased { locks, why } => locks.add_to(json!({ "event": "not_released", "reason": why })),
            Self::NotKept { key, why } => json!({ "event": "not_kept", "key": key, "reason": why }),
            Self::WasLost { key, why } => json!({ "event": "was_lost", "key": key, "reason": why }),
            Self::AlreadyDone(done) => json!({
                "event": "already_done", "key": done.key().as_str(), "done": window_done(done),
            }),
            Self::Recorded => json!({ "event": "recorded" }),
            Self::NotMeasured { why } => json!({ "event": "not_measured", "reason": why }),
            Self::Campaigning { key } => json!({ "event": "campaigning", "key": key }),
            Self::GivenUp { signal, waited } => json!({
                "event": "given_up", "signal": signals::name(*signal), "waited_ms": millis(*waited),
            }),
        }
    }
}

/// The locks that an event is about: all that a command runs under, or one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Locks<'a> {
    keys: &'a [String],
    one: Option<&'a str>,
}

impl<'a> Locks<'a> {
    /// All locks of a command.
    pub(crate) const fn all(keys: &'a [String]) -> Self {
        Self { keys, one: None }
    }

    /// This lock, if one is given, among all locks of a command.
    pub(crate) const fn with_one(self, one: Option<&'a str>) -> Self {
        Self { one, ..self }
    }

    /// `event` with `key`, which is null for several locks, and `keys`, those of the command.
    pub(crate) fn add_to(self, mut event: Value) -> Value {
        let only = if let [key] = self.keys { Some(key.as_str()) } else { None };
        event["key"] = json!(self.one.or(only));
        event["keys"] = json!(self.keys);
        event
    }
}

impl fmt::Display for Locks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.one {
            Some(key) => f.write_str(key),
            None => f.write_str(&self.keys.join(", ")),
        }
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
mod locks_tests {
    use super::*;

    #[test]
    fn one_lock_is_named_and_several_are_listed() {
        let (one, two) = (["a".to_owned()], ["a".to_owned(), "b".to_owned()]);
        assert_eq!((Locks::all(&one).to_string(), Locks::all(&two).to_string()), ("a".to_owned(), "a, b".to_owned()));
        assert_eq!(Locks::all(&two).with_one(Some("b")).to_string(), "b");
        let event = |locks: Locks<'_>| locks.add_to(json!({ "event": "killing" })).to_string();
        assert_eq!(event(Locks::all(&one)), r#"{"event":"killing","key":"a","keys":["a"]}"#);
        assert_eq!(event(Locks::all(&two)), r#"{"event":"killing","key":null,"keys":["a","b"]}"#);
        assert_eq!(event(Locks::all(&two).with_one(Some("b"))), r#"{"event":"killing","key":"b","keys":["a","b"]}"#);
    }
}
