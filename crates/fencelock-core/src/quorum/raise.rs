use crate::FencingToken;

/// The reply of a node to a raise of its fence. A missing reply is not an ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Raise {
    /// This attempt has the lock of the node, and the fence is at least the requested one.
    Acked,
    /// This attempt does not have the lock, or was granted a greater fence. The node changed nothing.
    Refused,
}

/// The node's side of a raise, which must be atomic: the new fence, or `None` if the node must refuse.
///
/// `granted` is the fence that the node granted to this holder, `None` if the holder does not hold the key there;
/// `fence` is the greatest fence of the node. For an exclusive hold the two are equal. If there are other readers, the fence
/// may be greater: it belongs to another reader, and readers need no order.
///
/// Both conditions are necessary. Without the first, nodes that never granted would confirm a token that another holder has
/// too; without `granted <= to`, a claim that runs twice can give the same token to two holders. The search finds both.
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
