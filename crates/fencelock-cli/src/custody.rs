//! When a command has to end, and how: the decisions of `run`. They read no clock and send no signal.

use crate::args::OnLost;
use crate::plan::Rules;
use crate::signals::asks_to_end;
use fencelock::{LossReason, Span};
use rustix::process::Signal;
use std::fmt;
use std::time::Duration;

/// The state of a command that runs under a lock. Times are counted from the acquisition.
#[derive(Debug)]
pub(crate) struct Custody {
    rules: Rules,
    /// Signals to end that were passed on, INT and TERM.
    requests: u32,
    /// The end has begun; KILL comes at this time.
    kill_at: Option<Duration>,
    /// TERM comes to those outside the command's group at this time.
    ask_others_at: Option<Duration>,
    /// A signal has asked for the end of all this.
    asked: bool,
    /// The lock is gone, so the end of the lease says nothing any more.
    lost: bool,
    /// KILL was sent.
    over: bool,
}

/// What is to be done to the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Pass a signal on.
    Pass(Signal),
    /// Send TERM to the command's group, for this reason; KILL follows.
    Terminate(Cause),
    /// The command has not ended, or not passed it on: send TERM to all others that it has started.
    AskOthers,
    /// Send KILL at once, for this reason.
    Kill(Cause),
    /// The grace is over: send KILL.
    Finish,
    /// Tell the user that the lock is lost, and let the command go on.
    Warn(Cause),
}

/// Why a command has to end although nobody asked it to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The lease ends soon, and no renewal was confirmed.
    Ending,
    /// The lock is lost.
    Lost(LossReason),
    /// The longest hold is over.
    MaxHold(Duration),
    /// It was asked twice by a signal.
    Asked,
    /// This process was stopped or too slow, and the guardian did what was due.
    Late,
    /// The guardian was killed, and the kernel has killed the command with it.
    Unguarded,
}

/// When the next steps are due if nothing else happens, counted from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Steps {
    pub(crate) term: Option<Duration>,
    pub(crate) kill: Option<Duration>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ending => f.write_str("its lease is about to end and could not be renewed"),
            Self::Lost(reason) => reason.fmt(f),
            Self::MaxHold(max) => write!(f, "--max-hold {} is over", Span(*max)),
            Self::Asked => f.write_str("asked twice to end"),
            Self::Late => f.write_str("this process was stopped or too slow to act in time"),
            Self::Unguarded => f.write_str("the process that guards the command was killed"),
        }
    }
}

/// The command must be dead when the lease ends, not be killed then: a busy machine needs a moment for it.
const LATEST_KILL: Duration = Duration::from_millis(100);

impl Custody {
    pub(crate) const fn new(rules: Rules) -> Self {
        Self { rules, requests: 0, kill_at: None, ask_others_at: None, asked: false, lost: false, over: false }
    }

    /// A signal came to the wrapper.
    pub(crate) fn signal(&mut self, signal: Signal) -> Order {
        self.asked |= asks_to_end(signal);
        if signal == Signal::INT || signal == Signal::TERM {
            self.requests += 1;
        }
        if self.requests >= 2 && !self.over {
            self.over = true;
            return Order::Kill(Cause::Asked);
        }
        Order::Pass(signal)
    }

    /// The lock is lost.
    pub(crate) fn lost(&mut self, now: Duration, reason: LossReason) -> Option<Order> {
        self.lost = true;
        if self.over {
            return None;
        }
        if !self.ends_on_loss() {
            return Some(Order::Warn(Cause::Lost(reason)));
        }
        if reason == LossReason::Expired {
            // From here on somebody else may hold it. TERM was due long ago, so this process was stopped or slept.
            self.over = true;
            return Some(if self.kill_at.is_some() { Order::Finish } else { Order::Kill(Cause::Lost(reason)) });
        }
        self.terminate(now, Cause::Lost(reason))
    }

    /// Time has passed; the lease has `remaining`.
    pub(crate) fn tick(&mut self, now: Duration, remaining: Duration) -> Option<Order> {
        if self.over {
            return None;
        }
        if let Some(at) = self.kill_at {
            self.over = now >= at || self.minds_lease() && remaining <= self.latest_kill();
            if self.over {
                return Some(Order::Finish);
            }
            return self.ask_others_at.take_if(|at| now >= *at).map(|_| Order::AskOthers);
        }
        if let Some(max) = self.rules.max_hold
            && now >= max
        {
            return self.terminate(now, Cause::MaxHold(max));
        }
        // Nothing left is a loss, which comes with its reason.
        if self.minds_lease() && remaining <= self.rules.grace && !remaining.is_zero() {
            return self.terminate(now, Cause::Ending);
        }
        None
    }

    /// How long nothing is due, if nothing else happens; `None` for ever.
    pub(crate) fn nap(&self, now: Duration, remaining: Duration) -> Option<Duration> {
        let Steps { term, kill } = self.steps(now, remaining);
        let others = self.ask_others_at.map(|at| at.saturating_sub(now));
        term.or(others).into_iter().chain(kill).min()
    }

    /// When the guardian is to act in place of this process: late enough to leave it the turn, and in time for the lease.
    pub(crate) fn stand_in(&self, now: Duration, remaining: Duration) -> Steps {
        let Steps { term, kill } = self.steps(now, remaining);
        let later = |at: Option<Duration>, by| at.map(|at| at.saturating_add(by));
        Steps { term: later(term, self.rules.grace / 2), kill: later(kill, self.latest_kill() / 2) }
    }

    /// The guardian was first: it has sent this signal.
    pub(crate) fn stood_in(&mut self, now: Duration, signal: Signal) {
        self.kill_at.get_or_insert(now.saturating_add(self.rules.grace));
        self.over |= signal == Signal::KILL;
    }

    /// A signal has asked for the end, and the command has ended. What it has left behind has the grace to do so too.
    pub(crate) fn end_rest(&mut self, now: Duration) {
        self.kill_at.get_or_insert(now.saturating_add(self.rules.grace));
    }

    fn steps(&self, now: Duration, remaining: Duration) -> Steps {
        if self.over {
            return Steps::default();
        }
        let lease = (self.minds_lease() && remaining < Duration::MAX).then_some(remaining);
        let before_end = |reserve| lease.map(|lease: Duration| lease.saturating_sub(reserve));
        let latest = before_end(self.latest_kill());
        let earlier = |one: Option<Duration>, other: Option<Duration>| one.into_iter().chain(other).min();
        if let Some(at) = self.kill_at {
            return Steps { term: None, kill: earlier(Some(at.saturating_sub(now)), latest) };
        }
        let longest = self.rules.max_hold.map(|max| max.saturating_sub(now));
        let term = earlier(longest, before_end(self.rules.grace));
        Steps { term, kill: earlier(term.map(|term| term.saturating_add(self.rules.grace)), latest) }
    }

    /// Whether a command without its lock has to end.
    pub(crate) fn ends_on_loss(&self) -> bool {
        self.rules.on_lost == OnLost::Term
    }

    /// Whether the loss of the lock was told.
    pub(crate) const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether a signal has asked for the end of all this.
    pub(crate) const fn was_asked_to_end(&self) -> bool {
        self.asked
    }

    /// Whether KILL was sent, so that nothing more can be done.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    fn minds_lease(&self) -> bool {
        self.ends_on_loss() && !self.lost
    }

    fn latest_kill(&self) -> Duration {
        LATEST_KILL.min(self.rules.grace / 4)
    }

    fn terminate(&mut self, now: Duration, cause: Cause) -> Option<Order> {
        let begun = self.kill_at.is_some();
        if !begun {
            // A program that passes signals on, as `timeout` does, has its time to do so first.
            self.ask_others_at = Some(now.saturating_add(self.rules.grace / 2));
        }
        self.kill_at.get_or_insert(now.saturating_add(self.rules.grace));
        (!begun).then_some(Order::Terminate(cause))
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
    fn a_lease_that_is_renewed_in_time_disturbs_nobody() {
        let mut custody = Custody::new(RULES);
        assert_eq!(custody.tick(secs(0), secs(30)), None);
        assert_eq!(custody.nap(secs(0), secs(30)), Some(secs(20)));
        assert_eq!(custody.tick(secs(20), secs(25)), None);
    }

    #[test]
    fn an_endless_hold_never_wakes_anybody() {
        let mut custody = Custody::new(RULES);
        assert_eq!(custody.tick(secs(0), Duration::MAX), None);
        assert_eq!(custody.nap(secs(0), Duration::MAX), None);
    }

    #[test]
    fn kill_comes_before_the_lease_ends() {
        let mut custody = Custody::new(RULES);
        assert_eq!(custody.tick(secs(20), secs(10)), Some(Order::Terminate(Cause::Ending)));
        assert_eq!(custody.nap(secs(20), secs(10)), Some(secs(5)));
        assert_eq!(custody.tick(secs(25), secs(5)), Some(Order::AskOthers));
        assert_eq!(custody.nap(secs(25), secs(5)), Some(ms(4_900)));
        assert_eq!(custody.tick(ms(29_899), ms(101)), None);
        assert_eq!(custody.tick(ms(29_900), ms(100)), Some(Order::Finish));
        assert_eq!(custody.tick(ms(29_901), ms(99)), None, "once is enough");
    }

    #[test]
    fn a_renewal_after_term_does_not_call_it_back() {
        let mut custody = Custody::new(RULES);
        custody.tick(secs(20), secs(10));
        assert_eq!(custody.tick(secs(25), secs(28)), Some(Order::AskOthers));
        assert_eq!(custody.tick(secs(25), secs(28)), None);
        assert_eq!(custody.nap(secs(25), secs(28)), Some(secs(5)));
        assert_eq!(custody.tick(secs(30), secs(23)), Some(Order::Finish));
    }

    #[test]
    fn the_guardian_leaves_the_wrapper_its_turn_and_is_in_time_for_the_lease() {
        let mut custody = Custody::new(RULES);
        let steps = |term, kill| Steps { term: Some(term), kill: Some(kill) };
        assert_eq!(custody.stand_in(secs(0), secs(30)), steps(secs(25), ms(29_950)));
        assert_eq!(custody.stand_in(secs(0), Duration::MAX), Steps::default(), "nothing ends a file");
        custody.tick(secs(20), secs(10));
        assert_eq!(custody.stand_in(secs(20), secs(10)), Steps { term: None, kill: Some(ms(9_950)) });
        custody.tick(secs(30), ms(90));
        assert_eq!(custody.stand_in(secs(30), ms(90)), Steps::default(), "nothing is left to do");
        let warned = Custody::new(Rules { on_lost: OnLost::Warn, max_hold: Some(secs(60)), ..RULES });
        assert_eq!(warned.stand_in(secs(0), secs(30)), steps(secs(65), ms(70_050)));
    }

    #[test]
    fn what_the_guardian_did_is_not_done_again() {
        let mut custody = Custody::new(RULES);
        custody.stood_in(secs(20), Signal::TERM);
        assert_eq!(custody.tick(secs(20), secs(10)), None);
        assert_eq!(custody.tick(secs(30), ms(100)), Some(Order::Finish));
        let mut custody = Custody::new(RULES);
        custody.stood_in(secs(30), Signal::KILL);
        assert_eq!(custody.tick(secs(30), Duration::ZERO), None);
        assert_eq!(custody.lost(secs(30), LossReason::Expired), None);
    }

    #[test]
    fn a_deleted_key_means_term_at_once_and_kill_after_the_grace() {
        let mut custody = Custody::new(RULES);
        let cause = Cause::Lost(LossReason::Deleted);
        assert_eq!(custody.lost(secs(3), LossReason::Deleted), Some(Order::Terminate(cause)));
        assert_eq!(custody.nap(secs(3), Duration::ZERO), Some(secs(5)));
        assert_eq!(custody.tick(secs(8), Duration::ZERO), Some(Order::AskOthers), "also those outside its group");
        assert_eq!(custody.tick(secs(12), Duration::ZERO), None);
        assert_eq!(custody.tick(secs(13), Duration::ZERO), Some(Order::Finish));
    }

    #[test]
    fn past_the_end_of_the_lease_there_is_only_kill() {
        let mut custody = Custody::new(RULES);
        let cause = Cause::Lost(LossReason::Expired);
        assert_eq!(custody.lost(secs(60), LossReason::Expired), Some(Order::Kill(cause)));
        let mut custody = Custody::new(RULES);
        custody.tick(secs(20), secs(10));
        assert_eq!(custody.lost(secs(30), LossReason::Expired), Some(Order::Finish));
    }

    #[test]
    fn a_wrapper_that_slept_through_it_all_waits_for_the_reason() {
        let mut custody = Custody::new(RULES);
        assert_eq!(custody.tick(secs(60), Duration::ZERO), None);
        assert_eq!(custody.nap(secs(60), Duration::ZERO), Some(Duration::ZERO));
    }

    #[test]
    fn the_longest_hold_ends_the_command_whatever_the_lease_says() {
        let mut custody = Custody::new(Rules { max_hold: Some(secs(60)), ..RULES });
        assert_eq!(custody.nap(secs(1), Duration::MAX), Some(secs(59)));
        assert_eq!(custody.tick(secs(60), Duration::MAX), Some(Order::Terminate(Cause::MaxHold(secs(60)))));
        assert_eq!(custody.tick(secs(70), Duration::MAX), Some(Order::Finish));
    }

    #[test]
    fn a_lease_that_ends_within_the_grace_brings_kill_forward() {
        let mut custody = Custody::new(Rules { max_hold: Some(secs(60)), ..RULES });
        custody.tick(secs(60), secs(12));
        custody.tick(secs(65), secs(7));
        assert_eq!(custody.nap(secs(67), secs(5)), Some(secs(3)));
        assert_eq!(custody.nap(secs(68), secs(1)), Some(ms(900)));
        assert_eq!(custody.tick(secs(69), ms(100)), Some(Order::Finish));
    }

    #[test]
    fn a_warned_user_keeps_the_command() {
        let mut custody = Custody::new(Rules { on_lost: OnLost::Warn, ..RULES });
        assert_eq!(custody.tick(secs(29), secs(1)), None);
        assert_eq!(custody.nap(secs(29), secs(1)), None);
        let cause = Cause::Lost(LossReason::Expired);
        assert_eq!(custody.lost(secs(30), LossReason::Expired), Some(Order::Warn(cause)));
    }

    #[test]
    fn the_second_int_or_term_kills() {
        let mut custody = Custody::new(RULES);
        assert_eq!(custody.signal(Signal::INT), Order::Pass(Signal::INT));
        assert_eq!(custody.signal(Signal::HUP), Order::Pass(Signal::HUP));
        assert_eq!(custody.signal(Signal::TERM), Order::Kill(Cause::Asked));
    }

    #[test]
    fn other_signals_are_passed_on_as_often_as_they_come() {
        let mut custody = Custody::new(RULES);
        for signal in [Signal::USR1, Signal::USR1, Signal::WINCH, Signal::HUP, Signal::HUP, Signal::QUIT] {
            assert_eq!(custody.signal(signal), Order::Pass(signal));
        }
    }
}
