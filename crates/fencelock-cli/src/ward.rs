use crate::child::{Change, Child};
use crate::custody::{Cause, Custody, Order};
use crate::exit::Exit;
use crate::guardian::Guardian;
use crate::plan::Rules;
use crate::report::{Event, Reporter};
use crate::signals::{Signals, asks_to_end};
use crate::terminal::{Terminal, has_job_control, stop_job};
use fencelock::Guard;
use rustix::process::Signal;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A command that runs under a lock: carries out what its [`Custody`] decides.
#[derive(Debug)]
pub(crate) struct Ward<'a> {
    guard: &'a Guard,
    child: Child,
    terminal: Option<Terminal>,
    custody: Custody,
    /// When the lock was acquired.
    since: Instant,
    report: Reporter,
    grace: Duration,
    stopped: bool,
    /// The next TSTP is the one that this process has sent to its own job.
    own_stop: bool,
    /// Why the command was made to end.
    cause: Option<Cause>,
}

/// Timers stand still while the machine sleeps, so nothing that depends on a lease naps longer.
const LONGEST_NAP: Duration = Duration::from_secs(1);
/// How often to look whether the rest of a group has ended: nobody tells.
const SWEEP: Duration = Duration::from_millis(10);

impl<'a> Ward<'a> {
    pub(crate) fn new(
        guard: &'a Guard,
        child: Child,
        terminal: Option<Terminal>,
        rules: Rules,
        since: Instant,
        report: Reporter,
    ) -> Self {
        Self {
            guard,
            child,
            terminal,
            custody: Custody::new(rules),
            since,
            report,
            grace: rules.grace,
            stopped: false,
            own_stop: false,
            cause: None,
        }
    }

    /// Waits for the end of the command, and brings it about if it must be.
    pub(crate) async fn watch(&mut self, signals: &mut Signals) -> io::Result<Exit> {
        let guardian = Guardian::start(self.child.group());
        let change = self.end(signals).await?;
        if let Some(terminal) = &self.terminal {
            terminal.take_from(self.child.group());
        }
        self.sweep().await;
        // Without a guardian, as without /proc, the command itself still dies with this process.
        if let Ok(guardian) = guardian {
            guardian.dismiss();
        }
        Ok(self.exit(change))
    }

    /// Whether a signal has asked for the end of all this.
    pub(crate) const fn was_asked_to_end(&self) -> bool {
        self.custody.was_asked_to_end()
    }

    /// Whether the user was told that the lock is lost.
    pub(crate) const fn has_told_loss(&self) -> bool {
        self.custody.is_lost()
    }

    async fn end(&mut self, signals: &mut Signals) -> io::Result<Change> {
        loop {
            if let Some(order) = self.custody.tick(self.since.elapsed(), self.guard.remaining()) {
                self.obey(order);
            }
            let nap = self.custody.nap(self.since.elapsed(), self.guard.remaining());
            let nap = async {
                match nap {
                    // A nap that is over at once would never let the other branches have their turn.
                    Some(nap) => sleep(nap.clamp(Duration::from_millis(1), LONGEST_NAP)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                change = self.child.changed() => match change? {
                    Change::Stopped(signal) => self.stopped(signal),
                    ended => return Ok(ended),
                },
                reason = self.guard.lost(), if !self.custody.is_lost() => {
                    if let Some(order) = self.custody.lost(self.since.elapsed(), reason) {
                        self.obey(order);
                    }
                }
                signal = signals.next() => {
                    let order = self.custody.signal(signal);
                    self.obey(order);
                }
                () = nap => {}
            }
        }
    }

    fn obey(&mut self, order: Order) {
        let key = self.guard.key().as_str();
        match order {
            Order::Pass(signal) => self.pass(signal),
            Order::Terminate(cause) => {
                self.report.tell(&Event::Terminating { key, cause: &cause, grace: self.grace });
                self.cause = Some(cause);
                self.send(Signal::TERM);
            }
            Order::Kill(cause) => {
                self.report.tell(&Event::Killing { key, cause: Some(&cause) });
                self.cause.get_or_insert(cause);
                self.send(Signal::KILL);
            }
            Order::Finish => {
                self.report.tell(&Event::Killing { key, cause: None });
                self.send(Signal::KILL);
            }
            Order::Warn(cause) => self.report.tell(&Event::Warning { key, cause: &cause }),
        }
    }

    fn pass(&mut self, signal: Signal) {
        match signal {
            Signal::CONT => self.resume(),
            Signal::TSTP if std::mem::take(&mut self.own_stop) => {}
            signal => {
                self.report.tell(&Event::Passed(signal));
                self.send(signal);
            }
        }
    }

    /// A stopped command takes no signal but KILL, so one that asks it to end must also let it go on.
    fn send(&mut self, signal: Signal) {
        self.child.signal(signal);
        if self.stopped && asks_to_end(signal) {
            self.child.signal(Signal::CONT);
            self.stopped = false;
        }
    }

    /// The command was stopped. Stops this process too, as part of the same job, if there is a shell to resume it.
    fn stopped(&mut self, signal: i32) {
        self.stopped = true;
        // Without a terminal somebody did it by hand: the lock is kept, because the command may go on at any time.
        let Some(terminal) = &mut self.terminal else { return };
        let wants_terminal = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        if wants_terminal {
            terminal.ask();
        }
        if wants_terminal && terminal.is_ours() {
            self.resume();
        } else if has_job_control() {
            terminal.take_from(self.child.group());
            self.own_stop = true;
            stop_job();
            self.resume();
        } else if signal == Signal::TSTP.as_raw() {
            // The kernel lets ^Z pass where no shell could bring the job back. So do we.
            self.resume();
        }
    }

    /// Lets the command go on, unless the lock was lost meanwhile: then it never runs again without it.
    fn resume(&mut self) {
        if !self.guard.is_held() && self.custody.ends_on_loss() {
            return;
        }
        if let Some(terminal) = &self.terminal {
            terminal.give_to(self.child.group());
        }
        self.child.signal(Signal::CONT);
        self.stopped = false;
    }

    /// If the command was made to end, whatever it had started in its group ends with it.
    async fn sweep(&mut self) {
        while self.cause.is_some() && self.child.has_group() {
            if let Some(Order::Finish) = self.custody.tick(self.since.elapsed(), self.guard.remaining()) {
                self.child.signal(Signal::KILL);
            }
            if self.custody.is_over() {
                return;
            }
            sleep(SWEEP).await;
        }
    }

    fn exit(&self, change: Change) -> Exit {
        let exit = match change {
            Change::Exited(code) => {
                self.report.tell(&Event::Exited { code });
                Exit::Child(code)
            }
            Change::Killed(signal) | Change::Stopped(signal) => {
                self.report.tell(&Event::Killed { signal });
                if let Some(terminal) = &self.terminal {
                    terminal.repair();
                }
                Exit::Signalled(signal)
            }
        };
        match self.cause {
            None | Some(Cause::Asked) => exit,
            Some(Cause::Ending | Cause::Lost(_) | Cause::MaxHold(_)) => Exit::Lost,
        }
    }
}
