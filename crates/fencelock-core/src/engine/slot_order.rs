use crate::Invalid;

/// The maximum number of queues in which a claim waits at the same time. More would only make the queues longer: one of
/// eight slots is released soon, and the other slots are tried repeatedly.
const QUEUES: u32 = 8;

/// The order in which a claim tries numbered slots: from a random one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotOrder {
    slots: u32,
    start: u32,
}

impl SlotOrder {
    /// The maximum number of slots. A pass tries each of them.
    pub const MOST: u32 = 1000;

    /// Starts at any of the slots; `start` is random.
    ///
    /// # Errors
    /// [`Invalid`] if `slots` is not within 1 to [`SlotOrder::MOST`].
    pub fn new(slots: u32, start: u32) -> Result<Self, Invalid> {
        if !(1..=Self::MOST).contains(&slots) {
            return Err(Invalid::new(format!("a set has 1 to {} slots, not {slots}", Self::MOST)));
        }
        Ok(Self { slots, start: start % slots })
    }

    /// All slots.
    pub fn all(self) -> impl Iterator<Item = u32> + Clone + Send {
        (0..self.slots).map(move |index| (self.start + index) % self.slots)
    }

    /// The slots in whose queues the claim waits when all are busy. None of them is tried again.
    pub fn queues(self) -> impl Iterator<Item = u32> + Clone + Send {
        self.all().take(QUEUES as usize)
    }

    /// The slots that are tried again, because they may become free meanwhile.
    pub fn others(self) -> impl Iterator<Item = u32> + Clone + Send {
        self.all().skip(QUEUES as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_one_to_a_thousand_slots() {
        for slots in [0, 1001, u32::MAX] {
            let error = SlotOrder::new(slots, 0).unwrap_err().to_string();
            assert_eq!(error, format!("a set has 1 to 1000 slots, not {slots}"));
        }
        assert!(SlotOrder::new(1, u32::MAX).is_ok() && SlotOrder::new(1000, 5).is_ok());
    }

    #[test]
    fn every_slot_is_tried_from_a_random_one_on_and_those_without_a_queue_again() {
        let few = SlotOrder::new(5, 7).unwrap();
        assert!(few.all().eq([2, 3, 4, 0, 1]) && few.queues().eq(few.all()) && few.others().next().is_none());
        let many = SlotOrder::new(10, 7).unwrap();
        assert!(many.queues().eq([7, 8, 9, 0, 1, 2, 3, 4]) && many.others().eq([5, 6]));
    }
}
