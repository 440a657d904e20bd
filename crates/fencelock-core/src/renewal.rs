use crate::{Drift, Holders, Lease, Liveness, Moment, Ttl, jitter};
use std::fmt;
use std::time::Duration;

/// Why a hold ended without a release.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ended before a renewal was confirmed: the servers were unreachable, or this process was paused.
    Expired,
    /// The key disappeared before its expiry: it was deleted, or the server lost its data.
    Deleted,
    /// Another client holds the key.
    TakenBy(Holders),
    /// The longest hold that its owner allowed is over.
    MaxHold,
    /// This process is a forked child of the holder. Whether the parent still holds the lock is unknown.
    Forked,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("its lease ran out before it could be renewed"),
            Self::Deleted => f.write_str("nobody holds it now: it was broken, deleted, or lost by the server"),
            Self::TakenBy(holders) => write!(f, "it is held by {holders} now"),
            Self::MaxHold => f.write_str("the longest hold allowed is over"),
            Self::Forked => f.write_str("it is held by the process that this one was forked from"),
        }
    }
}

/// The next step for a lease. Exhaustive: its holder must act on each, so a new one must break its build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing before this time.
    At(Moment),
    /// A renewal, immediately.
    Renew,
    /// The hold is over, because the lease has ended.
    Lapsed,
    /// The hold is over, because the longest hold has been reached.
    MaxHold,
}

impl Liveness {
    /// A lease with this TTL that was renewed so long ago.
    pub fn of_lease(ago: Duration, ttl: Duration) -> Self {
        Self::Renewed { ago, every: Some(RenewalPlan::interval(ttl)) }
    }
}

/// Decides for one lease when to renew, and when it is lost.
///
/// A lease is renewed after a third of its TTL. A renewal that fails, or is not answered within [`RenewalPlan::answer_limit`],
/// is repeated soon, until the lease would have ended.
///
/// An outage of two fifths of the TTL, minus 3 ms, loses no lease, whenever it starts. The worst one starts just before a
/// renewal, after a third of the TTL, and ends just after another was sent, whose reply is lost.
#[derive(Debug, Clone, Hash)]
pub struct RenewalPlan {
    lease: Lease,
    ttl: Ttl,
    next: Moment,
    ends: Moment,
    /// The lease has been renewed before, so the next renewal may be sent together with others.
    seasoned: bool,
}

impl RenewalPlan {
    /// `first` is the time of the first renewal; a lease from a hand-off has only its claim TTL and needs one soon.
    /// At `ends` the hold is over even if it could be renewed.
    pub fn new(lease: Lease, ttl: Ttl, first: Moment, ends: Moment) -> Self {
        Self { lease, ttl, next: first, ends, seasoned: false }
    }

    /// The TTL of every renewal.
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// How long after a renewal the next one is sent.
    pub fn interval(ttl: Duration) -> Duration {
        ttl / 3
    }

    /// The timeout of a renewal. A server that takes longer cannot keep a lease with this TTL.
    pub fn answer_limit(ttl: Duration) -> Duration {
        ttl / 5
    }

    /// Until when the holder may assume the hold: the end of the lease, or of the longest hold if that comes first.
    pub fn until(&self) -> Moment {
        self.lease.until().min(self.ends)
    }

    /// The remaining lease that the holder may assume, as counted by a server whose clock is fast within the drift: no
    /// renewal may shorten the lease below that.
    pub fn assumed(&self, drift: Drift, now: Moment) -> Duration {
        let rest = self.lease.remaining(now);
        rest.saturating_add(drift.of(rest))
    }

    /// The remaining lease at `now` if no renewal succeeds, without the limit of the longest hold.
    pub fn rest(&self, now: Moment) -> Duration {
        self.lease.remaining(now)
    }

    /// The lease passes to another task, whose longest hold ends at `ends`.
    pub const fn hand_on(&mut self, ends: Moment) {
        self.ends = ends;
    }

    /// The next step at `now`.
    pub fn due(&self, now: Moment) -> Due {
        if now >= self.ends {
            Due::MaxHold
        } else if self.lease.lapsed(now) {
            Due::Lapsed
        } else if now >= self.next {
            Due::Renew
        } else {
            Due::At(self.next.min(self.until()))
        }
    }

    /// Like [`RenewalPlan::due`], together with renewals of other leases: a renewal that is due within `ahead` is sent
    /// early, but at most by a thirtieth of the TTL. The first renewal is never sent early: most holds end
    /// before it.
    pub fn due_with_others(&self, now: Moment, ahead: Duration) -> Due {
        match self.due(now) {
            Due::At(_) if self.seasoned && self.next <= now + ahead.min(self.ttl.get() / 30) => Due::Renew,
            due => due,
        }
    }

    /// A renewal sent at `sent` was confirmed at `now`. `Err` if the lease had ended by then: it stays lost.
    pub fn renewed(&mut self, sent: Moment, drift: Drift, now: Moment, random: u64) -> Result<(), LossReason> {
        self.lease = self.lease.renewed(sent, self.ttl.get(), drift, now).ok_or(LossReason::Expired)?;
        self.next = sent + jitter(Self::interval(self.ttl.get()), random);
        self.seasoned = true;
        Ok(())
    }

    /// A renewal failed with an unknown result: it is repeated soon.
    pub fn failed(&mut self, now: Moment, random: u64) {
        // A sixtieth of the TTL allows some forty attempts in the remaining two thirds, and 1 s bounds the wait after
        // the end of an outage. Timers have a resolution of 1 ms.
        let pause = (self.ttl.get() / 60).clamp(Duration::from_millis(1), Duration::from_secs(1));
        self.next = now + jitter(pause, random);
    }

    /// An event reports a change of the key: renew immediately.
    pub fn expedite(&mut self, now: Moment) {
        self.next = self.next.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000;

    fn at(ms: u64) -> Moment {
        Moment::from_micros(ms * MS)
    }

    fn plan() -> RenewalPlan {
        let ttl = Ttl::new(Duration::from_secs(3)).unwrap();
        let lease = Lease::granted(at(0), ttl.get(), Drift::default());
        RenewalPlan::new(lease, ttl, at(1000), Moment::NEVER)
    }

    #[test]
    fn nothing_is_due_before_a_third_of_the_ttl() {
        assert_eq!(plan().due(at(999)), Due::At(at(1000)));
        assert_eq!(plan().due(at(1000)), Due::Renew);
    }

    #[test]
    fn a_renewal_joins_a_batch_only_after_the_first_and_only_slightly_early() {
        let (ahead, soon) = (Duration::from_secs(1), Duration::from_millis(20));
        let mut plan = plan();
        assert_eq!(plan.due_with_others(at(999), ahead), Due::At(at(1000)), "the first renewal");
        assert_eq!(plan.due_with_others(at(1000), Duration::ZERO), Due::Renew);
        plan.renewed(at(1000), Drift::default(), at(1001), u64::MAX / 2).unwrap();
        let Due::At(next) = plan.due(at(1001)) else { panic!("it is fresh") };
        let before = |ms: u64| Moment::from_micros(next.as_micros() - ms * MS);
        assert_eq!(plan.due_with_others(before(20), soon), Due::Renew);
        assert_eq!(plan.due_with_others(before(21), soon), Due::At(next));
        assert_eq!(plan.due_with_others(before(101), ahead), Due::At(next), "a thirtieth of 3 s");
        assert_eq!(plan.due_with_others(at(3968), ahead), Due::Lapsed, "what is over is over");
    }

    #[test]
    fn a_lease_that_is_handed_on_has_the_longest_hold_of_its_new_task() {
        let mut plan = plan();
        plan.hand_on(at(500));
        assert_eq!((plan.until(), plan.rest(at(0))), (at(500), Duration::from_millis(2968)));
        plan.hand_on(Moment::NEVER);
        assert_eq!(plan.until(), at(2968));
    }

    /// The minimum remaining lease when a renewal was confirmed, if the backend is unavailable from `begin` for `length`.
    /// The first `quick` renewals in that time fail immediately, the others by their timeout. `None` if the lease was lost.
    fn least_left(ttl: Duration, begin: Duration, length: Duration, quick: u32, random: u64) -> Option<Duration> {
        let (start, drift) = (at(1), Drift::default());
        let first = start + jitter(ttl / 3, random);
        let ttl = Ttl::new(ttl).unwrap();
        let mut plan = RenewalPlan::new(Lease::granted(start, ttl.get(), drift), ttl, first, Moment::NEVER);
        let (begin, end) = (start + begin, start + begin + length);
        let (mut now, mut failed) = (start, 0);
        loop {
            match plan.due(now) {
                Due::At(next) => now = next,
                Due::Renew if begin <= now && now < end => {
                    failed += 1;
                    now = if failed > quick { now + RenewalPlan::answer_limit(ttl.get()) } else { now };
                    plan.failed(now, random);
                }
                Due::Renew if now >= end => return Some(plan.rest(now)),
                Due::Renew => plan.renewed(now, drift, now, random).unwrap(),
                Due::Lapsed | Due::MaxHold => return None,
            }
        }
    }

    /// Tries outages that start at any time within a lease and its renewal, and fail in many ways.
    fn worst(ttl: Duration, length: Duration) -> Option<Duration> {
        let phases = (0..=60).map(|part| ttl / 90 * part).chain([ttl / 3, ttl / 3 * 2]);
        let ways = (0..50).flat_map(|quick| [0, 1 << 40, u64::MAX / 2].map(|random| (quick, random)));
        let cases = phases.flat_map(|begin| ways.clone().map(move |way| (begin, way)));
        cases.map(|(begin, (quick, random))| least_left(ttl, begin, length, quick, random)).min().flatten()
    }

    #[test]
    fn an_outage_of_two_fifths_of_the_ttl_costs_nothing_whenever_it_begins() {
        let margin = Duration::from_millis(3);
        for ms in [10, 11, 15, 20, 50, 100, 300, 1000, 3000, 10_000, 30_000, 60_000, 600_000, 86_400_000] {
            let ttl = Duration::from_millis(ms);
            let length = (ttl * 2 / 5).saturating_sub(margin);
            assert!(worst(ttl, length).is_some(), "{ttl:?}");
            // Half of the TTL is too long at least for short leases, so this can fail.
            assert!(ms > 1000 || worst(ttl, ttl / 2).is_none(), "{ttl:?}");
        }
    }

    proptest! {
        #[test]
        fn a_lost_lease_stays_lost(steps in prop::collection::vec((0u64..2000, any::<bool>(), any::<u64>()), 1..40)) {
            let mut plan = plan();
            let mut now = at(0);
            let mut lost = false;
            for (wait, confirmed, random) in steps {
                let sent = now;
                now = now + Duration::from_millis(wait);
                lost |= plan.due(now) == Due::Lapsed;
                if confirmed { let _ = plan.renewed(sent, Drift::default(), now, random); } else { plan.failed(now, random); }
                prop_assert!(!lost || plan.due(now) == Due::Lapsed);
            }
        }
    }
}
