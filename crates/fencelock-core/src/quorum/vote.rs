use crate::{FencingToken, TokenBlock};

/// The reply of a node to the claim of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vote {
    /// This attempt has the lock of the node, with these tokens; the fence of the node is the last of them.
    Granted(TokenBlock),
    /// Another holder has the lock. The node changed nothing.
    Busy {
        /// The greatest fence of the node, if it reports one; else 0.
        last_fence: u64,
    },
    /// The node is in quarantine, because it may have lost grants. It changed nothing.
    Refused,
    /// No reply, or an inconclusive one. The claim may have been executed, or be executed later.
    Unknown,
}

impl Vote {
    /// The fence that it reports, if any.
    pub const fn fence(self) -> u64 {
        match self {
            Self::Granted(tokens) => tokens.last().get(),
            Self::Busy { last_fence } => last_fence,
            Self::Refused | Self::Unknown => 0,
        }
    }

    /// Whether it is a grant with this fence.
    pub(super) fn ends_with(self, last: FencingToken) -> bool {
        matches!(self, Self::Granted(tokens) if tokens.last() == last)
    }
}
