use crate::time::micros;
use crate::{FencingToken, Invalid, TokenBlock};
use std::num::NonZeroU32;
use std::time::Duration;

/// How far a proposal may differ from the clock of the node.
const CLAMP: Duration = Duration::from_secs(1);

/// How far a proposal makes room for a whole block. The rest is for clients whose clocks are ahead of the nodes.
const LONGEST_AHEAD: Duration = Duration::from_millis(500);

/// The fence that a claim of `block` tokens proposes to every node. It is beyond `seen`, the greatest fence that any
/// node has reported, so that no node has to move it: by the whole block, unless that is so far ahead of the time that each
/// node could clamp it to a time of its own. Then it is the time, and nodes whose fences are equal and ahead of it grant equal
/// blocks.
pub fn proposal(wall_micros: u64, seen: u64, block: NonZeroU32) -> u64 {
    let now = wall_micros.saturating_add(1);
    let whole = seen.saturating_add(block.get().into());
    let ahead = micros(LONGEST_AHEAD);
    if whole <= wall_micros.saturating_add(ahead) { now.max(whole) } else { now }
}

/// The tokens of the next grant on a node of a quorum, at most `wanted`. The last one is
/// `max(previous + n, clamp(proposal, node time +- 1 s))`, where n is `wanted`, or, if a token would be more than 1 s ahead of
/// the node's time, the greatest power of two that fits, at least 1. A node without a clock (`None`) uses the proposal.
///
/// The clocks of the nodes differ a little, so the nodes have room for different numbers of tokens. With powers of two, most
/// such nodes still grant the same block. Without, each grants one of its own, and a raised round has a single token: a client
/// that uses up tokens faster than the time passes would get one in two round trips.
///
/// A quorum wins in one round trip if its nodes grant the same token, so a client proposes the same token to all of
/// them. The clamp prevents a client whose clock is far ahead from pushing the fence ahead of all other clocks. So a
/// node may have granted tokens up to 1 s ahead of its time, and after a loss of data it could grant smaller ones:
/// therefore a node that may have lost data does not grant before the end of its quarantine, which is at least 4 s
/// ([`crate::quarantine`]). A backend without such a quarantine generates its tokens by [`crate::next_block`].
///
/// Each of these tokens, however many are wanted, has the properties of a single token: it is greater than `previous`,
/// at most 1 s ahead of the node's time unless it is `previous + 1`, and at most 1 s behind it.
///
/// # Errors
/// [`Invalid`] if the token would exceed the largest one.
pub fn next_proposed_block(
    previous: u64,
    proposal: u64,
    node_micros: Option<u64>,
    wanted: NonZeroU32,
) -> Result<TokenBlock, Invalid> {
    let clamp = micros(CLAMP);
    let now = node_micros.unwrap_or(proposal);
    let (floor, ceiling) = (now.saturating_sub(clamp), now.saturating_add(clamp));
    let room = ceiling.min(FencingToken::MAX).saturating_sub(previous);
    let fitting = room.checked_ilog2().map_or(1, |power| 1 << power);
    let count = if u64::from(wanted.get()) <= room { u64::from(wanted.get()) } else { fitting };
    let last = FencingToken::new(previous.saturating_add(count).max(proposal.clamp(floor, ceiling)))?;
    let count = count.min((last.get() + 1).saturating_sub(floor)).max(1);
    Ok(TokenBlock::ending(last, u32::try_from(count).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_780_000_000_000_000;

    fn block(previous: u64, proposal: u64, now: Option<u64>, wanted: u32) -> (u64, u64) {
        let block = next_proposed_block(previous, proposal, now, NonZeroU32::new(wanted).unwrap()).unwrap();
        (block.first().get(), block.last().get())
    }

    #[test]
    fn a_proposal_follows_the_clock_and_its_block_fits() {
        let block = NonZeroU32::new(64).unwrap();
        assert_eq!((proposal(1000, 900, block), proposal(1000, 990, block)), (1001, 1054));
    }

    #[test]
    fn a_proposal_is_not_far_ahead_of_the_clock() {
        let block = NonZeroU32::new(64).unwrap();
        assert_eq!(proposal(NOW, NOW + 499_936, block), NOW + 500_000);
        assert_eq!(proposal(NOW, NOW + 499_937, block), NOW + 1);
        assert_eq!(proposal(NOW, u64::MAX, block), NOW + 1);
    }

    #[test]
    fn a_proposal_in_the_future_or_the_past_is_clamped_to_a_second() {
        assert_eq!(block(0, NOW, Some(NOW), 1), (NOW, NOW));
        assert_eq!(block(0, u64::MAX, Some(NOW), 1), (NOW + 1_000_000, NOW + 1_000_000));
        assert_eq!(block(0, 1, Some(NOW), 1), (NOW - 1_000_000, NOW - 1_000_000));
    }

    #[test]
    fn a_clock_that_steps_back_cannot_lower_the_fence() {
        assert_eq!(block(NOW, NOW - 5_000_000, Some(NOW - 5_000_000), 1), (NOW + 1, NOW + 1));
    }

    #[test]
    fn a_block_ends_at_the_single_token_if_enough_tokens_are_free_below() {
        assert_eq!(block(NOW - 500, NOW, Some(NOW), 1), (NOW, NOW));
        assert_eq!(block(NOW - 500, NOW, Some(NOW), 64), (NOW - 63, NOW));
        assert_eq!(block(NOW - 500, NOW, Some(NOW), 500), (NOW - 499, NOW));
    }

    #[test]
    fn without_free_tokens_below_it_reaches_ahead_by_a_second_at_most() {
        assert_eq!(block(NOW - 500, NOW, Some(NOW), 600), (NOW - 499, NOW + 100));
        assert_eq!(block(NOW + 999_990, NOW, Some(NOW), 600), (NOW + 999_991, NOW + 999_998));
        assert_eq!(block(NOW + 999_400, NOW, Some(NOW), 600), (NOW + 999_401, NOW + 1_000_000));
        assert_eq!(block(NOW + 999_999, NOW, Some(NOW), 600), (NOW + 1_000_000, NOW + 1_000_000));
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
        assert_eq!(block(0, 17, None, 1), (17, 17));
        assert_eq!(block(0, NOW, None, 64), (NOW - 63, NOW));
        assert_eq!(block(NOW + 10, NOW, None, 64), (NOW + 11, NOW + 74));
        assert_eq!(block(1000, 17, None, 2), (1001, 1002));
    }

    #[test]
    fn the_last_numbers_are_given_and_then_no_more() {
        let max = FencingToken::MAX;
        assert_eq!(block(max - 3, max, None, 64), (max - 1, max));
        assert_eq!(block(max - 1, max, None, 64), (max, max));
        assert!(next_proposed_block(max, max, None, NonZeroU32::MIN).is_err());
        assert!(next_proposed_block(u64::MAX, 0, None, NonZeroU32::MAX).is_err());
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
