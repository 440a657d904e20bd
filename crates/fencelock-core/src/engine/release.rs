//! Decides which release is sent next. The caller passes the time and the jitter.

use super::claim::STRAGGLER;
use crate::{HolderId, Key, Moment, Release, Unknown, jitter};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Maximum concurrent requests of one lane: more would only wait in the queue of the connection.
const AT_ONCE: usize = 64;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a key that was handed to a cancelled attempt is still handed on immediately.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Releases in the background, until they are confirmed.
///
/// Each kind has its own lane, so the release of a hold, which other clients may wait for, never waits behind cancelled
/// attempts. A later request (a retry, or the second release of a late claim) waits for its time outside the lanes.
#[derive(Debug, Clone, Default, Hash)]
pub struct ReleaseQueue {
    numbers: u64,
    pending: BTreeMap<u64, Pending>,
    holds: Lane,
    attempts: Lane,
    later: BTreeSet<(Moment, u64)>,
    /// The number of entries in `pending` that were never confirmed.
    unconfirmed: usize,
    /// The holders of cancelled attempts, and until when they are remembered: the backend may hand them the key later.
    abandoned: BTreeMap<HolderId, Moment>,
}

#[derive(Debug, Clone, Default, Hash)]
struct Lane {
    ready: VecDeque<u64>,
    /// The number of requests in flight.
    sent: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    Holds,
    Attempts,
}

/// A hold or a queue position to release.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PendingRelease {
    /// The key.
    pub key: Key,
    /// Its holder.
    pub holder: HolderId,
    /// When it expires by itself.
    pub until: Moment,
    /// Until this time a request of this holder may still arrive after the release.
    pub stray_until: Moment,
    /// Whether it holds the key, rather than only a queue position, so other clients may wait for the release.
    pub is_hold: bool,
}

#[derive(Debug, Clone, Hash)]
struct Pending {
    release: PendingRelease,
    pause: Duration,
    confirmed: bool,
    /// The lane of the request in flight.
    sent: Option<Way>,
}

impl Pending {
    /// A second release is a precaution, so it uses the lane of cancelled attempts.
    const fn way(&self) -> Way {
        if self.release.is_hold && !self.confirmed { Way::Holds } else { Way::Attempts }
    }
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The backend has executed a release that was sent at this moment.
    Confirmed(Moment),
    /// The result is unknown.
    Failed,
    /// A retry would fail too.
    GivenUp,
}

impl ReleaseOutcome {
    /// The outcome of a request that was sent at `sent` and answered, or given up, at `now`.
    pub fn of(release: &PendingRelease, sent: Moment, answer: &Result<Release, Unknown>, now: Moment) -> Self {
        match answer {
            Ok(_) => Self::Confirmed(sent),
            // A hold is worth more: a refusal, for example of rights that are being changed, may end before the lease does.
            Err(cause) if cause.is_permanent() && !release.is_hold || now >= release.until => Self::GivenUp,
            Err(_) => Self::Failed,
        }
    }
}

impl ReleaseQueue {
    /// Adds a release, which is sent as soon as its lane has capacity.
    pub fn push(&mut self, release: PendingRelease, now: Moment) {
        if now < release.stray_until {
            // The table is scanned when its size reaches a power of two, so that many cancellations cost little each.
            if self.abandoned.len().is_power_of_two() {
                self.abandoned.retain(|_, until| now < *until);
            }
            self.abandoned.insert(release.holder, now + REMEMBERED);
        }
        self.add(release);
    }

    /// The key was handed to a holder that does not wait here. If its attempt was cancelled, the key is handed on. Returns whether it is.
    pub fn undelivered(&mut self, key: &Key, holder: HolderId, now: Moment) -> bool {
        let is_ours = self.abandoned.contains_key(&holder);
        if is_ours {
            let (until, stray_until) = (now + STRAGGLER, Moment::default());
            self.add(PendingRelease { key: key.clone(), holder, until, stray_until, is_hold: true });
        }
        is_ours
    }

    /// The holders of cancelled attempts that are remembered.
    pub fn abandoned(&self) -> impl ExactSizeIterator<Item = &HolderId> {
        self.abandoned.keys()
    }

    fn add(&mut self, release: PendingRelease) {
        let number = self.numbers;
        self.numbers += 1;
        self.unconfirmed += 1;
        self.pending.insert(number, Pending { release, pause: FIRST_PAUSE, confirmed: false, sent: None });
        self.make_ready(number);
    }

    /// The releases to send now.
    pub fn next(&mut self, now: Moment) -> Vec<(u64, PendingRelease)> {
        while let Some(&(due, number)) = self.later.first().filter(|(due, _)| *due <= now) {
            self.later.remove(&(due, number));
            self.make_ready(number);
        }
        let mut batch = Vec::new();
        for (way, lane) in [(Way::Holds, &mut self.holds), (Way::Attempts, &mut self.attempts)] {
            while lane.sent < AT_ONCE {
                let Some(number) = lane.ready.pop_front() else { break };
                let Some(pending) = self.pending.get_mut(&number) else { continue };
                pending.sent = Some(way);
                lane.sent += 1;
                batch.push((number, pending.release.clone()));
            }
        }
        batch
    }

    /// When [`ReleaseQueue::next`] must be called again without a reply.
    pub fn due(&self) -> Option<Moment> {
        self.later.first().map(|(due, _)| *due)
    }

    /// Handles a reply. The reply to a request that was sent again does not count.
    pub fn answered(&mut self, number: u64, outcome: ReleaseOutcome, now: Moment, random: u64) {
        let Some(sent) = self.pending.get_mut(&number).map(|pending| pending.sent.take()) else { return };
        match sent {
            Some(way) => self.lane(way).sent -= 1,
            None if outcome == ReleaseOutcome::Failed => return,
            None => {}
        }
        let Some(mut pending) = self.pending.remove(&number) else { return };
        let again = match outcome {
            ReleaseOutcome::Confirmed(sent) => {
                self.confirm(&mut pending);
                Some(pending.release.stray_until).filter(|until| sent < *until)
            }
            ReleaseOutcome::Failed => {
                let pause = jitter(pending.pause, random);
                pending.pause = (pending.pause * 2).min(LONGEST_PAUSE);
                Some(now + pause)
            }
            ReleaseOutcome::GivenUp => {
                self.confirm(&mut pending);
                None
            }
        };
        if let Some(due) = again {
            self.later.insert((due, number));
            self.pending.insert(number, pending);
        }
    }

    /// The sender has stopped, and its replies are lost: all requests are sent again, and retries are due immediately.
    pub fn recall(&mut self) {
        let later = std::mem::take(&mut self.later);
        let (retries, second): (Vec<_>, Vec<_>) =
            later.into_iter().partition(|(_, number)| self.pending.get(number).is_some_and(|one| !one.confirmed));
        self.later.extend(second);
        let sent = self.pending.iter_mut().filter_map(|(number, one)| one.sent.take().map(|_| *number));
        let again: Vec<_> = sent.chain(retries.into_iter().map(|(_, number)| number)).collect();
        (self.holds.sent, self.attempts.sent) = (0, 0);
        for number in again {
            self.make_ready(number);
        }
    }

    /// Drops all releases: the leases expire by themselves.
    pub fn clear(&mut self) -> usize {
        let left = self.pending.len();
        let (numbers, abandoned) = (self.numbers, std::mem::take(&mut self.abandoned));
        *self = Self { numbers, abandoned, ..Self::default() };
        left
    }

    /// The number of releases that are not complete.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The number of releases that were never confirmed.
    pub const fn unconfirmed(&self) -> usize {
        self.unconfirmed
    }

    fn confirm(&mut self, pending: &mut Pending) {
        if !std::mem::replace(&mut pending.confirmed, true) {
            self.unconfirmed -= 1;
        }
    }

    fn make_ready(&mut self, number: u64) {
        if let Some(way) = self.pending.get(&number).map(Pending::way) {
            self.lane(way).ready.push_back(number);
        }
    }

    const fn lane(&mut self, way: Way) -> &mut Lane {
        match way {
            Way::Holds => &mut self.holds,
            Way::Attempts => &mut self.attempts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    const LATE: Moment = Moment::NEVER;

    const fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    fn release(holder: u8, is_hold: bool, stray_until: Moment) -> PendingRelease {
        let (key, holder) = (Key::new("k").unwrap(), HolderId::from_bytes([holder; 16]));
        PendingRelease { key, holder, until: LATE, stray_until, is_hold }
    }

    fn hold(holder: u8) -> PendingRelease {
        release(holder, true, Moment::default())
    }

    fn sent(queue: &mut ReleaseQueue, now: Moment) -> Vec<u64> {
        queue.next(now).into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_hold_goes_before_any_number_of_cancelled_attempts() {
        let mut queue = ReleaseQueue::default();
        for _ in 0..5000 {
            queue.push(release(1, false, at(1000)), at(0));
        }
        assert_eq!(sent(&mut queue, at(0)).len(), AT_ONCE);
        queue.push(hold(2), at(0));
        assert_eq!(sent(&mut queue, at(0)), [5000], "though no answer has come");
    }

    #[test]
    fn stragglers_wait_for_their_time_without_a_slot_in_a_lane() {
        let mut queue = ReleaseQueue::default();
        for _ in 0..1000 {
            queue.push(release(1, false, at(1000)), at(0));
        }
        let mut batches = 0;
        loop {
            let batch = sent(&mut queue, at(5));
            if batch.is_empty() {
                break;
            }
            batches += 1;
            for number in batch {
                queue.answered(number, ReleaseOutcome::Confirmed(at(5)), at(6), 0);
            }
        }
        assert_eq!((batches, queue.unconfirmed(), queue.pending()), (16, 0, 1000));
        assert_eq!((queue.due(), sent(&mut queue, at(999))), (Some(at(1000)), vec![]));
        assert_eq!(sent(&mut queue, at(1000)).len(), AT_ONCE);
    }

    #[test]
    fn a_release_sent_after_the_last_straggler_is_the_last() {
        for (when, pending) in [(at(999), 1), (at(1000), 0)] {
            let mut queue = ReleaseQueue::default();
            queue.push(release(1, true, at(1000)), at(0));
            let number = sent(&mut queue, when)[0];
            queue.answered(number, ReleaseOutcome::Confirmed(when), at(2000), 0);
            assert_eq!((queue.unconfirmed(), queue.pending()), (0, pending), "sent at {when:?}");
        }
    }

    #[test]
    fn a_failed_release_is_retried_with_backoff_and_does_not_block_others() {
        let mut queue = ReleaseQueue::default();
        (0..=AT_ONCE).for_each(|_| queue.push(hold(1), at(0)));
        let first = sent(&mut queue, at(0))[0];
        queue.answered(first, ReleaseOutcome::Failed, at(10), u64::MAX / 2);
        assert_eq!(sent(&mut queue, at(10)), [AT_ONCE as u64], "another takes its place");
        let mut now = queue.due().unwrap();
        let mut pauses = vec![now.since(at(10))];
        for number in sent(&mut queue, at(10)) {
            queue.answered(number, ReleaseOutcome::Confirmed(at(10)), at(10), 0);
        }
        queue.answered(1, ReleaseOutcome::Confirmed(at(10)), at(10), 0);
        for _ in 0..10 {
            assert_eq!(sent(&mut queue, now), [first]);
            queue.answered(first, ReleaseOutcome::Failed, now, u64::MAX / 2);
            pauses.push(queue.due().unwrap().since(now));
            now = queue.due().unwrap();
        }
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE * 2), "{pauses:?}");
        assert!(pauses[3] > pauses[0] * 4, "{pauses:?}");
    }

    #[test]
    fn a_release_given_up_is_not_pending_any_more() {
        let mut queue = ReleaseQueue::default();
        queue.push(release(1, true, at(1000)), at(0));
        let number = sent(&mut queue, at(0))[0];
        queue.answered(number, ReleaseOutcome::GivenUp, at(1), 0);
        assert_eq!((queue.unconfirmed(), queue.pending(), queue.due()), (0, 0, None));
    }

    #[test]
    fn what_was_sent_or_failed_is_sent_again_at_once_after_a_recall_and_stragglers_keep_their_time() {
        let mut queue = ReleaseQueue::default();
        for stray_until in [at(0), at(0), at(1000)] {
            queue.push(release(1, true, stray_until), at(0));
        }
        assert_eq!(sent(&mut queue, at(0)), [0, 1, 2]);
        queue.answered(1, ReleaseOutcome::Failed, at(0), 0);
        queue.answered(2, ReleaseOutcome::Confirmed(at(0)), at(0), 0);
        queue.recall();
        assert_eq!(sent(&mut queue, at(0)), [0, 1]);
        for number in [0, 1] {
            queue.answered(number, ReleaseOutcome::Confirmed(at(0)), at(1), 0);
            queue.answered(number, ReleaseOutcome::Failed, at(1), 0);
        }
        assert_eq!((queue.unconfirmed(), queue.due()), (0, Some(at(1000))), "the late answers changed nothing");
        assert_eq!(sent(&mut queue, at(1000)), [2]);
    }

    #[test]
    fn a_refusal_ends_the_release_of_an_attempt_and_only_the_end_of_its_lease_that_of_a_hold() {
        let refused = Err(Unknown::new("", Fault::Denied, ""));
        let outcome = |is_hold, now| {
            let release = PendingRelease { until: at(50), ..release(1, is_hold, at(0)) };
            ReleaseOutcome::of(&release, at(0), &refused, now)
        };
        assert_eq!((outcome(false, at(1)), outcome(true, at(1))), (ReleaseOutcome::GivenUp, ReleaseOutcome::Failed));
        assert_eq!(outcome(true, at(50)), ReleaseOutcome::GivenUp);
    }

    #[test]
    fn a_key_that_is_handed_to_a_cancelled_attempt_is_released_and_others_are_not() {
        let mut queue = ReleaseQueue::default();
        queue.push(release(1, false, at(1000)), at(0));
        assert_eq!(sent(&mut queue, at(0)), [0]);
        let (key, [ours, other]) = (Key::new("k").unwrap(), [1, 2].map(|id| HolderId::from_bytes([id; 16])));
        assert!(!queue.undelivered(&key, other, at(5)) && queue.undelivered(&key, ours, at(5)));
        assert_eq!(sent(&mut queue, at(5)), [1]);
    }
}
