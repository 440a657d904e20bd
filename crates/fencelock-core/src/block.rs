use crate::fence::{CLAMP, micros};
use crate::{FencingToken, Invalid};
use std::num::NonZeroU32;

/// The fencing tokens of one grant, from the first to the last: they belong to this hold alone. Mostly it is one; a claim
/// with [`crate::Claim::block`] may get more, to be given one after the other to those who share the hold.
///
/// What a node remembers is the last, so every later grant begins beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenBlock {
    first: FencingToken,
    last: FencingToken,
}

impl TokenBlock {
    /// The `count` tokens that end with `last`; fewer, if there are not so many.
    pub fn ending(last: FencingToken, count: NonZeroU32) -> Self {
        let first = last.get().saturating_sub(u64::from(count.get()) - 1).max(1);
        Self { first: FencingToken::new(first).unwrap_or(last), last }
    }

    /// The smallest, to be used first.
    pub const fn first(self) -> FencingToken {
        self.first
    }

    /// The greatest.
    pub const fn last(self) -> FencingToken {
        self.last
    }

    /// How many they are.
    pub fn count(self) -> NonZeroU32 {
        let more = u32::try_from(self.last.get() - self.first.get()).unwrap_or(u32::MAX);
        NonZeroU32::MIN.saturating_add(more)
    }
}

/// A single one.
impl From<FencingToken> for TokenBlock {
    fn from(token: FencingToken) -> Self {
        Self { first: token, last: token }
    }
}

/// The tokens of the next grant on one node, at most `wanted`. They end with
/// `max(previous + n, clamp(proposal, node time +- 1 s))`, where n is `wanted`, less what would lie more than 1 s ahead of
/// the node's time, but never below 1. A node without a clock (`None`) goes by the proposal.
///
/// So whatever is wanted, what holds of a single token ([`crate::next_fence`]) holds of every one of these: it is greater
/// than `previous`, it lies no more than 1 s ahead of the node's time unless it is `previous + 1`, and no more than 1 s
/// behind. How long a node that forgot must stay away depends on nothing else.
///
/// # Errors
/// [`Invalid`] at the end of the numbers.
pub fn next_block(
    previous: u64,
    proposal: u64,
    node_micros: Option<u64>,
    wanted: NonZeroU32,
) -> Result<TokenBlock, Invalid> {
    let now = node_micros.unwrap_or(proposal);
    let (floor, ceiling) = (now.saturating_sub(micros(CLAMP)), now.saturating_add(micros(CLAMP)));
    let room = ceiling.min(FencingToken::MAX).saturating_sub(previous);
    let count = u64::from(wanted.get()).min(room).max(1);
    let last = previous.saturating_add(count).max(proposal.clamp(floor, ceiling));
    let first = (last - count + 1).max(floor);
    Ok(TokenBlock { last: FencingToken::new(last)?, first: FencingToken::new(first)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_780_000_000_000_000;

    fn block(previous: u64, proposal: u64, now: Option<u64>, wanted: u32) -> (u64, u64) {
        let block = next_block(previous, proposal, now, NonZeroU32::new(wanted).unwrap()).unwrap();
        assert_eq!(u64::from(block.count().get()), block.last().get() - block.first().get() + 1);
        (block.first().get(), block.last().get())
    }

    #[test]
    fn a_block_ends_where_a_single_token_would_be_if_there_is_room_below() {
        assert_eq!(block(NOW - 500, NOW, Some(NOW), 1), (NOW, NOW));
        assert_eq!(block(NOW - 500, NOW, Some(NOW), 64), (NOW - 63, NOW));
        assert_eq!(block(NOW - 500, NOW, Some(NOW), 500), (NOW - 499, NOW));
    }

    #[test]
    fn without_room_below_it_reaches_ahead_by_a_second_at_most() {
        assert_eq!(block(NOW - 500, NOW, Some(NOW), 600), (NOW - 499, NOW + 100));
        assert_eq!(block(NOW + 999_990, NOW, Some(NOW), 600), (NOW + 999_991, NOW + 1_000_000));
        assert_eq!(block(NOW + 1_000_000, NOW, Some(NOW), 600), (NOW + 1_000_001, NOW + 1_000_001));
        assert_eq!(block(NOW + 7_000_000, NOW, Some(NOW), 600), (NOW + 7_000_001, NOW + 7_000_001));
    }

    #[test]
    fn a_node_that_remembers_nothing_reaches_back_by_a_second_at_most() {
        assert_eq!(block(0, NOW, Some(NOW), 100_000), (NOW - 99_999, NOW));
        assert_eq!(block(0, NOW - 999_990, Some(NOW), 600), (NOW - 1_000_000, NOW - 999_990));
        assert_eq!(block(0, 1, Some(NOW), u32::MAX).0, NOW - 1_000_000);
    }

    #[test]
    fn without_a_node_clock_the_proposal_is_the_time() {
        assert_eq!(block(0, NOW, None, 64), (NOW - 63, NOW));
        assert_eq!(block(NOW + 10, NOW, None, 64), (NOW + 11, NOW + 74));
        assert_eq!(block(1000, 17, None, 2), (1001, 1002));
    }

    #[test]
    fn the_last_numbers_are_given_and_then_no_more() {
        let max = FencingToken::MAX;
        assert_eq!(block(max - 3, max, None, 64), (max - 2, max));
        assert!(next_block(max, max, None, NonZeroU32::MIN).is_err());
        assert!(next_block(u64::MAX, 0, None, NonZeroU32::MAX).is_err());
    }

    #[test]
    fn as_many_as_are_wanted_if_there_are_so_many() {
        let token = |number| FencingToken::new(number).unwrap();
        let ending = |last, count| TokenBlock::ending(token(last), NonZeroU32::new(count).unwrap());
        assert_eq!((ending(9, 3).first(), ending(9, 3).last()), (token(7), token(9)));
        assert_eq!(ending(9, 1), token(9).into());
        assert_eq!(ending(2, 64).count().get(), 2);
    }

    proptest! {
        #[test]
        fn every_token_is_new_and_near_the_nodes_time(
            ahead in 0..3_000_000u64, p: u64, behind in 0..3_000_000u64, wanted in 1..3_000_000u32,
        ) {
            let previous = NOW + ahead - behind;
            let (first, last) = block(previous, p, Some(NOW), wanted);
            prop_assert!(previous < first && first <= last && last - first < u64::from(wanted));
            prop_assert!(last <= (previous + 1).max(NOW + 1_000_000));
            prop_assert!(first >= NOW - 1_000_000);
        }
    }
}
