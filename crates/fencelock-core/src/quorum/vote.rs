use crate::{FencingToken, TokenBlock};

/// The answer of one node to the claim of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vote {
    /// The node is locked by this attempt, with these tokens; its fence is the last of them.
    Granted(TokenBlock),
    /// Another holder has it there. Nothing was done.
    Busy {
        /// The greatest fence the node has given, as far as it says; 0 if it does not.
        last_fence: u64,
    },
    /// The node is in quarantine, because it may have forgotten what it granted. Nothing was done.
    Refused,
    /// No answer, or one that says nothing. The claim may have been carried out, or be carried out later.
    Unknown,
}

impl Vote {
    /// The fence it names, if any.
    pub const fn fence(self) -> u64 {
        match self {
            Self::Granted(tokens) => tokens.last().get(),
            Self::Busy { last_fence } => last_fence,
            Self::Refused | Self::Unknown => 0,
        }
    }

    /// Whether it is a grant that makes the node's fence this one.
    pub(super) fn ends_with(self, last: FencingToken) -> bool {
        matches!(self, Self::Granted(tokens) if tokens.last() == last)
    }
}
