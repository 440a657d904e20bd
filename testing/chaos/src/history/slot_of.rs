use serde::{Deserialize, Serialize};
use std::fmt;

/// A numbered slot of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotOf {
    /// Its number, from 0.
    pub number: u32,
    /// The number of slots, as its holder requested it.
    pub slots: u32,
}

impl fmt::Display for SlotOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} of {}", self.number, self.slots)
    }
}
