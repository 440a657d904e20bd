use crate::error::Error;
use fencelock_core::{Key, LossReason};

/// One lock of several that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// What was held.
    pub key: Key,
    /// Why it is lost.
    pub reason: LossReason,
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        Self::lost(loss.key, loss.reason)
    }
}
