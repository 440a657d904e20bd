use crate::FencingToken;

/// The answer of one node to a raise of its fence. No answer is no ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Raise {
    /// The node is locked by this attempt, and its fence is at least the one asked for.
    Acked,
    /// It is not, or it was granted to this attempt with a greater fence. Nothing was done.
    Refused,
}

/// The node's side of a raise, to be run in one piece: its new fence, or `None` if it must refuse.
///
/// `granted` is the fence of the node's own grant to this holder, `None` if the holder does not hold the key there; `fence` is the
/// greatest fence that the node has given. Of an exclusive hold the two are equal. Beside other readers the fence may be greater:
/// it belongs to another reader, and two readers need no order.
///
/// Both conditions are necessary. Without the first, nodes that never granted would confirm a token that other holders got
/// too; without `granted <= to`, a claim that ran twice leads to the same token for two holders. A search found each case.
pub fn raise_fence(granted: Option<u64>, fence: u64, to: FencingToken) -> Option<u64> {
    granted.filter(|&granted| granted <= to.get()).map(|_| fence.max(to.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_grant_of_a_holder_is_raised_and_no_fence_is_lowered() {
        let to = FencingToken::new(7).unwrap();
        for (granted, fence, raised) in [
            (Some(5), 5, Some(7)),
            (Some(7), 7, Some(7)),
            (Some(8), 8, None),
            (Some(5), 9, Some(9)),
            (Some(8), 9, None),
            (None, 0, None),
            (None, 5, None),
        ] {
            assert_eq!(raise_fence(granted, fence, to), raised, "granted={granted:?} fence={fence}");
        }
    }
}
