use fencelock_core::Mode;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The mode of a hold. A line without a mode is about an exclusive hold, as in histories that were recorded before modes
/// existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HoldMode {
    /// The only holder.
    #[default]
    Exclusive,
    /// A reader.
    Shared,
    /// A holder of permits of a semaphore.
    Permits {
        /// The weight of the hold.
        weight: u32,
        /// The limit of the semaphore.
        limit: u32,
    },
}

impl HoldMode {
    /// Whether holders in these two modes can never hold a key at the same time.
    pub const fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => false,
            (Self::Permits { weight, limit }, Self::Permits { weight: other, limit: same }) => {
                limit != same || weight as u64 + other as u64 > limit as u64
            }
            _ => true,
        }
    }

    // serde passes a reference.
    pub(super) fn is_exclusive(&self) -> bool {
        *self == Self::Exclusive
    }
}

impl From<Mode> for HoldMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Shared => Self::Shared,
            Mode::Permits { weight, limit, .. } => Self::Permits { weight, limit },
            // An unknown mode is checked most strictly.
            _ => Self::Exclusive,
        }
    }
}

impl fmt::Display for HoldMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permits { weight, limit } => write!(f, "{weight} of {limit}"),
        }
    }
}
