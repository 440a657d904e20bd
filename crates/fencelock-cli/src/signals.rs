use crate::terminal::{has_job_control, stop_self};
use rustix::process::Signal;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The signals that a wrapper must not let pass by. They are taken instead of obeyed.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
}

/// Those that ask a program to end.
const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
/// Those that mean something to the command only, and that would end or stop a wrapper that does not know them.
const PASSING: [Signal; 5] = [Signal::USR1, Signal::USR2, Signal::WINCH, Signal::TSTP, Signal::CONT];

impl Signals {
    /// From now on signals are taken, except those that this process was started to ignore: `nohup` and the background
    /// jobs of scripts rely on that, and so does the command, which inherits it.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let streams = ENDING
            .into_iter()
            .chain(PASSING)
            .filter(|one| ignored >> (one.as_raw() - 1) & 1 == 0)
            .map(|one| Ok((one, signal(SignalKind::from_raw(one.as_raw()))?)))
            .collect::<io::Result<_>>()?;
        Ok(Self { streams })
    }

    /// The next signal. Cancel safe: one that arrived is told to the next caller.
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

    /// The next signal that asks the program to end; the others mean nothing as long as there is no command.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if asks_to_end(signal) {
                return signal;
            }
            // ^Z, which would have stopped this process if it were not taken.
            if signal == Signal::TSTP && has_job_control() {
                stop_self();
            }
        }
    }

    /// Whether a signal that asks the program to end has come by now.
    pub(crate) async fn pending(&mut self) -> Option<Signal> {
        // Once around: signals reach the streams through a pipe that the runtime reads between two tasks.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            signal = self.ending() => Some(signal),
            () = std::future::ready(()) => None,
        }
    }
}

/// Whether this signal asks a program to end.
pub(crate) fn asks_to_end(signal: Signal) -> bool {
    ENDING.contains(&signal)
}

/// The set of ignored signals, as bits from signal 1 upwards. Asking the kernel for one signal's disposition needs a
/// call with raw pointers; the text of `/proc` does not. Elsewhere nothing counts as ignored.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// `SIGTERM` for 15, as people know it.
pub(crate) fn name(signal: Signal) -> String {
    by_number(signal.as_raw())
}

/// The same from the number.
pub(crate) fn by_number(number: i32) -> String {
    nix::sys::signal::Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |s| s.as_str().to_owned())
}
