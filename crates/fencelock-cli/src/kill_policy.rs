//! The kill policy of `run`: when to signal the command, and how. It reads no clock and sends no signal.

use crate::args::OnLost;
use crate::plan::Rules;
use crate::signals::{SAME_REQUEST, is_termination};
use fencelock::{LossReason, Span};
use rustix::process::Signal;
use std::fmt;
use std::time::Duration;

/// The state of a command that runs under a lock. Times are counted from the acquisition.
#[derive(Debug, Default)]
pub(crate) struct KillPolicy {
    pub(crate) rules: Rules,
    /// The first INT or TERM that was received, and when.
    request: Option<(Signal, Duration)>,
    /// Termination has started; KILL is due at this time.
    kill_at: Option<Duration>,
    /// TERM for descendants outside of the process group of the command is due at this time.
    terminate_others_at: Option<Duration>,
    /// A termination signal was received.
    pub(crate) termination_requested: bool,
    /// The lock is lost, so the end of the lease no longer matters.
    pub(crate) lost: bool,
    /// KILL was sent.
    pub(crate) kill_sent: bool,
}

/// An action on the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Forward a signal.
    Forward(Signal),
    /// Send TERM to the process group of the command. KILL follows after the grace period.
    Terminate(Cause),
    /// Send TERM to all other descendants: the command has not exited, or has not forwarded TERM.
    TerminateOthers,
    /// Send KILL immediately.
    Kill(Cause),
    /// The grace period is over: send KILL.
    KillAfterGrace,
    /// Warn the user that the lock is lost. The command continues.
    Warn(Cause),
}

/// Why the command is terminated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The lease is about to end, and no renewal was confirmed.
    Ending,
    /// The lock is lost.
    Lost(LossReason),
    /// The maximum hold time is reached.
    MaxHold(Duration),
    /// A second termination signal was received.
    SignalledTwice,
    /// This process was stopped or too slow, and the parent-death watcher acted in its place.
    Late,
    /// The parent-death watcher was killed, and the kernel killed the command with it.
    WatcherKilled,
}

/// The time until the next signals are due, from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DueIn {
    pub(crate) term: Option<Duration>,
    pub(crate) kill: Option<Duration>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ending => f.write_str("its lease is about to end and could not be renewed"),
            Self::Lost(reason) => reason.fmt(f),
            Self::MaxHold(max) => write!(f, "--max-hold {} is reached", Span(*max)),
            Self::SignalledTwice => f.write_str("received a second termination signal"),
            Self::Late => f.write_str("this process was stopped or too slow to act in time"),
            Self::WatcherKilled => f.write_str("the parent-death watcher of the command was killed"),
        }
    }
}

/// KILL must precede the end of the lease: a busy machine needs time to end the process.
const KILL_MARGIN: Duration = Duration::from_millis(100);

impl KillPolicy {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Handles a signal sent to the wrapper. `None` for a copy of the first request.
    pub(crate) fn signal(&mut self, now: Duration, signal: Signal) -> Option<Action> {
        self.termination_requested |= is_termination(signal);
        if signal != Signal::INT && signal != Signal::TERM {
            return Some(Action::Forward(signal));
        }
        match self.request {
            Some((first, at)) if signal == first && now.saturating_sub(at) < SAME_REQUEST => return None,
            Some(_) if !self.kill_sent => {
                self.kill_sent = true;
                return Some(Action::Kill(Cause::SignalledTwice));
            }
            Some(_) => {}
            None => self.request = Some((signal, now)),
        }
        Some(Action::Forward(signal))
    }

    /// The lock is lost.
    pub(crate) fn lost(&mut self, now: Duration, reason: LossReason) -> Option<Action> {
        self.lost = true;
        if self.kill_sent {
            return None;
        }
        if !self.terminates_on_loss() {
            return Some(Action::Warn(Cause::Lost(reason)));
        }
        if reason == LossReason::Expired {
            // Another client may hold the lock now. TERM was due earlier, so this process or the machine was suspended.
            self.kill_sent = true;
            return Some(if self.kill_at.is_some() {
                Action::KillAfterGrace
            } else {
                Action::Kill(Cause::Lost(reason))
            });
        }
        self.terminate(now, Cause::Lost(reason))
    }

    /// Returns the action that is due at `now`, while the lease has `remaining`.
    pub(crate) fn tick(&mut self, now: Duration, remaining: Duration) -> Option<Action> {
        if self.kill_sent {
            return None;
        }
        if let Some(at) = self.kill_at {
            self.kill_sent = now >= at || self.depends_on_lease() && remaining <= self.kill_margin();
            if self.kill_sent {
                return Some(Action::KillAfterGrace);
            }
            return self.terminate_others_at.take_if(|at| now >= *at).map(|_| Action::TerminateOthers);
        }
        if let Some(max) = self.rules.max_hold
            && now >= max
        {
            return self.terminate(now, Cause::MaxHold(max));
        }
        // A remaining time of zero is a loss, which is reported with its reason.
        if self.depends_on_lease() && remaining <= self.rules.grace && !remaining.is_zero() {
            return self.terminate(now, Cause::Ending);
        }
        None
    }

    /// The time until the next action is due; `None` if there is none.
    pub(crate) fn next_wakeup(&self, now: Duration, remaining: Duration) -> Option<Duration> {
        let DueIn { term, kill } = self.due_in(now, remaining);
        let others = self.terminate_others_at.map(|at| at.saturating_sub(now));
        term.or(others).into_iter().chain(kill).min()
    }

    /// When the watcher acts in place of this process: after the deadline of this process, and before the lease ends.
    pub(crate) fn watcher_deadlines(&self, now: Duration, remaining: Duration) -> DueIn {
        let DueIn { term, kill } = self.due_in(now, remaining);
        let later = |at: Option<Duration>, by| at.map(|at| at.saturating_add(by));
        DueIn { term: later(term, self.rules.grace / 2), kill: later(kill, self.kill_margin() / 2) }
    }

    /// This signal was sent, by the watcher or to a command that has ended: what is left gets the grace period.
    pub(crate) fn was_sent(&mut self, now: Duration, signal: Signal) {
        self.kill_at.get_or_insert(now.saturating_add(self.rules.grace));
        self.kill_sent |= signal == Signal::KILL;
    }

    fn due_in(&self, now: Duration, remaining: Duration) -> DueIn {
        if self.kill_sent {
            return DueIn::default();
        }
        let lease = (self.depends_on_lease() && remaining < Duration::MAX).then_some(remaining);
        let before_end = |reserve| lease.map(|lease: Duration| lease.saturating_sub(reserve));
        let latest = before_end(self.kill_margin());
        let earlier = |one: Option<Duration>, other: Option<Duration>| one.into_iter().chain(other).min();
        if let Some(at) = self.kill_at {
            return DueIn { term: None, kill: earlier(Some(at.saturating_sub(now)), latest) };
        }
        let longest = self.rules.max_hold.map(|max| max.saturating_sub(now));
        let term = earlier(longest, before_end(self.rules.grace));
        DueIn { term, kill: earlier(term.map(|term| term.saturating_add(self.rules.grace)), latest) }
    }

    /// Whether the command is terminated when the lock is lost.
    pub(crate) fn terminates_on_loss(&self) -> bool {
        self.rules.on_lost == OnLost::Term
    }

    fn depends_on_lease(&self) -> bool {
        self.terminates_on_loss() && !self.lost
    }

    fn kill_margin(&self) -> Duration {
        KILL_MARGIN.min(self.rules.grace / 4)
    }

    fn terminate(&mut self, now: Duration, cause: Cause) -> Option<Action> {
        let begun = self.kill_at.is_some();
        if !begun {
            // A program that forwards signals, such as `timeout`, gets time to do so first.
            self.terminate_others_at = Some(now.saturating_add(self.rules.grace / 2));
        }
        self.kill_at.get_or_insert(now.saturating_add(self.rules.grace));
        (!begun).then_some(Action::Terminate(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { grace: secs(10), max_hold: None, on_lost: OnLost::Term };

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_lease_renewed_in_time_needs_no_action() {
        let mut kill_policy = KillPolicy::new(RULES);
        assert_eq!(kill_policy.tick(secs(0), secs(30)), None);
        assert_eq!(kill_policy.next_wakeup(secs(0), secs(30)), Some(secs(20)));
        assert_eq!(kill_policy.tick(secs(20), secs(25)), None);
    }

    #[test]
    fn a_lease_without_an_end_schedules_no_wakeup() {
        let mut kill_policy = KillPolicy::new(RULES);
        assert_eq!(kill_policy.tick(secs(0), Duration::MAX), None);
        assert_eq!(kill_policy.next_wakeup(secs(0), Duration::MAX), None);
    }

    #[test]
    fn kill_comes_before_the_lease_ends() {
        let mut kill_policy = KillPolicy::new(RULES);
        assert_eq!(kill_policy.tick(secs(20), secs(10)), Some(Action::Terminate(Cause::Ending)));
        assert_eq!(kill_policy.next_wakeup(secs(20), secs(10)), Some(secs(5)));
        assert_eq!(kill_policy.tick(secs(25), secs(5)), Some(Action::TerminateOthers));
        assert_eq!(kill_policy.next_wakeup(secs(25), secs(5)), Some(ms(4_900)));
        assert_eq!(kill_policy.tick(ms(29_899), ms(101)), None);
        assert_eq!(kill_policy.tick(ms(29_900), ms(100)), Some(Action::KillAfterGrace));
        assert_eq!(kill_policy.tick(ms(29_901), ms(99)), None, "KILL is sent once");
    }

    #[test]
    fn a_renewal_after_term_does_not_cancel_termination() {
        let mut kill_policy = KillPolicy::new(RULES);
        kill_policy.tick(secs(20), secs(10));
        assert_eq!(kill_policy.tick(secs(25), secs(28)), Some(Action::TerminateOthers));
        assert_eq!(kill_policy.tick(secs(25), secs(28)), None);
        assert_eq!(kill_policy.next_wakeup(secs(25), secs(28)), Some(secs(5)));
        assert_eq!(kill_policy.tick(secs(30), secs(23)), Some(Action::KillAfterGrace));
    }

    #[test]
    fn the_watcher_acts_after_the_wrapper_and_before_the_lease_ends() {
        let mut kill_policy = KillPolicy::new(RULES);
        let due_in = |term, kill| DueIn { term: Some(term), kill: Some(kill) };
        assert_eq!(kill_policy.watcher_deadlines(secs(0), secs(30)), due_in(secs(25), ms(29_950)));
        assert_eq!(kill_policy.watcher_deadlines(secs(0), Duration::MAX), DueIn::default(), "a file lock has no lease");
        kill_policy.tick(secs(20), secs(10));
        assert_eq!(kill_policy.watcher_deadlines(secs(20), secs(10)), DueIn { term: None, kill: Some(ms(9_950)) });
        kill_policy.tick(secs(30), ms(90));
        assert_eq!(kill_policy.watcher_deadlines(secs(30), ms(90)), DueIn::default(), "KILL was sent");
        let warned = KillPolicy::new(Rules { on_lost: OnLost::Warn, max_hold: Some(secs(60)), ..RULES });
        assert_eq!(warned.watcher_deadlines(secs(0), secs(30)), due_in(secs(65), ms(70_050)));
    }

    #[test]
    fn an_action_of_the_watcher_is_not_repeated() {
        let mut kill_policy = KillPolicy::new(RULES);
        kill_policy.was_sent(secs(20), Signal::TERM);
        assert_eq!(kill_policy.tick(secs(20), secs(10)), None);
        assert_eq!(kill_policy.tick(secs(30), ms(100)), Some(Action::KillAfterGrace));
        let mut kill_policy = KillPolicy::new(RULES);
        kill_policy.was_sent(secs(30), Signal::KILL);
        assert_eq!(kill_policy.tick(secs(30), Duration::ZERO), None);
        assert_eq!(kill_policy.lost(secs(30), LossReason::Expired), None);
    }

    #[test]
    fn a_deleted_key_means_term_at_once_and_kill_after_the_grace() {
        let mut kill_policy = KillPolicy::new(RULES);
        let cause = Cause::Lost(LossReason::Deleted);
        assert_eq!(kill_policy.lost(secs(3), LossReason::Deleted), Some(Action::Terminate(cause)));
        assert_eq!(kill_policy.next_wakeup(secs(3), Duration::ZERO), Some(secs(5)));
        assert_eq!(
            kill_policy.tick(secs(8), Duration::ZERO),
            Some(Action::TerminateOthers),
            "descendants outside of the group"
        );
        assert_eq!(kill_policy.tick(secs(12), Duration::ZERO), None);
        assert_eq!(kill_policy.tick(secs(13), Duration::ZERO), Some(Action::KillAfterGrace));
    }

    #[test]
    fn after_the_end_of_the_lease_only_kill_is_sent() {
        let mut kill_policy = KillPolicy::new(RULES);
        let cause = Cause::Lost(LossReason::Expired);
        assert_eq!(kill_policy.lost(secs(60), LossReason::Expired), Some(Action::Kill(cause)));
        let mut kill_policy = KillPolicy::new(RULES);
        kill_policy.tick(secs(20), secs(10));
        assert_eq!(kill_policy.lost(secs(30), LossReason::Expired), Some(Action::KillAfterGrace));
    }

    #[test]
    fn a_suspended_wrapper_waits_for_the_loss_reason() {
        let mut kill_policy = KillPolicy::new(RULES);
        assert_eq!(kill_policy.tick(secs(60), Duration::ZERO), None);
        assert_eq!(kill_policy.next_wakeup(secs(60), Duration::ZERO), Some(Duration::ZERO));
    }

    #[test]
    fn max_hold_terminates_the_command_regardless_of_the_lease() {
        let mut kill_policy = KillPolicy::new(Rules { max_hold: Some(secs(60)), ..RULES });
        assert_eq!(kill_policy.next_wakeup(secs(1), Duration::MAX), Some(secs(59)));
        assert_eq!(kill_policy.tick(secs(60), Duration::MAX), Some(Action::Terminate(Cause::MaxHold(secs(60)))));
        assert_eq!(kill_policy.tick(secs(70), Duration::MAX), Some(Action::KillAfterGrace));
    }

    #[test]
    fn a_lease_that_ends_within_the_grace_brings_kill_forward() {
        let mut kill_policy = KillPolicy::new(Rules { max_hold: Some(secs(60)), ..RULES });
        kill_policy.tick(secs(60), secs(12));
        kill_policy.tick(secs(65), secs(7));
        assert_eq!(kill_policy.next_wakeup(secs(67), secs(5)), Some(secs(3)));
        assert_eq!(kill_policy.next_wakeup(secs(68), secs(1)), Some(ms(900)));
        assert_eq!(kill_policy.tick(secs(69), ms(100)), Some(Action::KillAfterGrace));
    }

    #[test]
    fn on_lost_warn_keeps_the_command_running() {
        let mut kill_policy = KillPolicy::new(Rules { on_lost: OnLost::Warn, ..RULES });
        assert_eq!(kill_policy.tick(secs(29), secs(1)), None);
        assert_eq!(kill_policy.next_wakeup(secs(29), secs(1)), None);
        let cause = Cause::Lost(LossReason::Expired);
        assert_eq!(kill_policy.lost(secs(30), LossReason::Expired), Some(Action::Warn(cause)));
    }

    #[test]
    fn a_second_int_or_term_kills_and_a_copy_within_a_second_is_no_second_one() {
        for (second, at) in [(Signal::TERM, secs(6)), (Signal::TERM, secs(60)), (Signal::INT, secs(5))] {
            let mut policy = KillPolicy::new(RULES);
            assert_eq!(policy.signal(secs(5), Signal::TERM), Some(Action::Forward(Signal::TERM)));
            assert_eq!([0, 1, 999].map(|late| policy.signal(secs(5) + ms(late), Signal::TERM)), [None, None, None]);
            assert_eq!(policy.signal(at, second), Some(Action::Kill(Cause::SignalledTwice)), "{second:?} {at:?}");
        }
    }

    #[test]
    fn other_signals_are_passed_on_as_often_as_they_come() {
        let mut policy = KillPolicy::new(RULES);
        for signal in [Signal::USR1, Signal::USR1, Signal::WINCH, Signal::HUP, Signal::HUP, Signal::QUIT] {
            assert_eq!(policy.signal(secs(1), signal), Some(Action::Forward(signal)));
        }
    }
}
