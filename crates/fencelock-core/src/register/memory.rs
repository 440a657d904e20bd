use super::{Expect, Hold, Reading, Record, Stored, Version};
use crate::time::micros;
use crate::{Drift, HolderId, Moment};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The clocks of a store and of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreTiming {
    /// How far the clock of a client may drift from that of the store during a lease.
    pub drift: Drift,
    /// How far the clocks of two front ends of the store are apart at most.
    pub skew: Duration,
    /// The unit of the times that the store tells: HTTP has seconds.
    pub resolution: Duration,
}

impl Default for StoreTiming {
    /// Of a store that tells its times in headers of HTTP, with 2 s for the skew of its front ends.
    fn default() -> Self {
        Self { drift: Drift::default(), skew: Duration::from_secs(2), resolution: Duration::from_secs(1) }
    }
}

/// The clock of a store, as a client knows it from the answers. All its calls share one.
#[derive(Debug, Clone, Hash)]
pub struct StoreClock {
    timing: StoreTiming,
    time: Option<StoreTime>,
}

/// A lower bound of the time of the store.
#[derive(Debug, Clone, Copy)]
struct StoreTime {
    /// In microseconds since 1970.
    told: u64,
    received: Moment,
}

/// If clocks do not drift, as in the searches, only the difference matters.
impl Hash for StoreTime {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.told.wrapping_sub(self.received.as_micros()).hash(hasher);
    }
}

/// What a client remembers of one register. All its calls on the key share it.
///
/// No claim needs it: a new process begins with an empty one. But a claim that was not answered is known here alone, so its release
/// needs the memory of the claim.
#[derive(Debug, Clone, Default, Hash)]
pub struct Remembered {
    /// The latest own write that was answered. Only a write rests on it, which the store refuses if it is outdated.
    pub(super) known: Option<LastWrite>,
    /// The version of the latest read that showed a hold, and when the first read of it was received.
    seen: Option<(Version, Moment)>,
    /// Versions whose hold was proved to be over. It stays proved, although another front end may tell an earlier time: a claim that
    /// was sent on it may still be executed.
    over: Vec<Version>,
    /// What the claims of each holder expect that may still be executed.
    in_flight: Vec<(HolderId, Expect)>,
}

/// A record that this client has written.
#[derive(Debug, Clone, Hash)]
pub(super) struct LastWrite {
    pub(super) version: Version,
    pub(super) record: Record,
    pub(super) sent: Moment,
}

/// For how long a hold is not over, unless it is proved otherwise earlier; `None` if it is over.
pub(super) type Life = Option<Duration>;

impl StoreClock {
    /// Nothing was heard yet.
    pub const fn new(timing: StoreTiming) -> Self {
        Self { timing, time: None }
    }

    /// The store has told this time in an answer that is received now.
    pub fn hear(&mut self, date: Option<u64>, now: Moment) {
        if let Some(told) = date.filter(|date| self.time(now).is_none_or(|known| *date > known)) {
            self.time = Some(StoreTime { told, received: now });
        }
    }

    /// A time in microseconds since 1970 that the clock of the store has reached, at one of its front ends at least; `None` if it has
    /// not told any.
    pub fn time(&self, now: Moment) -> Option<u64> {
        let StoreTime { told, received } = self.time?;
        let since = now.since(received);
        let slow = Drift { fixed: Duration::ZERO, ..self.timing.drift }.of(since);
        Some(told.saturating_add(micros(since.saturating_sub(slow))))
    }

    /// A time that the store had not reached when it told the latest one: greater than the tokens of a deleted record.
    pub(super) fn next_time(&self, now: Moment) -> u64 {
        let unit = micros(self.timing.resolution).max(1);
        self.time(now).map_or(0, |time| (time / unit + 1).saturating_mul(unit))
    }
}

impl Remembered {
    /// Whether it can be forgotten: that costs a read, or a wait.
    pub const fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// What this client has written last, unless the lease of its hold has ended by its clock.
    pub(super) fn recall(&self, now: Moment) -> Option<(Stored, Life)> {
        let LastWrite { version, record, sent } = self.known.as_ref()?;
        let life = record.hold.as_ref().map(|hold| hold.ttl.get());
        let has_lapsed = life.is_some_and(|ttl| now.since(*sent) >= ttl);
        (!has_lapsed).then(|| (Stored::Record(version.clone(), record.clone()), life))
    }

    /// Remembers a read that is received now. Returns whether its hold is over.
    pub(super) fn observe(&mut self, reading: &Reading, clock: &StoreClock, now: Moment) -> Life {
        let Stored::Record(version, Record { hold: Some(hold), .. }) = &reading.stored else { return None };
        if self.over.contains(version) {
            return None;
        }
        let received = match &self.seen {
            Some((seen, received)) if seen == version => *received,
            _ => now,
        };
        self.seen = Some((version.clone(), received));
        let life = clock.timing.life(hold, now.since(received), clock.time(now), reading.modified);
        if life.is_none() {
            self.forget_proofs();
            self.over.push(version.clone());
        }
        life
    }

    /// A claim that expects this is sent.
    pub(super) fn send_claim(&mut self, holder: HolderId, expect: &Expect) {
        if !self.may_arrive(holder, expect) {
            self.in_flight.push((holder, expect.clone()));
        }
    }

    /// Whether a claim of this holder that was not answered may still be executed on this.
    pub(super) fn may_arrive(&self, holder: HolderId, on: &Expect) -> bool {
        self.in_flight.iter().any(|(claimed, expect)| *claimed == holder && expect == on)
    }

    /// No claim of this holder that was sent so far can still be executed: what each expects has been replaced, and no version comes
    /// back.
    pub(super) fn forget_claims(&mut self, holder: HolderId) {
        self.in_flight.retain(|(claimed, _)| *claimed != holder);
    }

    /// An own write was executed: nothing that was there before is.
    pub(super) fn write(&mut self, known: LastWrite) {
        (self.known, self.seen) = (Some(known), None);
        self.forget_proofs();
    }

    /// Forgets the proofs that no claim in flight depends on.
    fn forget_proofs(&mut self) {
        let in_flight = &self.in_flight;
        self.over.retain(|over| in_flight.iter().any(|(_, expect)| expect.as_ref() == Some(over)));
    }
}

impl StoreTiming {
    /// Two rules, each of which suffices. By observation: the version is the same as in a read that was received `observed` ago, so it was
    /// written before that. By the clock of the store: it was written at `modified`, and both times are cut off.
    fn life(self, hold: &Hold, observed: Duration, time: Option<u64>, modified: Option<u64>) -> Life {
        let ttl = hold.ttl.get();
        let by_observation = (ttl + self.drift.of(ttl)).saturating_sub(observed);
        let by_clock = time.zip(modified).map(|(time, modified)| {
            let end = modified.saturating_add(micros(ttl + self.resolution + self.skew));
            Duration::from_micros(end.saturating_sub(time))
        });
        let left = by_clock.map_or(by_observation, |by_clock| by_clock.min(by_observation));
        (!left.is_zero()).then(|| left.min(ttl))
    }
}
