use crate::change::Change;
use crate::child::Child;
use crate::descendants::Round;
use crate::exit::Exit;
use crate::json::millis;
use crate::kill_policy::{Action, Cause, DueIn, KillPolicy};
use crate::parent_death_watcher::{Deadlines, WatcherMessage};
use crate::plan::Rules;
use crate::proc::{Process, user_of};
use crate::report::{Event, Reporter};
use crate::signals;
use crate::signals::{Signals, is_interrupt, is_termination};
use crate::terminal::{Terminal, has_job_control, stop_job};
use fencelock::backends::BootClock;
use fencelock::{Clock, Held, HeldAll, Loss, Moment, Span};
use rustix::process::{Pid, Signal};
use serde_json::json;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Runs a command under one or more locks and applies the actions of its [`KillPolicy`].
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// The locks that the command runs under.
    held: HeldAll,
    /// The first of them that was lost.
    lost: Option<Loss>,
    child: Child,
    terminal: Option<Terminal>,
    kill_policy: KillPolicy,
    /// When the lock was acquired.
    since: Instant,
    report: Reporter,
    /// The processes that cannot be signalled and were reported.
    refused: Vec<Pid>,
    /// Consecutive kill rounds that found no process.
    idle_rounds: u32,
    /// The next TSTP is the one that this process sent to its own job.
    own_stop: bool,
    /// Why the command was terminated.
    cause: Option<Cause>,
}

/// The result of a supervised command.
#[derive(Debug)]
pub(crate) struct Supervised {
    pub(crate) exit: Exit,
    /// A termination signal was received.
    pub(crate) by_signal: bool,
    /// The loss of the lock was reported to the user.
    pub(crate) loss_reported: bool,
}

/// Stop after this many consecutive kill rounds that found no process.
const MAX_IDLE_ROUNDS: u32 = 10;
/// Timers stop while the machine is suspended, so no sleep that depends on a lease is longer.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// The watcher must be notified of a renewal long before its own deadline.
const UPDATES_PER_GRACE: u32 = 4;
/// How often to check for remaining descendants: the kernel does not notify about them.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Supervisor {
    pub(crate) fn new(
        held: HeldAll,
        child: Child,
        terminal: Option<Terminal>,
        rules: Rules,
        since: Instant,
        report: Reporter,
    ) -> Self {
        Self {
            held,
            lost: None,
            child,
            terminal,
            kill_policy: KillPolicy::new(rules),
            since,
            report,
            refused: Vec::new(),
            idle_rounds: 0,
            own_stop: false,
            cause: None,
        }
    }

    /// Waits until the command has exited, and terminates it if the kill policy requires it.
    pub(crate) async fn watch(mut self, signals: &mut Signals) -> io::Result<Supervised> {
        let change = self.end(signals).await?;
        let had_terminal = self.terminal.as_ref().is_some_and(|terminal| terminal.take_from(self.child.pid));
        let interrupt = self.interrupt(change).filter(|_| had_terminal);
        self.terminate_rest(signals).await;
        let exit = self.exit(change, interrupt);
        self.child.let_go();
        Ok(Supervised {
            exit,
            by_signal: self.kill_policy.termination_requested || interrupt.is_some(),
            loss_reported: self.kill_policy.lost || matches!(self.cause, Some(Cause::Ending)),
        })
    }

    /// The signal of the terminal that ended the command, unless another process sent it through this one.
    fn interrupt(&self, change: Change) -> Option<Signal> {
        let Change::Killed(number) = change else { return None };
        let typed = |signal: &Signal| is_interrupt(*signal) && !self.kill_policy.termination_requested;
        Signal::from_named_raw(number).filter(typed)
    }

    async fn end(&mut self, signals: &mut Signals) -> io::Result<Change> {
        // The watcher needs the end of the lease from the start.
        self.tick();
        loop {
            // A sleep of zero would starve the other branches.
            let pause = self.next_wakeup().map(|next| next.clamp(Duration::from_millis(1), MAX_SLEEP));
            let action = tokio::select! {
                biased;
                notice = self.child.notice() => {
                    match notice? {
                        WatcherMessage::Changed(Change::Stopped(signal)) => self.stopped(signal),
                        WatcherMessage::Changed(ended) => return Ok(ended),
                        WatcherMessage::Late(signal) => {
                            self.watcher_was_first(Signal::from_named_raw(signal).unwrap_or(Signal::TERM));
                        }
                        WatcherMessage::Started(_) | WatcherMessage::Failed(_) => {}
                    }
                    None
                }
                loss = self.held.lost(), if !self.kill_policy.lost => {
                    let reason = loss.reason.clone();
                    self.lost = Some(loss);
                    self.kill_policy.lost(self.since.elapsed(), reason)
                }
                signal = signals.next() => self.kill_policy.signal(self.since.elapsed(), signal),
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => None,
            };
            if let Some(action) = action {
                self.apply(action);
            }
            self.tick();
            // The command is dead. A watcher that does not report it was stopped.
            if self.idle_rounds >= MAX_IDLE_ROUNDS && self.refused.is_empty() {
                self.child.kill_watcher();
            }
        }
    }

    /// Applies the actions that are due, and sends new deadlines to the watcher.
    fn tick(&mut self) {
        if let Some(action) = self.kill_policy.tick(self.since.elapsed(), self.held.remaining()) {
            self.apply(action);
        } else if self.kill_policy.kill_sent {
            self.idle_rounds = if self.kill() == 0 { self.idle_rounds + 1 } else { 0 };
        }
        let DueIn { term, kill } = self.kill_policy.watcher_deadlines(self.since.elapsed(), self.held.remaining());
        let now = BootClock.now();
        let moment = |after: Option<Duration>| after.map_or(Moment::NEVER, |after| now + after);
        self.child.send_deadlines(Deadlines { term: moment(term), kill: moment(kill) });
    }

    fn next_wakeup(&self) -> Option<Duration> {
        if self.kill_policy.kill_sent {
            return Some(POLL_INTERVAL);
        }
        let due = self.kill_policy.next_wakeup(self.since.elapsed(), self.held.remaining())?;
        // Update the watcher several times per grace period, so that it does not act too early.
        Some(due.min((self.kill_policy.rules.grace / UPDATES_PER_GRACE).max(POLL_INTERVAL)))
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Forward(signal) => self.forward(signal),
            Action::Terminate(cause) => {
                let why = self.why(&cause);
                let text = format!(
                    "{why}; terminating the command (TERM, then KILL in {})",
                    Span(self.kill_policy.rules.grace)
                );
                let fields = json!({ "reason": why, "grace_ms": millis(self.kill_policy.rules.grace) });
                self.report(Event::notice("terminating", text, fields), Some(&cause));
                self.cause = Some(cause);
                self.term_group();
            }
            Action::TerminateOthers => self.term_others(),
            Action::Kill(cause) => {
                self.kill_now(Some(&cause));
                self.cause.get_or_insert(cause);
            }
            Action::KillAfterGrace => self.kill_now(None),
            Action::Warn(cause) => {
                let why = self.why(&cause);
                let text = format!("{why}; the command continues and may overlap the next holder (--on-lost warn)");
                self.report(Event::notice("lost", text, json!({ "reason": why })), Some(&cause));
            }
        }
    }

    /// Reports what happens to all locks, or to the one among them that is the cause.
    fn report(&self, event: Event, cause: Option<&Cause>) {
        let one = match cause {
            Some(Cause::Lost(_)) => self.lost.as_ref().map(|loss| loss.key.as_str()),
            Some(Cause::Ending) => self.ends_first().map(|held| held.key().as_str()),
            _ => None,
        };
        let keys: Vec<_> = self.held.keys().into_iter().map(ToString::to_string).collect();
        self.report.emit(&event.about(&keys, one));
    }

    /// The cause, and why the lock could not be renewed.
    fn why(&self, cause: &Cause) -> String {
        let failure = match cause {
            Cause::Lost(_) => self.lost.as_ref().and_then(|loss| loss.failure.clone()),
            Cause::Ending => self.ends_first().and_then(Held::renewal_failure),
            _ => None,
        };
        failure.map_or_else(|| cause.to_string(), |failure| format!("{cause}: {failure}"))
    }

    fn ends_first(&self) -> Option<&Held> {
        self.held.parts().iter().min_by_key(|held| held.remaining())
    }

    fn forward(&mut self, signal: Signal) {
        match signal {
            Signal::CONT => self.resume(),
            Signal::TSTP if std::mem::take(&mut self.own_stop) => {}
            signal => {
                let name = signals::name(signal);
                self.report.emit(&Event::detail("signal", format!("forwarded {name}"), json!({ "signal": name })));
                if signal == Signal::TERM {
                    return self.term_group();
                }
                self.child.signal(signal);
                if is_termination(signal) {
                    // As for TERM: a stopped command would not handle it.
                    self.child.signal(Signal::CONT);
                }
            }
        }
    }

    /// Sends TERM to the process group of the command.
    fn term_group(&mut self) {
        let refused = self.child.below.term_group(self.child.pid);
        self.report_refused(refused);
    }

    /// Sends TERM to all other descendants of the command.
    fn term_others(&mut self) {
        let refused = self.child.below.term_others();
        self.report_refused(refused);
    }

    /// Sends KILL, and reports processes that cannot be killed.
    fn kill_now(&mut self, cause: Option<&Cause>) {
        let cannot = self.kill() == 0 && !self.refused.is_empty();
        let why = cause.map(|cause| self.why(cause));
        let late = "the command or its descendants did not exit in time";
        let (name, text) = match (&why, cannot) {
            (Some(why), false) => ("killing", format!("{why}; killing the command")),
            (None, false) => ("killing", format!("{late}; killing them")),
            (Some(why), true) => ("unkillable", format!("{why}; the command cannot be killed")),
            (None, true) => ("unkillable", format!("{late} and cannot be killed")),
        };
        self.report(Event::notice(name, text, json!({ "reason": why })), cause);
    }

    /// Sends KILL to all descendants that are visible now. Call it repeatedly.
    fn kill(&mut self) -> usize {
        let Round { left, refused } = self.child.kill();
        self.report_refused(refused);
        left
    }

    /// Reports each process that cannot be signalled, once, and the user that it runs as, unless the system hides it.
    fn report_refused(&mut self, refused: Vec<Process>) {
        for Process { pid, .. } in refused {
            if !self.refused.contains(&pid) {
                let (number, uid) = (pid.as_raw_pid(), user_of(pid.as_raw_pid()));
                let user = uid.map_or_else(|| "another user".to_owned(), |uid| format!("user {uid}"));
                let text = format!(
                    "process {number} runs as {user} and cannot be signalled: it is still running, and may overlap the next holder"
                );
                self.report(Event::notice("refused", text, json!({ "pid": number, "uid": uid })), None);
                self.refused.push(pid);
            }
        }
    }

    /// The watcher acted because this process was stopped or too slow.
    fn watcher_was_first(&mut self, signal: Signal) {
        self.kill_policy.was_sent(self.since.elapsed(), signal);
        let name = signals::name(signal);
        let text = format!(
            "this process was stopped or too slow; the parent-death watcher sent {name} to the command before the lease ended"
        );
        self.report(Event::notice("late", text, json!({ "signal": name })), None);
        self.cause.get_or_insert(Cause::Late);
    }

    /// The command was stopped. Stops this process too if a shell can resume the job.
    fn stopped(&mut self, signal: i32) {
        // Without a terminal, another process sent the signal: keep the lock, because the command may continue at any time.
        let Some(terminal) = &mut self.terminal else { return };
        let wants_terminal = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        if wants_terminal {
            terminal.request();
        }
        if wants_terminal && terminal.is_ours() {
            self.resume();
        } else if has_job_control() {
            terminal.take_from(self.child.pid);
            self.own_stop = true;
            stop_job();
            self.resume();
        } else if signal == Signal::TSTP.as_raw() {
            // The kernel ignores ^Z where no shell can resume the job. Do the same.
            self.resume();
        }
    }

    /// Continues the command, unless the lock is lost: it never runs again without the lock.
    fn resume(&mut self) {
        if !self.held.is_held() && self.kill_policy.terminates_on_loss() {
            return;
        }
        if let Some(terminal) = &self.terminal {
            terminal.give_to(self.child.pid);
        }
        self.child.signal(Signal::CONT);
    }

    /// If the command was terminated, terminates its remaining descendants. If it exited by itself, its descendants keep
    /// running.
    async fn terminate_rest(&mut self, signals: &mut Signals) {
        if self.child.orphaned {
            self.apply(Action::Kill(Cause::WatcherKilled));
            self.kill_policy.was_sent(self.since.elapsed(), Signal::KILL);
        } else if self.cause.is_none() && !self.kill_policy.termination_requested {
            return;
        }
        self.kill_policy.was_sent(self.since.elapsed(), Signal::TERM);
        if !self.kill_policy.kill_sent {
            self.term_others();
        }
        self.idle_rounds = 0;
        // Processes that remain belong to another user and cannot be killed.
        while self.child.below.count() > 0 && self.idle_rounds < MAX_IDLE_ROUNDS {
            self.tick();
            tokio::select! {
                biased;
                signal = signals.ending() => {
                    let action = self.kill_policy.signal(self.since.elapsed(), signal);
                    if let Some(kill @ Action::Kill(_)) = action {
                        self.apply(kill);
                    }
                }
                () = sleep(POLL_INTERVAL) => {}
            }
        }
    }

    fn exit(&self, change: Change, interrupt: Option<Signal>) -> Exit {
        let (text, code, signal, exit) = match change {
            Change::Exited(code) => (format!("exited with {code}"), Some(code), None, Exit::Child(code)),
            Change::Killed(signal) | Change::Stopped(signal) => {
                if let Some(terminal) = &self.terminal {
                    terminal.repair();
                }
                let name = signals::by_number(signal);
                let exit = interrupt.map_or(Exit::Signalled(signal), Exit::Interrupted);
                (format!("was terminated by {name}"), None, Some(name), exit)
            }
        };
        let fields = json!({ "code": code, "signal": signal });
        self.report.emit(&Event::detail("exited", format!("the command {text}"), fields));
        match self.cause {
            // A process continues without the lock.
            _ if !self.refused.is_empty() && self.kill_policy.kill_sent => Exit::Lost,
            None | Some(Cause::SignalledTwice | Cause::WatcherKilled) => exit,
            Some(Cause::Ending | Cause::Lost(_) | Cause::MaxHold(_) | Cause::Late) => Exit::Lost,
        }
    }
}
