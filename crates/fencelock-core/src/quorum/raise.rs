use crate::FencingToken;

/// The answer of one node to a raise of its fence. No answer is no ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Raise {
    /// The node is locked by this attempt, and its fence is the one asked for.
    Acked,
    /// It is not, or its fence was already beyond. Nothing was done.
    Refused,
}

/// The node's side of a raise, to be run in one piece: its new fence, or `None` if it must refuse.
///
/// Both conditions are necessary. Without the first, nodes that never granted would confirm a token that other holders got
/// too; without `fence <= to`, a claim that ran twice leads to the same token for two holders. A search found each case.
pub fn raise_fence<H: PartialEq>(lock: Option<&H>, holder: &H, fence: u64, to: FencingToken) -> Option<FencingToken> {
    (lock == Some(holder) && fence <= to.get()).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_holders_own_node_is_raised_and_never_lowered() {
        let to = FencingToken::new(7).unwrap();
        for (lock, fence, acked) in
            [(Some('a'), 5, true), (Some('a'), 7, true), (Some('a'), 8, false), (Some('b'), 5, false), (None, 0, false)]
        {
            let new = raise_fence(lock.as_ref(), &'a', fence, to);
            assert_eq!(new, acked.then_some(to), "lock={lock:?} fence={fence}");
        }
    }
}
