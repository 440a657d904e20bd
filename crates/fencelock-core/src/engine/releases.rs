//! The releases of a client in the background: which is sent next, who sends it, and how long the end of the client waits.

use super::LONGEST_SLEEP;
use crate::{HolderId, Key, Moment, Release, Unknown, jitter};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// After this time a request that was in flight when its task gave up has arrived, or its connection is closed.
pub const STRAGGLER: Duration = Duration::from_secs(1);
/// Maximum concurrent requests of one lane: more would only wait in the queue of the connection.
const AT_ONCE: usize = 64;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a key that was handed to a cancelled attempt is still handed on immediately.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The releases of a client in the background, until they are confirmed, and who sends them: one worker at a time is in charge.
///
/// Each kind has its own lane, so the release of a hold, which other clients may wait for, never waits behind cancelled
/// attempts. A later request (a retry, or the second release of a late claim) waits for its time outside the lanes.
///
/// The first worker is a task on the runtime of the client, which ends when the client is closed and nothing is left. When that runtime or
/// the program ends, no reply arrives there any more: a thread sends again what was in flight. It ends when nothing is left, and the next
/// release needs another one.
///
/// It has no lock and wakes nobody. A driver does that, with the time and the jitter.
#[derive(Debug, Clone, Default, Hash)]
pub struct Releases {
    numbers: u64,
    pending: BTreeMap<u64, Pending>,
    /// Of holds, and of cancelled attempts.
    lanes: [Lane; 2],
    later: BTreeSet<(Moment, u64)>,
    /// The number of entries in `pending` that were never confirmed.
    unconfirmed: usize,
    /// The holders of cancelled attempts, and until when they are remembered: the backend may hand them the key later.
    abandoned: BTreeMap<HolderId, Moment>,
    /// The latest worker, which is in charge unless it has ended.
    latest: Worker,
    has_ended: bool,
    /// The client and its guards are dropped.
    closed: bool,
    /// A wait has timed out, and no release was confirmed since.
    unresponsive: bool,
}

#[derive(Debug, Clone, Default, Hash)]
struct Lane {
    ready: VecDeque<u64>,
    /// The number of requests in flight.
    sent: usize,
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
    sent: Option<usize>,
}

impl Pending {
    /// A second release is a precaution, so it uses the lane of cancelled attempts.
    const fn lane(&self) -> usize {
        if self.release.is_hold && !self.confirmed { 0 } else { 1 }
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

/// A worker that sends releases, by its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Worker(u64);

impl Worker {
    /// The task on the runtime of the client. The others are threads.
    pub const TASK: Self = Self(0);
}

/// Who must send the new release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sender {
    /// There is nothing to send.
    Nobody,
    /// Wake this worker, which is in charge.
    InCharge(Worker),
    /// Start a thread for this worker.
    New(Worker),
}

/// The releases to send now, by their numbers, and the pause after which there may be more without a reply.
pub type ReleaseWork = (Vec<(u64, PendingRelease)>, Option<Duration>);

/// What the end of a worker means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum WorkerEnd {
    /// It was no longer in charge.
    Replaced,
    /// The runtime of the client has ended. If anything is left to send, start a thread for this worker, and wait for it.
    OfRuntime(Option<Worker>),
    /// A thread has failed, and another one would fail too: this many releases are left to the ends of their leases.
    GivenUp(usize),
}

impl Releases {
    /// Adds a release, which is sent as soon as its lane has capacity.
    #[must_use = "without a worker, the release is left to the end of its lease"]
    pub fn push(&mut self, release: PendingRelease, now: Moment) -> Sender {
        if now < release.stray_until {
            // The table is scanned when its size reaches a power of two, so that many cancellations cost little each.
            if self.abandoned.len().is_power_of_two() {
                self.abandoned.retain(|_, until| now < *until);
            }
            self.abandoned.insert(release.holder, now + REMEMBERED);
        }
        self.add(release)
    }

    /// The key was handed to a holder that does not wait here. If its attempt was cancelled, the key is handed on.
    #[must_use = "without a worker, the release is left to the end of its lease"]
    pub fn undelivered(&mut self, key: &Key, holder: HolderId, now: Moment) -> Sender {
        if !self.abandoned.contains_key(&holder) {
            return Sender::Nobody;
        }
        let (until, stray_until) = (now + STRAGGLER, Moment::default());
        self.add(PendingRelease { key: key.clone(), holder, until, stray_until, is_hold: true })
    }

    /// The holders of cancelled attempts that are remembered.
    pub fn abandoned(&self) -> impl ExactSizeIterator<Item = &HolderId> {
        self.abandoned.keys()
    }

    fn add(&mut self, release: PendingRelease) -> Sender {
        let number = self.numbers;
        self.numbers += 1;
        self.unconfirmed += 1;
        self.pending.insert(number, Pending { release, pause: FIRST_PAUSE, confirmed: false, sent: None });
        self.make_ready(number);
        if self.has_ended { Sender::New(self.new_thread()) } else { Sender::InCharge(self.latest) }
    }

    fn new_thread(&mut self) -> Worker {
        (self.latest, self.has_ended) = (Worker(self.latest.0 + 1), false);
        self.latest
    }

    fn is_in_charge(&self, worker: Worker) -> bool {
        worker == self.latest && !self.has_ended
    }

    /// What this worker does now. `None` if it is done, or no longer in charge.
    pub fn next(&mut self, worker: Worker, now: Moment) -> Option<ReleaseWork> {
        let is_done = self.pending.is_empty() && (self.closed || worker != Worker::TASK);
        if !self.is_in_charge(worker) || is_done {
            self.has_ended |= worker == self.latest;
            return None;
        }
        while let Some(&(due, number)) = self.later.first().filter(|(due, _)| *due <= now) {
            self.later.remove(&(due, number));
            self.make_ready(number);
        }
        let mut batch = Vec::new();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            while lane.sent < AT_ONCE {
                let Some(number) = lane.ready.pop_front() else { break };
                let Some(pending) = self.pending.get_mut(&number) else { continue };
                pending.sent = Some(index);
                lane.sent += 1;
                batch.push((number, pending.release.clone()));
            }
        }
        Some((batch, self.due().map(|due| due.since(now).min(LONGEST_SLEEP))))
    }

    /// When [`Releases::next`] must be called again without a reply.
    pub fn due(&self) -> Option<Moment> {
        self.later.first().map(|(due, _)| *due)
    }

    /// Handles a reply. The reply to a request that was sent again does not count.
    pub fn answered(&mut self, number: u64, outcome: ReleaseOutcome, now: Moment, random: u64) {
        self.unresponsive &= !matches!(outcome, ReleaseOutcome::Confirmed(_));
        let Some(sent) = self.pending.get_mut(&number).map(|pending| pending.sent.take()) else { return };
        match sent {
            Some(lane) => self.lanes[lane].sent -= 1,
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

    /// The client and its guards are dropped. Wake the worker in charge.
    pub const fn close(&mut self) {
        self.closed = true;
    }

    /// The program ends, so no task runs any more. If anything was never confirmed, start a thread for this worker, and wait for it.
    #[must_use = "without a worker, the releases are left to the ends of their leases"]
    pub fn take_over(&mut self) -> Option<Worker> {
        if self.is_in_charge(Worker::TASK) { self.replace(!self.is_settled()) } else { None }
    }

    /// A worker was dropped.
    pub fn ended(&mut self, worker: Worker) -> WorkerEnd {
        if !self.is_in_charge(worker) {
            return WorkerEnd::Replaced;
        }
        if worker == Worker::TASK {
            return WorkerEnd::OfRuntime(self.replace(!self.pending.is_empty()));
        }
        self.has_ended = true;
        WorkerEnd::GivenUp(self.clear())
    }

    fn replace(&mut self, at_once: bool) -> Option<Worker> {
        self.recall();
        self.has_ended = true;
        at_once.then(|| self.new_thread())
    }

    /// The sender has stopped, and its replies are lost: all requests are sent again, and retries are due immediately.
    fn recall(&mut self) {
        let later = std::mem::take(&mut self.later);
        let (retries, second): (Vec<_>, Vec<_>) =
            later.into_iter().partition(|(_, number)| self.pending.get(number).is_some_and(|one| !one.confirmed));
        self.later.extend(second);
        let sent = self.pending.iter_mut().filter_map(|(number, one)| one.sent.take().map(|_| *number));
        let again: Vec<_> = sent.chain(retries.into_iter().map(|(_, number)| number)).collect();
        self.lanes.iter_mut().for_each(|lane| lane.sent = 0);
        for number in again {
            self.make_ready(number);
        }
    }

    /// Drops all releases: the leases expire by themselves.
    fn clear(&mut self) -> usize {
        self.later.clear();
        (self.lanes, self.unconfirmed) = (Default::default(), 0);
        std::mem::take(&mut self.pending).len()
    }

    /// The number of releases that are not complete.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether the end of a runtime or of the program waits. A backend that did not answer in time is not waited for again until it
    /// answers.
    pub const fn is_waited_for(&self) -> bool {
        !self.is_settled() && !self.unresponsive
    }

    /// The time for such a wait is over. Returns whether releases are left.
    pub const fn timed_out(&mut self) -> bool {
        self.unresponsive |= !self.is_settled();
        !self.is_settled()
    }

    /// Whether every release was confirmed once.
    pub const fn is_settled(&self) -> bool {
        self.unconfirmed == 0
    }

    fn confirm(&mut self, pending: &mut Pending) {
        if !std::mem::replace(&mut pending.confirmed, true) {
            self.unconfirmed -= 1;
        }
    }

    fn make_ready(&mut self, number: u64) {
        if let Some(lane) = self.pending.get(&number).map(Pending::lane) {
            self.lanes[lane].ready.push_back(number);
        }
    }
}

#[cfg(test)]
mod queue_tests {
    use super::*;

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

    fn sent(queue: &mut Releases, now: Moment) -> Vec<u64> {
        queue.next(Worker::TASK, now).unwrap().0.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_hold_goes_before_any_number_of_cancelled_attempts() {
        let mut queue = Releases::default();
        for _ in 0..5000 {
            let _ = queue.push(release(1, false, at(1000)), at(0));
        }
        assert_eq!(sent(&mut queue, at(0)).len(), AT_ONCE);
        let _ = queue.push(hold(2), at(0));
        assert_eq!(sent(&mut queue, at(0)), [5000], "though no answer has come");
    }

    #[test]
    fn stragglers_wait_for_their_time_without_a_slot_in_a_lane() {
        let mut queue = Releases::default();
        for _ in 0..1000 {
            let _ = queue.push(release(1, false, at(1000)), at(0));
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
        assert_eq!((batches, queue.unconfirmed, queue.pending()), (16, 0, 1000));
        assert_eq!((queue.due(), sent(&mut queue, at(999))), (Some(at(1000)), vec![]));
        assert_eq!(sent(&mut queue, at(1000)).len(), AT_ONCE);
    }

    #[test]
    fn a_failed_release_is_retried_with_backoff_and_does_not_block_others() {
        let mut queue = Releases::default();
        (0..=AT_ONCE).for_each(|_| _ = queue.push(hold(1), at(0)));
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
    fn what_was_sent_or_failed_is_sent_again_at_once_after_a_recall_and_stragglers_keep_their_time() {
        let mut queue = Releases::default();
        for stray_until in [at(0), at(0), at(1000)] {
            let _ = queue.push(release(1, true, stray_until), at(0));
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
        assert_eq!((queue.unconfirmed, queue.due()), (0, Some(at(1000))), "the late answers changed nothing");
        assert_eq!(sent(&mut queue, at(1000)), [2]);
    }
}

#[cfg(test)]
mod worker_tests {
    use super::*;

    const START: Moment = Moment::from_micros(1_000_000);
    const FIRST: Worker = Worker(1);

    fn release(stray_until: Moment) -> PendingRelease {
        let (key, holder) = (Key::new("k").unwrap(), HolderId::from_bytes([1; 16]));
        PendingRelease { key, holder, until: Moment::NEVER, stray_until, is_hold: true }
    }

    fn sent(releases: &mut Releases, worker: Worker) -> Option<Vec<u64>> {
        let (batch, _) = releases.next(worker, START)?;
        Some(batch.into_iter().map(|(number, _)| number).collect())
    }

    fn one() -> Releases {
        let mut releases = Releases::default();
        assert_eq!(releases.push(release(START), START), Sender::InCharge(Worker::TASK));
        releases
    }

    fn confirm(releases: &mut Releases, number: u64) {
        releases.answered(number, ReleaseOutcome::Confirmed(START), START, 0);
    }

    #[test]
    fn the_task_of_a_client_ends_when_the_client_is_closed_and_nothing_is_left() {
        let mut releases = one();
        assert_eq!(sent(&mut releases, Worker::TASK), Some(vec![0]));
        releases.close();
        assert_eq!(sent(&mut releases, Worker::TASK), Some(vec![]), "one is in flight");
        confirm(&mut releases, 0);
        assert_eq!(sent(&mut releases, Worker::TASK), None);
        assert_eq!(releases.ended(Worker::TASK), WorkerEnd::Replaced);
        assert_eq!(releases.push(release(START), START), Sender::New(FIRST), "a guard that outlives its client");
    }

    #[test]
    fn the_task_of_an_open_client_waits_for_the_next_release() {
        let mut releases = Releases::default();
        assert_eq!(releases.next(Worker::TASK, START), Some((vec![], None)));
    }

    #[test]
    fn a_thread_sends_again_what_was_in_flight_when_the_runtime_ended_and_then_ends() {
        let mut releases = one();
        assert_eq!(sent(&mut releases, Worker::TASK), Some(vec![0]));
        assert_eq!(releases.ended(Worker::TASK), WorkerEnd::OfRuntime(Some(FIRST)));
        assert_eq!((sent(&mut releases, Worker::TASK), sent(&mut releases, FIRST)), (None, Some(vec![0])));
        assert_eq!(releases.push(release(START), START), Sender::InCharge(FIRST));
        confirm(&mut releases, 0);
        assert_eq!(sent(&mut releases, FIRST), Some(vec![1]));
        confirm(&mut releases, 1);
        assert_eq!((sent(&mut releases, FIRST), releases.ended(FIRST)), (None, WorkerEnd::Replaced));
        assert_eq!(releases.push(release(START), START), Sender::New(Worker(2)));
        assert_eq!((sent(&mut releases, FIRST), sent(&mut releases, Worker(2))), (None, Some(vec![2])));
    }

    #[test]
    fn a_runtime_that_ends_with_nothing_to_send_needs_no_thread() {
        let mut releases = Releases::default();
        assert_eq!(releases.ended(Worker::TASK), WorkerEnd::OfRuntime(None));
        assert_eq!(releases.push(release(START), START), Sender::New(FIRST));
    }

    #[test]
    fn the_end_of_the_program_takes_over_once_and_only_what_was_never_confirmed() {
        let mut releases = one();
        assert_eq!((releases.take_over(), releases.take_over()), (Some(FIRST), None));
        assert_eq!((sent(&mut releases, Worker::TASK), releases.ended(Worker::TASK)), (None, WorkerEnd::Replaced));
        let mut releases = Releases::default();
        let _ = releases.push(release(START + Duration::from_secs(5)), START);
        sent(&mut releases, Worker::TASK);
        confirm(&mut releases, 0);
        assert_eq!(releases.next(Worker::TASK, START), Some((vec![], Some(LONGEST_SLEEP))));
        assert_eq!((releases.pending(), releases.take_over()), (1, None), "a second release is a precaution");
        assert_eq!(releases.push(release(START), START), Sender::New(FIRST), "the task does not run any more");
    }

    #[test]
    fn the_releases_of_a_thread_that_fails_are_given_up() {
        let mut releases = one();
        assert_eq!(releases.take_over(), Some(FIRST));
        assert_eq!((releases.ended(FIRST), releases.pending()), (WorkerEnd::GivenUp(1), 0));
        assert_eq!(releases.push(release(START), START), Sender::New(Worker(2)));
    }

    #[test]
    fn a_backend_that_did_not_answer_in_time_is_not_waited_for_again_until_it_answers() {
        let mut releases = one();
        let _ = releases.push(release(START), START);
        sent(&mut releases, Worker::TASK);
        assert!(releases.is_waited_for() && releases.timed_out() && !releases.is_waited_for());
        releases.answered(0, ReleaseOutcome::GivenUp, START, 0);
        assert!(!releases.is_waited_for(), "that is no answer");
        let _ = releases.push(release(START), START);
        confirm(&mut releases, 1);
        assert!(releases.is_waited_for() && !releases.is_settled(), "one is left");
        sent(&mut releases, Worker::TASK);
        confirm(&mut releases, 2);
        assert!(!releases.is_waited_for() && releases.is_settled() && !releases.timed_out());
    }
}
