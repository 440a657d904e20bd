use super::LAST_ANSWER;
use crate::{Invalid, Moment};
use std::time::Duration;

/// The maximum number of queues in which a claim waits at the same time. More would only make the queues longer: one of
/// eight slots is released soon, and the other slots are tried repeatedly.
const QUEUES: u32 = 8;
/// How often a waiting client tries the slots whose queues it is not in.
const RETRY: Duration = Duration::from_secs(1);
/// The minimum wait of a claim that queues: a claim with a wait of zero would try once and not enter the queue.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Acquires one of several numbered slots, each of which is an exclusive lock.
///
/// It decides which slot is tried next, and in which queues the claim waits:
///
/// - The slots are tried one after another, starting at a random one. So two clients that only try never refuse each
///   other a free slot because of a slot that they give back.
/// - If all are busy, it waits in the queues of the first few of them at the same time. The first grant wins, and the
///   other claims are cancelled: a grant that has already arrived is released at once.
/// - The slots whose queues it is not in are tried again once a second, because they may become free meanwhile.
/// - A try that is not answered ends neither the wait nor the other claims.
///
/// It has no clock and sends nothing. A driver carries out each [`SlotStep`] and reports the result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquireSlot {
    slots: u32,
    start: u32,
    queues: u32,
    until: Option<Moment>,
    /// Whether each slot is tried once, however long that takes: a wait of zero.
    once: bool,
    /// The number of slots tried in this pass, from its first slot on.
    tried: u32,
    /// The first pass tries all slots; later passes skip those in whose queues this claim waits.
    waiting: bool,
    /// The queues in which the claim has ended without a grant.
    ended: u32,
    next_pass: Moment,
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
    /// Wait for a grant in a queue, at most until this moment. Then call [`AcquireSlot::on_time`]. When the wait is over, the claims that
    /// wait end by themselves, and leave their queues: cancelling them at the same moment would leave twice.
    Wait(Moment),
    /// This slot is held. Cancel all other claims.
    Granted(u32),
    /// The wait is over, or a claim was refused. Cancel all claims, and return the last error.
    Refused,
}

impl AcquireSlot {
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
        let until = wait.map(|wait| now + wait);
        let (tried, waiting, ended, next_pass) = (0, false, 0, now);
        Ok(Self {
            slots,
            start: start % slots,
            queues: QUEUES,
            until,
            once: wait.is_some_and(|wait| wait.is_zero()),
            tried,
            waiting,
            ended,
            next_pass,
            state: State::Trying,
        })
    }

    /// Sets the maximum number of queues, for searches with few slots.
    #[must_use]
    pub const fn with_queues(self, queues: u32) -> Self {
        Self { queues, ..self }
    }

    /// The next step.
    pub fn step(&self, now: Moment) -> SlotStep {
        match self.state {
            State::Granted(slot) => SlotStep::Granted(slot),
            State::Refused => SlotStep::Refused,
            State::Trying if now >= self.next_pass && self.tried < self.slots => SlotStep::Try(self.slot(self.tried)),
            State::Trying if self.next_pass < self.wait_end() => SlotStep::Wait(self.next_pass),
            State::Trying => SlotStep::Wait(self.end()),
        }
    }

    /// The slots in whose queues the claim waits: none before the first pass is over.
    pub fn queues(&self) -> impl Iterator<Item = u32> + '_ {
        let many = if self.waiting { self.line_count() } else { 0 };
        (0..many).map(|index| self.slot(index))
    }

    /// How long a claim in a queue waits; `None` has no limit.
    pub fn rest(&self, now: Moment) -> Option<Duration> {
        self.until.map(|until| until.since(now).max(SHORTEST_WAIT))
    }

    /// Until when a try, or a claim that waits, may be answered: a little longer than the wait. A wait of zero has no end: each slot is
    /// tried once.
    pub fn end(&self) -> Moment {
        self.wait_end() + LAST_ANSWER
    }

    /// Whether the wait is over.
    pub fn is_over(&self, now: Moment) -> bool {
        now >= self.wait_end()
    }

    fn wait_end(&self) -> Moment {
        self.until.filter(|_| !self.once).unwrap_or(Moment::NEVER)
    }

    /// The slot that was tried is busy.
    pub fn on_busy(&mut self, now: Moment) {
        self.tried += 1;
        if self.is_over(now) || self.once && self.tried == self.slots {
            self.state = State::Refused;
            return;
        }
        if self.tried < self.slots {
            return;
        }
        self.end_pass(now);
    }

    /// A try was not answered. The other slots may be on the same server, so the claim waits in the queues, where each waiting claim
    /// is repeated until it is answered. The slots outside of these queues are tried again in the next pass.
    pub fn on_unanswered(&mut self, now: Moment) {
        if self.once || self.is_over(now) {
            self.on_refused();
        } else {
            self.end_pass(now);
        }
    }

    /// A try or a waiting claim was granted. Returns whether to keep the slot; any other slot must be released.
    pub fn on_granted(&mut self, slot: u32) -> bool {
        if self.state == State::Trying {
            self.state = State::Granted(slot);
        }
        self.state == State::Granted(slot)
    }

    /// A waiting claim ended without a grant, because the wait is over, or because it was not answered for as long as a lease lasts.
    pub fn on_line_ended(&mut self) {
        self.ended += 1;
        if self.state == State::Trying && self.ended >= self.line_count() {
            self.state = State::Refused;
        }
    }

    /// The wait is over, or a claim was refused permanently.
    pub fn on_refused(&mut self) {
        if self.state == State::Trying {
            self.state = State::Refused;
        }
    }

    /// The moment of [`SlotStep::Wait`] or [`AcquireSlot::end`] has come.
    pub fn on_time(&mut self, now: Moment) {
        if self.is_over(now) {
            self.on_refused();
        }
    }

    fn end_pass(&mut self, now: Moment) {
        self.waiting = true;
        // Slots in whose queues it waits are not tried again.
        self.tried = self.line_count();
        self.next_pass = if self.tried < self.slots { now + RETRY } else { Moment::NEVER };
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

    const START: Moment = Moment::from_micros(1_000_000);

    fn acquire(slots: u32, wait: Option<Duration>) -> AcquireSlot {
        AcquireSlot::new(slots, 7, wait, START).unwrap()
    }

    /// All slots are busy.
    fn first_pass(slot: &mut AcquireSlot) -> Vec<u32> {
        let mut tried = Vec::new();
        while let SlotStep::Try(next) = slot.step(START) {
            tried.push(next);
            slot.on_busy(START);
        }
        tried
    }

    #[test]
    fn a_set_has_one_to_a_thousand_slots() {
        for slots in [0, 1001, u32::MAX] {
            let error = AcquireSlot::new(slots, 0, None, START).unwrap_err().to_string();
            assert_eq!(error, format!("a set has 1 to 1000 slots, not {slots}"));
        }
        assert!(AcquireSlot::new(1, u32::MAX, None, START).is_ok() && AcquireSlot::new(1000, 5, None, START).is_ok());
    }

    #[test]
    fn every_slot_is_tried_from_a_random_one_on() {
        let mut slot = acquire(5, None);
        assert_eq!(first_pass(&mut slot), [2, 3, 4, 0, 1]);
        assert_eq!(slot.queues().collect::<Vec<_>>(), [2, 3, 4, 0, 1]);
        assert_eq!(slot.step(START), SlotStep::Wait(Moment::NEVER), "it waits everywhere");
    }

    #[test]
    fn the_first_free_slot_is_kept_and_a_second_grant_is_not() {
        let mut slot = acquire(5, None);
        slot.on_busy(START);
        assert_eq!((slot.step(START), slot.on_granted(3)), (SlotStep::Try(3), true));
        assert_eq!((slot.on_granted(4), slot.step(START)), (false, SlotStep::Granted(3)));
    }

    #[test]
    fn slots_without_a_waiting_claim_are_tried_once_a_second() {
        let mut slot = acquire(10, None);
        assert_eq!(first_pass(&mut slot).len(), 10);
        assert_eq!(slot.queues().collect::<Vec<_>>(), [7, 8, 9, 0, 1, 2, 3, 4]);
        let later = START + RETRY;
        assert_eq!(slot.step(START), SlotStep::Wait(later));
        for next in [5, 6] {
            assert_eq!(slot.step(later), SlotStep::Try(next));
            slot.on_busy(later);
        }
        assert_eq!(slot.step(later), SlotStep::Wait(later + RETRY));
    }

    #[test]
    fn a_wait_of_zero_tries_each_slot_once() {
        let mut slot = acquire(10, Some(Duration::ZERO));
        assert_eq!(first_pass(&mut slot).len(), 10);
        assert_eq!((slot.step(START), slot.queues().count()), (SlotStep::Refused, 0));
    }

    #[test]
    fn after_a_try_without_an_answer_it_waits_in_the_queues_and_tries_the_other_slots_later() {
        let mut slot = acquire(10, None);
        slot.on_busy(START);
        slot.on_unanswered(START);
        assert_eq!(slot.queues().collect::<Vec<_>>(), [7, 8, 9, 0, 1, 2, 3, 4]);
        let later = START + RETRY;
        assert_eq!((slot.step(START), slot.step(later)), (SlotStep::Wait(later), SlotStep::Try(5)));
        slot.on_unanswered(later);
        assert_eq!(slot.step(later), SlotStep::Wait(later + RETRY), "the other try is not answered either");
        (0..7).for_each(|_| slot.on_line_ended());
        assert_eq!(slot.step(later), SlotStep::Wait(later + RETRY), "one claim is left");
        slot.on_line_ended();
        assert_eq!(slot.step(later), SlotStep::Refused);
    }

    #[test]
    fn a_try_without_an_answer_is_the_last_one_of_a_wait_that_is_over() {
        let mut zero = acquire(10, Some(Duration::ZERO));
        zero.on_unanswered(START);
        assert_eq!(zero.step(START), SlotStep::Refused);
        let mut slot = acquire(10, Some(Duration::from_secs(1)));
        slot.on_unanswered(START + Duration::from_secs(1));
        assert_eq!(slot.step(START + Duration::from_secs(1)), SlotStep::Refused);
    }

    #[test]
    fn the_wait_ends_during_the_first_pass_too() {
        let mut slot = acquire(10, Some(Duration::from_secs(5)));
        let end = START + Duration::from_secs(5);
        slot.on_busy(START);
        let last = end + LAST_ANSWER;
        assert_eq!((slot.end(), slot.step(end)), (last, SlotStep::Try(8)), "the try that was sent is awaited");
        let mut other = slot.clone();
        slot.on_busy(end);
        assert_eq!(slot.step(end), SlotStep::Refused);
        other.on_time(end);
        assert_eq!(other.step(end), SlotStep::Refused);
    }

    #[test]
    fn the_wait_is_for_all_slots_together() {
        let mut slot = acquire(2, Some(Duration::from_secs(5)));
        first_pass(&mut slot);
        let end = START + Duration::from_secs(5);
        let last = SlotStep::Wait(end + LAST_ANSWER);
        assert_eq!((slot.step(START), slot.rest(START)), (last, Some(Duration::from_secs(5))));
        slot.on_time(end);
        assert_eq!(slot.step(end), SlotStep::Refused);
        let mut slot = acquire(2, Some(Duration::from_secs(5)));
        first_pass(&mut slot);
        slot.on_line_ended();
        assert_eq!(slot.step(START), last, "the other claim continues");
        slot.on_line_ended();
        assert_eq!(slot.step(START), SlotStep::Refused);
    }
}
