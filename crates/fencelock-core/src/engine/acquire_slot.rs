use super::{ClaimFailure, LAST_ANSWER, SHORTEST_WAIT};
use crate::{Invalid, Moment};
use std::time::Duration;

/// The maximum number of queues in which a claim waits at the same time. More would only make the queues longer: one of
/// eight slots is released soon, and the other slots are tried repeatedly.
const QUEUES: u32 = 8;
/// How often a waiting client tries the slots whose queues it is not in.
const RETRY: Duration = Duration::from_secs(1);

/// Acquires one of several numbered slots, each of which is an exclusive lock.
///
/// It decides which slot is tried next, in which queues the claim waits, and which error is the result:
///
/// - The slots are tried one after another, starting at a random one. So two clients that only try never refuse each
///   other a free slot because of a slot that they give back.
/// - If all are busy, it waits in the queues of the first few of them at the same time. The first grant wins, and the
///   other claims are cancelled: a grant that has already arrived is released at once.
/// - The slots whose queues it is not in are tried again once a second, because they may become free meanwhile.
/// - A try that is not answered ends neither the wait nor the other claims. A holder that was reported before is a better answer than
///   none.
///
/// It has no clock and sends nothing. A driver carries out each [`SlotStep`] and reports the result. `E` is the driver's error.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquireSlot<E> {
    slots: u32,
    start: u32,
    queues: u32,
    begun: Moment,
    until: Option<Moment>,
    /// Whether each slot is tried once, however long that takes: a wait of zero.
    once: bool,
    /// The number of slots tried in this pass, from its first slot on.
    tried: u32,
    /// The try that is not answered yet.
    trying: Option<u32>,
    /// The first pass tries all slots; later passes skip those in whose queues this claim waits.
    waiting: bool,
    /// The queues in which a claim was begun, and in which it has ended without a grant.
    entered: u32,
    ended: u32,
    next_pass: Moment,
    /// The error to return.
    last: Option<E>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Trying,
    Granted(u32),
    Refused,
}

/// What a driver must do. Tries and waiting claims run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotStep {
    /// Claim this slot once. Waiting claims continue.
    Try(u32),
    /// Begin a claim that waits in the queue of this slot.
    Queue {
        /// The slot.
        slot: u32,
        /// How long the claim waits; `None` has no limit.
        wait: Option<Duration>,
        /// Whether it is the first one, which reports the holder to the caller.
        reports: bool,
    },
    /// Wait for the claims, at most until this moment. Then call [`AcquireSlot::on_time`]. When the wait is over, the claims that
    /// wait end by themselves, and leave their queues: cancelling them at the same moment would leave twice.
    Wait(Moment),
    /// This slot is held. Cancel all other claims.
    Granted(u32),
    /// The wait is over, or a claim was refused. Cancel all claims, and return [`AcquireSlot::into_error`].
    Refused,
}

impl<E> AcquireSlot<E> {
    /// The maximum number of slots. A pass tries each of them.
    pub const MOST: u32 = 1000;

    /// Starts at any of the slots; `start` is random.
    ///
    /// # Errors
    /// [`Invalid`] if `slots` is not within 1 to [`AcquireSlot::MOST`].
    pub fn new(slots: u32, start: u32, wait: Option<Duration>, now: Moment) -> Result<Self, Invalid> {
        if !(1..=Self::MOST).contains(&slots) {
            return Err(Invalid::new(format!("a set has 1 to {} slots, not {slots}", Self::MOST)));
        }
        Ok(Self {
            slots,
            start: start % slots,
            queues: QUEUES,
            begun: now,
            until: wait.map(|wait| now + wait),
            once: wait.is_some_and(|wait| wait.is_zero()),
            tried: 0,
            trying: None,
            waiting: false,
            entered: 0,
            ended: 0,
            next_pass: now,
            last: None,
            state: State::Trying,
        })
    }

    /// Sets the maximum number of queues, for searches with few slots.
    #[must_use]
    pub fn with_queues(self, queues: u32) -> Self {
        Self { queues, ..self }
    }

    /// The next step. A driver calls this again after each try and claim that it begins, and after each result.
    pub fn step(&mut self, now: Moment) -> SlotStep {
        match self.state {
            State::Granted(slot) => SlotStep::Granted(slot),
            State::Refused => SlotStep::Refused,
            State::Trying if self.waiting && self.entered < self.line_count() => {
                self.entered += 1;
                let slot = self.slot(self.entered - 1);
                SlotStep::Queue { slot, wait: self.rest(now), reports: self.entered == 1 }
            }
            State::Trying if self.trying.is_none() && now >= self.next_pass && self.tried < self.slots => {
                let slot = self.slot(self.tried);
                self.trying = Some(slot);
                SlotStep::Try(slot)
            }
            State::Trying if self.trying.is_none() && self.next_pass < self.wait_end() => {
                SlotStep::Wait(self.next_pass)
            }
            State::Trying => SlotStep::Wait(self.wait_end() + LAST_ANSWER),
        }
    }

    /// Whether the claim waits in queues: not before the first pass is over.
    pub const fn is_queued(&self) -> bool {
        self.entered > 0
    }

    /// The claim of this slot was granted. Returns whether to keep the slot; any other slot must be released.
    pub fn on_granted(&mut self, slot: u32) -> bool {
        if self.state == State::Trying {
            self.state = State::Granted(slot);
        }
        self.state == State::Granted(slot)
    }

    /// The claim of this slot has failed: the try that was begun last, or a claim that has waited.
    pub fn on_failed(&mut self, slot: u32, failure: ClaimFailure, error: E, now: Moment) {
        let tried = self.trying.take_if(|trying| *trying == slot).is_some();
        match failure {
            ClaimFailure::Refused => self.refuse(),
            ClaimFailure::Busy if tried => self.on_busy(now),
            ClaimFailure::Silent | ClaimFailure::NotServing if tried => self.on_unanswered(now),
            _ => self.on_line_ended(),
        }
        if self.last.is_none() || failure != ClaimFailure::Silent || !self.is_over(now) {
            self.last = Some(error);
        }
    }

    /// The moment of [`SlotStep::Wait`] has come.
    pub fn on_time(&mut self, now: Moment) {
        if self.is_over(now) {
            self.refuse();
        }
    }

    /// How long the caller has waited.
    pub fn waited(&self, now: Moment) -> Duration {
        now.since(self.begun)
    }

    /// The error to return; `None` if no claim has failed.
    pub fn into_error(self) -> Option<E> {
        self.last
    }

    fn on_busy(&mut self, now: Moment) {
        self.tried += 1;
        if self.is_over(now) || self.once && self.tried == self.slots {
            self.refuse();
        } else if self.tried == self.slots {
            self.end_pass(now);
        }
    }

    /// The other slots may be on the same server, so the claim waits in the queues, where each waiting claim
    /// is repeated until it is answered. The slots outside of these queues are tried again in the next pass.
    fn on_unanswered(&mut self, now: Moment) {
        if self.once || self.is_over(now) {
            self.refuse();
        } else {
            self.end_pass(now);
        }
    }

    /// Its wait is over, or it was not answered for as long as a lease lasts.
    fn on_line_ended(&mut self) {
        self.ended += 1;
        if self.ended >= self.line_count() {
            self.refuse();
        }
    }

    fn refuse(&mut self) {
        if self.state == State::Trying {
            self.state = State::Refused;
        }
    }

    fn end_pass(&mut self, now: Moment) {
        self.waiting = true;
        // Slots in whose queues it waits are not tried again.
        self.tried = self.line_count();
        self.next_pass = if self.tried < self.slots { now + RETRY } else { Moment::NEVER };
    }

    fn rest(&self, now: Moment) -> Option<Duration> {
        self.until.map(|until| until.since(now).max(SHORTEST_WAIT))
    }

    fn is_over(&self, now: Moment) -> bool {
        now >= self.wait_end()
    }

    /// A wait of zero has no end: each slot is tried once.
    fn wait_end(&self) -> Moment {
        self.until.filter(|_| !self.once).unwrap_or(Moment::NEVER)
    }

    fn line_count(&self) -> u32 {
        self.slots.min(self.queues)
    }

    fn slot(&self, index: u32) -> u32 {
        (self.start + index) % self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ClaimFailure::{Busy, NotServing, Refused, Silent};

    const START: Moment = Moment::from_micros(1_000_000);
    const END: Moment = Moment::from_micros(6_000_000);

    type Slots = AcquireSlot<&'static str>;

    fn acquire(slots: u32, wait: Option<Duration>) -> Slots {
        AcquireSlot::new(slots, 7, wait, START).unwrap()
    }

    fn five_seconds(slots: u32) -> Slots {
        acquire(slots, Some(Duration::from_secs(5)))
    }

    /// Begins the next try, whose slot is busy.
    fn busy(slots: &mut Slots, now: Moment) -> u32 {
        let SlotStep::Try(slot) = slots.step(now) else { panic!("{slots:?}") };
        slots.on_failed(slot, Busy, "busy", now);
        slot
    }

    /// All slots are busy. Returns the slots in whose queues the claim waits.
    fn first_pass(slots: &mut Slots) -> Vec<u32> {
        for _ in 0..slots.slots {
            busy(slots, START);
        }
        queues(slots)
    }

    fn queues(slots: &mut Slots) -> Vec<u32> {
        let mut queues = Vec::new();
        while let SlotStep::Queue { slot, reports, .. } = slots.clone().step(START) {
            slots.step(START);
            assert_eq!(reports, queues.is_empty());
            queues.push(slot);
        }
        queues
    }

    #[test]
    fn a_set_has_one_to_a_thousand_slots() {
        for slots in [0, 1001, u32::MAX] {
            let error = Slots::new(slots, 0, None, START).unwrap_err().to_string();
            assert_eq!(error, format!("a set has 1 to 1000 slots, not {slots}"));
        }
        assert!(Slots::new(1, u32::MAX, None, START).is_ok() && Slots::new(1000, 5, None, START).is_ok());
    }

    #[test]
    fn every_slot_is_tried_from_a_random_one_on_one_after_another() {
        let mut slots = acquire(5, None);
        let tried: Vec<_> = (0..5)
            .map(|_| {
                let SlotStep::Try(slot) = slots.step(START) else { panic!("{slots:?}") };
                assert_eq!((slots.step(START), slots.is_queued()), (SlotStep::Wait(Moment::NEVER), false));
                slots.on_failed(slot, Busy, "busy", START);
                slot
            })
            .collect();
        assert_eq!((tried, queues(&mut slots)), (vec![2, 3, 4, 0, 1], vec![2, 3, 4, 0, 1]));
        assert_eq!(
            (slots.step(START), slots.is_queued()),
            (SlotStep::Wait(Moment::NEVER), true),
            "it waits everywhere"
        );
    }

    #[test]
    fn the_first_free_slot_is_kept_and_a_second_grant_is_not() {
        let mut slots = acquire(5, None);
        busy(&mut slots, START);
        assert_eq!((slots.step(START), slots.on_granted(3)), (SlotStep::Try(3), true));
        assert_eq!((slots.on_granted(4), slots.step(START)), (false, SlotStep::Granted(3)));
    }

    #[test]
    fn slots_without_a_waiting_claim_are_tried_once_a_second() {
        let mut slots = acquire(10, None);
        assert_eq!(first_pass(&mut slots), [7, 8, 9, 0, 1, 2, 3, 4]);
        let later = START + RETRY;
        assert_eq!(slots.step(START), SlotStep::Wait(later));
        assert_eq!(slots.step(later), SlotStep::Try(5));
        slots.on_failed(7, Busy, "busy", later);
        assert_eq!(slots.step(later), SlotStep::Wait(Moment::NEVER), "a claim in a queue has failed, not the try");
        slots.on_failed(5, Busy, "busy", later);
        assert_eq!(busy(&mut slots, later), 6);
        assert_eq!(slots.step(later), SlotStep::Wait(later + RETRY));
    }

    #[test]
    fn a_wait_of_zero_tries_each_slot_once() {
        let mut slots = acquire(10, Some(Duration::ZERO));
        assert_eq!((first_pass(&mut slots), slots.step(START)), (vec![], SlotStep::Refused));
        assert_eq!(slots.into_error(), Some("busy"));
    }

    #[test]
    fn after_a_try_without_an_answer_it_waits_in_the_queues_and_tries_the_other_slots_later() {
        for failure in [Silent, NotServing] {
            let mut slots = acquire(10, None);
            busy(&mut slots, START);
            assert_eq!(slots.step(START), SlotStep::Try(8));
            slots.on_failed(8, failure, "silent", START);
            assert_eq!(queues(&mut slots), [7, 8, 9, 0, 1, 2, 3, 4]);
            let later = START + RETRY;
            assert_eq!((slots.step(START), slots.step(later)), (SlotStep::Wait(later), SlotStep::Try(5)));
            slots.on_failed(5, failure, "silent", later);
            assert_eq!(slots.step(later), SlotStep::Wait(later + RETRY), "the other try is not answered either");
            for slot in [7, 8, 9, 0, 1, 2, 3] {
                slots.on_failed(slot, failure, "silent", later);
                assert_eq!(slots.step(later), SlotStep::Wait(later + RETRY), "one claim is left");
            }
            slots.on_failed(4, failure, "the last", later);
            assert_eq!(slots.step(later), SlotStep::Refused);
            assert_eq!(slots.into_error(), Some("the last"));
        }
    }

    #[test]
    fn a_try_without_an_answer_is_the_last_one_of_a_wait_that_is_over() {
        for (mut slots, now) in [(acquire(10, Some(Duration::ZERO)), START), (five_seconds(10), END)] {
            assert_eq!(slots.step(START), SlotStep::Try(7));
            slots.on_failed(7, Silent, "silent", now);
            assert_eq!((slots.step(now), slots.into_error()), (SlotStep::Refused, Some("silent")));
        }
    }

    #[test]
    fn the_wait_ends_during_the_first_pass_too() {
        let mut slots = five_seconds(10);
        busy(&mut slots, START);
        assert_eq!((slots.step(END), slots.step(END)), (SlotStep::Try(8), SlotStep::Wait(END + LAST_ANSWER)));
        let mut other = slots.clone();
        slots.on_failed(8, Busy, "busy", END);
        assert_eq!(slots.step(END), SlotStep::Refused);
        other.on_time(END);
        assert_eq!(other.step(END), SlotStep::Refused);
    }

    #[test]
    fn the_wait_is_for_all_slots_together() {
        let mut slots = five_seconds(2);
        assert_eq!([(); 2].map(|()| busy(&mut slots, START)), [1, 0]);
        let wait = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(slots.step(START), SlotStep::Queue { slot: 1, wait: wait(5), reports: true });
        let later = START + Duration::from_secs(3);
        assert_eq!(slots.step(later), SlotStep::Queue { slot: 0, wait: wait(2), reports: false });
        let last = SlotStep::Wait(END + LAST_ANSWER);
        assert_eq!((slots.step(START), slots.waited(later)), (last, Duration::from_secs(3)));
        let mut other = slots.clone();
        slots.on_time(END);
        assert_eq!(slots.step(END), SlotStep::Refused);
        other.on_failed(1, Busy, "busy", START);
        assert_eq!(other.step(START), last, "the other claim continues");
        other.on_failed(0, Busy, "busy", START);
        assert_eq!(other.step(START), SlotStep::Refused);
    }

    #[test]
    fn a_claim_that_is_refused_ends_all() {
        for queued in [false, true] {
            let mut slots = acquire(2, None);
            if queued {
                assert_eq!(first_pass(&mut slots), [1, 0]);
            } else {
                assert_eq!(slots.step(START), SlotStep::Try(1));
            }
            slots.on_failed(1, Refused, "refused", START);
            assert_eq!(slots.step(START), SlotStep::Refused);
            assert_eq!(slots.into_error(), Some("refused"));
        }
    }

    #[test]
    fn a_holder_that_was_reported_before_is_a_better_answer_than_none_at_the_end() {
        for (failure, now, last) in [(Silent, END, "busy"), (NotServing, END, "new"), (Silent, START, "new")] {
            let mut slots = five_seconds(3);
            busy(&mut slots, START);
            assert_eq!(slots.step(START), SlotStep::Try(2));
            slots.on_failed(2, failure, "new", now);
            assert_eq!(slots.into_error(), Some(last), "{failure:?} at {now:?}");
        }
        assert_eq!(five_seconds(3).into_error(), None);
    }
}
