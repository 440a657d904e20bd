//! Who sends the releases of a client, and how long its end waits for them.

use super::LONGEST_SLEEP;
use super::release::{PendingRelease, ReleaseOutcome, ReleaseQueue};
use crate::{HolderId, Key, Moment};
use std::time::Duration;

/// The releases of a client in the background, and who sends them: one worker at a time is in charge.
///
/// First, that is a task on the runtime of the client, which ends when the client is closed and nothing is left. When that runtime or the
/// program ends, no reply arrives there any more: a thread sends again what was in flight. It ends when nothing is left, and the next
/// release needs another one.
///
/// It has no lock and wakes nobody. A driver does that.
#[derive(Debug, Clone, Hash)]
pub struct Releases {
    queue: ReleaseQueue,
    /// The number of threads so far.
    threads: u64,
    in_charge: Option<Worker>,
    /// The client and its guards are dropped.
    closed: bool,
    /// A wait has timed out, and no release was confirmed since.
    unresponsive: bool,
}

/// A worker that sends releases, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

impl Default for Releases {
    fn default() -> Self {
        let in_charge = Some(Worker::TASK);
        Self { queue: ReleaseQueue::default(), threads: 0, in_charge, closed: false, unresponsive: false }
    }
}

impl Releases {
    /// Adds a release.
    #[must_use = "without a worker, the release is left to the end of its lease"]
    pub fn push(&mut self, release: PendingRelease, now: Moment) -> Sender {
        self.queue.push(release, now);
        self.sender()
    }

    /// As [`ReleaseQueue::undelivered`].
    #[must_use = "without a worker, the release is left to the end of its lease"]
    pub fn undelivered(&mut self, key: &Key, holder: HolderId, now: Moment) -> Sender {
        if self.queue.undelivered(key, holder, now) { self.sender() } else { Sender::Nobody }
    }

    fn sender(&mut self) -> Sender {
        match self.in_charge {
            Some(worker) => Sender::InCharge(worker),
            None => Sender::New(self.new_thread()),
        }
    }

    fn new_thread(&mut self) -> Worker {
        self.threads += 1;
        let worker = Worker(self.threads);
        self.in_charge = Some(worker);
        worker
    }

    /// What this worker does now. `None` if it is done, or no longer in charge.
    pub fn next(&mut self, worker: Worker, now: Moment) -> Option<ReleaseWork> {
        if self.in_charge != Some(worker) {
            return None;
        }
        if self.queue.pending() == 0 && (self.closed || worker != Worker::TASK) {
            self.in_charge = None;
            return None;
        }
        let batch = self.queue.next(now);
        Some((batch, self.queue.due().map(|due| due.since(now).min(LONGEST_SLEEP))))
    }

    /// As [`ReleaseQueue::answered`].
    pub fn answered(&mut self, number: u64, outcome: ReleaseOutcome, now: Moment, random: u64) {
        self.queue.answered(number, outcome, now, random);
        self.unresponsive &= !matches!(outcome, ReleaseOutcome::Confirmed(_));
    }

    /// The client and its guards are dropped. Wake the worker in charge.
    pub const fn close(&mut self) {
        self.closed = true;
    }

    /// The program ends, so no task runs any more. If anything was never confirmed, start a thread for this worker, and wait for it.
    #[must_use = "without a worker, the releases are left to the ends of their leases"]
    pub fn take_over(&mut self) -> Option<Worker> {
        if self.in_charge == Some(Worker::TASK) { self.replace(!self.is_settled()) } else { None }
    }

    /// A worker was dropped.
    pub fn ended(&mut self, worker: Worker) -> WorkerEnd {
        if self.in_charge != Some(worker) {
            return WorkerEnd::Replaced;
        }
        if worker == Worker::TASK {
            return WorkerEnd::OfRuntime(self.replace(self.queue.pending() > 0));
        }
        self.in_charge = None;
        WorkerEnd::GivenUp(self.queue.clear())
    }

    fn replace(&mut self, at_once: bool) -> Option<Worker> {
        self.queue.recall();
        self.in_charge = None;
        at_once.then(|| self.new_thread())
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
        self.queue.unconfirmed() == 0
    }

    /// The releases.
    pub const fn queue(&self) -> &ReleaseQueue {
        &self.queue
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!((releases.queue().pending(), releases.take_over()), (1, None), "a second release is a precaution");
        assert_eq!(releases.push(release(START), START), Sender::New(FIRST), "the task does not run any more");
    }

    #[test]
    fn the_releases_of_a_thread_that_fails_are_given_up() {
        let mut releases = one();
        assert_eq!(releases.take_over(), Some(FIRST));
        assert_eq!((releases.ended(FIRST), releases.queue().pending()), (WorkerEnd::GivenUp(1), 0));
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

    #[test]
    fn only_a_key_that_was_handed_to_a_cancelled_attempt_is_handed_on() {
        let mut releases = Releases::default();
        let (key, other) = (Key::new("k").unwrap(), HolderId::from_bytes([2; 16]));
        assert_eq!(releases.undelivered(&key, other, START), Sender::Nobody);
        let _ = releases.push(release(START + Duration::from_secs(5)), START);
        assert_eq!(releases.queue().abandoned().len(), 1);
        let ours = HolderId::from_bytes([1; 16]);
        assert_eq!(releases.undelivered(&key, ours, START), Sender::InCharge(Worker::TASK));
        assert_eq!(sent(&mut releases, Worker::TASK), Some(vec![0, 1]));
    }
}
