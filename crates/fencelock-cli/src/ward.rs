use crate::child::{Change, Child, Notice};
use crate::custody::{Cause, Custody, Order, Steps};
use crate::descendants::{Refusal, Round};
use crate::exit::Exit;
use crate::guardian::Deadlines;
use crate::plan::Rules;
use crate::report::{Event, Reporter};
use crate::signals::{Signals, asks_to_end};
use crate::terminal::{Terminal, has_job_control, stop_job};
use fencelock::backends::BootClock;
use fencelock::{Clock, Guard, Moment};
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
    /// The processes that take no signal from this one, as far as the user was told.
    refused: Vec<Refusal>,
    /// Rounds of killing in a row that found nobody to kill.
    in_vain: u32,
    /// The next TSTP is the one that this process has sent to its own job.
    own_stop: bool,
    /// Why the command was made to end.
    cause: Option<Cause>,
}

/// What came of watching a command.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) exit: Exit,
    /// A signal has asked for the end of all this.
    pub(crate) asked: bool,
    /// The user was told that the lock is lost.
    pub(crate) loss_told: bool,
}

/// So many rounds in a row that find nobody to kill are the end of it.
const VAIN: u32 = 10;
/// Timers stand still while the machine sleeps, so nothing that depends on a lease naps longer.
const LONGEST_NAP: Duration = Duration::from_secs(1);
/// The guardian must hear of a renewal long before it would act for the lack of one.
const SHARE_OF_GRACE: u32 = 4;
/// How often to look whether the rest of what the command has started has ended: nobody tells.
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
            refused: Vec::new(),
            in_vain: 0,
            own_stop: false,
            cause: None,
        }
    }

    /// Waits for the end of the command, and brings it about if it must be.
    pub(crate) async fn watch(mut self, signals: &mut Signals) -> io::Result<Watched> {
        let change = self.end(signals).await?;
        if let Some(terminal) = &self.terminal {
            terminal.take_from(self.child.group());
        }
        self.sweep(signals).await;
        let exit = self.exit(change);
        self.child.let_go();
        Ok(Watched { exit, asked: self.custody.was_asked_to_end(), loss_told: self.custody.is_lost() })
    }

    async fn end(&mut self, signals: &mut Signals) -> io::Result<Change> {
        // The guardian must know the end of the lease from the beginning.
        self.tick();
        loop {
            let nap = self.nap();
            let nap = async {
                match nap {
                    // A nap that is over at once would never let the other branches have their turn.
                    Some(nap) => sleep(nap.clamp(Duration::from_millis(1), LONGEST_NAP)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                notice = self.child.notice() => match notice? {
                    Notice::Changed(Change::Stopped(signal)) => self.stopped(signal),
                    Notice::Changed(ended) => return Ok(ended),
                    Notice::Late(signal) => self.was_late(signal),
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
            self.tick();
            // The command is dead. A guardian that does not tell of it was stopped.
            if self.in_vain >= VAIN && self.refused.is_empty() {
                self.child.give_up_guardian();
            }
        }
    }

    /// Does what is due by now, and tells the guardian until when it is to wait.
    fn tick(&mut self) {
        if let Some(order) = self.custody.tick(self.since.elapsed(), self.guard.remaining()) {
            self.obey(order);
        } else if self.custody.is_over() {
            self.in_vain = if self.kill() == 0 { self.in_vain + 1 } else { 0 };
        }
        let Steps { term, kill } = self.custody.stand_in(self.since.elapsed(), self.guard.remaining());
        let now = BootClock.now();
        let moment = |after: Option<Duration>| after.map_or(Moment::NEVER, |after| now + after);
        self.child.tell(Deadlines { term: moment(term), kill: moment(kill) });
    }

    fn nap(&self) -> Option<Duration> {
        if self.custody.is_over() {
            return Some(SWEEP);
        }
        let due = self.custody.nap(self.since.elapsed(), self.guard.remaining())?;
        // Within the grace nothing is told to the guardian that would make it wait longer.
        Some(due.min((self.grace / SHARE_OF_GRACE).max(SWEEP)))
    }

    fn obey(&mut self, order: Order) {
        let key = self.guard.key().as_str();
        match order {
            Order::Pass(signal) => self.pass(signal),
            Order::Terminate(cause) => {
                self.report.tell(&Event::Terminating { key, cause: &cause, grace: self.grace });
                self.cause = Some(cause);
                self.ask();
            }
            Order::AskOthers => self.ask_others(),
            Order::Kill(cause) => {
                self.end_now(Some(&cause));
                self.cause.get_or_insert(cause);
            }
            Order::Finish => self.end_now(None),
            Order::Warn(cause) => self.report.tell(&Event::Warning { key, cause: &cause }),
        }
    }

    fn pass(&mut self, signal: Signal) {
        match signal {
            Signal::CONT => self.resume(),
            Signal::TSTP if std::mem::take(&mut self.own_stop) => {}
            Signal::TERM => {
                self.report.tell(&Event::Passed(signal));
                self.ask();
            }
            signal => {
                self.report.tell(&Event::Passed(signal));
                self.child.signal(signal);
                if asks_to_end(signal) {
                    self.wake();
                }
            }
        }
    }

    /// Sends TERM to the command's group.
    fn ask(&mut self) {
        let refused = self.child.ask();
        self.wake();
        self.tell_refused(refused);
    }

    /// Sends TERM to all others that the command has started, wherever they have gone.
    fn ask_others(&mut self) {
        let refused = self.child.ask_others();
        self.tell_refused(refused);
    }

    /// Kills, and claims no more than was done.
    fn end_now(&mut self, cause: Option<&Cause>) {
        let left = self.kill();
        let key = self.guard.key().as_str();
        let event = match left {
            0 if !self.refused.is_empty() => Event::Unkillable { key, cause },
            _ => Event::Killing { key, cause },
        };
        self.report.tell(&event);
    }

    /// Sends KILL to all that the command has started, as far as it can be seen now. To be repeated.
    fn kill(&mut self) -> usize {
        let Round { left, refused } = self.child.kill();
        self.tell_refused(refused);
        left
    }

    /// A stopped command takes no signal but KILL, so one that was asked to end must also go on.
    fn wake(&mut self) {
        if std::mem::take(&mut self.stopped) {
            self.child.signal(Signal::CONT);
        }
    }

    /// Tells of processes that cannot be ended from here, of each once.
    fn tell_refused(&mut self, refused: Vec<Refusal>) {
        for refusal in refused {
            if !self.refused.contains(&refusal) {
                self.report.tell(&Event::Refused { key: self.guard.key().as_str(), refusal: &refusal });
                self.refused.push(refusal);
            }
        }
    }

    /// This process was stopped or too slow, and the guardian did what was due.
    fn was_late(&mut self, signal: Signal) {
        self.custody.stood_in(self.since.elapsed(), signal);
        self.report.tell(&Event::Late { key: self.guard.key().as_str(), signal });
        self.cause.get_or_insert(Cause::Late);
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

    /// If the command was made to end, whatever it had started ends with it. What it leaves behind otherwise is its own
    /// affair.
    async fn sweep(&mut self, signals: &mut Signals) {
        if self.child.is_orphaned() {
            self.obey(Order::Kill(Cause::Unguarded));
            self.custody.stood_in(self.since.elapsed(), Signal::KILL);
        } else if self.cause.is_none() && !self.custody.was_asked_to_end() {
            return;
        }
        self.custody.end_rest(self.since.elapsed());
        if !self.custody.is_over() {
            self.ask_others();
        }
        self.in_vain = 0;
        // Those who are left at last belong to another user: nothing more can be done about them.
        while self.child.rest() > 0 && self.in_vain < VAIN {
            self.tick();
            tokio::select! {
                biased;
                signal = signals.ending() => {
                    if let Order::Kill(cause) = self.custody.signal(signal) {
                        self.obey(Order::Kill(cause));
                    }
                }
                () = sleep(SWEEP) => {}
            }
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
            // Something goes on without the lock.
            _ if !self.refused.is_empty() && self.custody.is_over() => Exit::Lost,
            None | Some(Cause::Asked | Cause::Unguarded) => exit,
            Some(Cause::Ending | Cause::Lost(_) | Cause::MaxHold(_) | Cause::Late) => Exit::Lost,
        }
    }
}
