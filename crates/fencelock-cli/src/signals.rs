use crate::proc::word_after;
use crate::terminal::{has_job_control, stop_self};
use rustix::process::Signal;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Copies of a signal in this time are one request: `timeout` sends TERM to its child and then to the group of the child.
pub(crate) const SAME_REQUEST: Duration = Duration::from_secs(1);

/// The signals that a wrapper handles. They no longer have their default action.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
}

/// Termination signals.
const TERMINATION: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
/// Signals that are meant for the command, and that would otherwise terminate or stop the wrapper.
const FORWARDED: [Signal; 5] = [Signal::USR1, Signal::USR2, Signal::WINCH, Signal::TSTP, Signal::CONT];

impl Signals {
    /// Handles signals from now on, except those that were already ignored when this process started. `nohup` and background jobs
    /// of scripts rely on this, and the command inherits it.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let streams = TERMINATION
            .into_iter()
            .chain(FORWARDED)
            .filter(|one| !contains(ignored, *one))
            .map(|one| Ok((one, signal(SignalKind::from_raw(one.as_raw()))?)))
            .collect::<io::Result<_>>()?;
        Ok(Self { streams })
    }

    /// Whether a signal was already ignored when this process started.
    pub(crate) fn is_ignored(signal: Signal) -> bool {
        contains(ignored(), signal)
    }

    /// Waits for the next signal. Cancel safe: no signal is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for the next termination signal. Other signals are ignored while there is no command.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if is_termination(signal) {
                return signal;
            }
            // ^Z, whose default action would have stopped this process.
            if signal == Signal::TSTP && has_job_control() {
                stop_self();
            }
        }
    }

    /// Returns a pending termination signal.
    pub(crate) async fn pending(&mut self) -> Option<Signal> {
        // Yield once: the runtime reads the signal pipe between two tasks.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            signal = self.ending() => Some(signal),
            () = std::future::ready(()) => None,
        }
    }
}

/// Whether this is a termination signal.
pub(crate) fn is_termination(signal: Signal) -> bool {
    TERMINATION.contains(&signal)
}

/// Whether this is a signal that the terminal sends for ^C or ^\\.
pub(crate) fn is_interrupt(signal: Signal) -> bool {
    signal == Signal::INT || signal == Signal::QUIT
}

fn contains(set: u64, signal: Signal) -> bool {
    set >> (signal.as_raw() - 1) & 1 == 1
}

/// The set of ignored signals, as bits from signal 1 upwards. The system call for the disposition of a signal needs raw pointers;
/// reading `/proc` does not. On other systems, no signal counts as ignored.
fn ignored() -> u64 {
    let set = word_after("SigIgn:", "/proc/self/status");
    set.and_then(|hex| u64::from_str_radix(&hex, 16).ok()).unwrap_or(0)
}

/// The name of a signal, such as `SIGTERM`.
pub(crate) fn name(signal: Signal) -> String {
    by_number(signal.as_raw())
}

/// The name of a signal number.
pub(crate) fn by_number(number: i32) -> String {
    nix::sys::signal::Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |s| s.as_str().to_owned())
}
