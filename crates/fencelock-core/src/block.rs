use crate::{FencingToken, Invalid};
use std::num::NonZeroU32;

/// The fencing tokens of one grant, from the first to the last: they belong to this hold only. Usually there is one; a claim
/// with [`crate::Claim::block`] may get more, for the tasks that share the hold.
///
/// A node stores the last one, so every later grant starts after it.
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

    /// The smallest token, which is used first.
    pub const fn first(self) -> FencingToken {
        self.first
    }

    /// The greatest token.
    pub const fn last(self) -> FencingToken {
        self.last
    }

    /// The number of tokens.
    pub fn count(self) -> NonZeroU32 {
        let more = u32::try_from(self.last.get() - self.first.get()).unwrap_or(u32::MAX);
        NonZeroU32::MIN.saturating_add(more)
    }
}

/// A single token.
impl From<FencingToken> for TokenBlock {
    fn from(token: FencingToken) -> Self {
        Self { first: token, last: token }
    }
}

/// The tokens of the next grant of a single authority: the memory of a process, the files of a machine, one Redis server.
/// They end with `max(now, previous + 1)` by the clock of the authority, and start at `previous + 1` at the lowest; at
/// most `wanted`, at least one. An authority without a stored token (`previous` = 0) grants one.
///
/// So a block never exceeds the time of the authority. Only if the last token is not behind the time, because grants follow
/// each other within a microsecond or the clock was set back, the next one is greater by one. Tokens are ahead of
/// the time by at most the number of grants within a microsecond, so an authority that loses them, and takes
/// longer than that to restart, still grants greater ones.
///
/// No proposal is used. If several nodes must agree on a token, one is needed: [`crate::next_proposed_block`].
///
/// # Errors
/// [`Invalid`] at the maximum token.
pub fn next_block(previous: u64, now: u64, wanted: NonZeroU32) -> Result<TokenBlock, Invalid> {
    let last = FencingToken::new(now.max(previous.saturating_add(1)))?;
    let room = if previous == 0 { 1 } else { last.get() - previous };
    let count = u32::try_from(room).unwrap_or(u32::MAX).min(wanted.get());
    Ok(TokenBlock::ending(last, NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_780_000_000_000_000;

    fn block(previous: u64, now: u64, wanted: u32) -> (u64, u64) {
        let block = next_block(previous, now, NonZeroU32::new(wanted).unwrap()).unwrap();
        assert_eq!(u64::from(block.count().get()), block.last().get() - block.first().get() + 1);
        (block.first().get(), block.last().get())
    }

    #[test]
    fn a_block_ends_at_the_time_and_reaches_down() {
        assert_eq!(block(NOW - 500, NOW, 1), (NOW, NOW));
        assert_eq!(block(NOW - 500, NOW, 64), (NOW - 63, NOW));
        assert_eq!(block(NOW - 500, NOW, 500), (NOW - 499, NOW));
    }

    #[test]
    fn a_block_that_would_reach_above_the_time_has_fewer_tokens() {
        assert_eq!(block(NOW - 500, NOW, 600), (NOW - 499, NOW));
        assert_eq!(block(NOW - 1, NOW, 600), (NOW, NOW));
    }

    #[test]
    fn a_last_token_that_is_not_behind_the_time_is_followed_by_one() {
        assert_eq!(block(NOW, NOW, 600), (NOW + 1, NOW + 1));
        assert_eq!(block(NOW + 7_000_000, NOW, 600), (NOW + 7_000_001, NOW + 7_000_001));
    }

    #[test]
    fn an_authority_that_remembers_nothing_grants_the_time_alone() {
        assert_eq!(block(0, NOW, 100_000), (NOW, NOW));
        assert_eq!(block(0, 0, 3), (1, 1));
    }

    #[test]
    fn the_last_number_is_given_and_then_no_more() {
        let max = FencingToken::MAX;
        assert_eq!(block(max - 1, NOW, 64), (max, max));
        assert!(next_block(max, NOW, NonZeroU32::MIN).is_err());
        assert!(next_block(u64::MAX, 0, NonZeroU32::MAX).is_err());
        assert!(next_block(0, u64::MAX, NonZeroU32::MIN).is_err());
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
        fn every_token_is_new_and_not_ahead_of_the_time(
            ahead in 0..3_000_000u64, behind in 0..3_000_000u64, wanted in 1..3_000_000u32,
        ) {
            let previous = NOW + ahead - behind;
            let (first, last) = block(previous, NOW, wanted);
            prop_assert!(previous < first && first <= last && last - first < u64::from(wanted));
            prop_assert_eq!(last, NOW.max(previous + 1));
        }
    }
}
