use crate::{FencingToken, Holder, HolderId, Key};
use std::fmt;
use std::time::Duration;

/// Who has a key.
///
/// Exhaustive: what is not one of ours is foreign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occupant {
    /// A holder of ours, with its owner.
    Holder(Holder),
    /// Something that another program put there. The text says what it looks like, for people.
    Foreign(String),
}

impl Occupant {
    /// Reads a value from the wire.
    pub fn from_wire(value: &str) -> Self {
        match Holder::from_wire(value) {
            Some(holder) => Self::Holder(holder),
            None => Self::Foreign(format!("value {:?}", excerpt(value))),
        }
    }

    /// The proof, if it is one of ours.
    pub fn holder_id(&self) -> Option<HolderId> {
        match self {
            Self::Holder(holder) => Some(holder.id),
            Self::Foreign(_) => None,
        }
    }
}

/// Foreign values may be of any length; forty characters are enough to recognise one.
fn excerpt(value: &str) -> String {
    let mut text: String = value.chars().take(40).collect();
    if text.len() < value.len() {
        text.push_str("...");
    }
    text
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holder(holder) => fmt::Display::fmt(&holder.owner, f),
            Self::Foreign(what) => write!(f, "another program ({what})"),
        }
    }
}

/// When a hold ends by itself.
///
/// Exhaustive: there is no third way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// After this long, unless renewed.
    In(Duration),
    /// Never: the end of the holder's process frees it, or nothing does.
    Never,
}

impl Expiry {
    /// The span, if there is one.
    pub const fn span(self) -> Option<Duration> {
        match self {
            Self::In(span) => Some(span),
            Self::Never => None,
        }
    }
}

/// What a backend knows of a held key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holding {
    /// What is held.
    pub key: Key,
    /// By whom.
    pub occupant: Occupant,
    /// When it ends by itself.
    pub expiry: Expiry,
    /// The greatest fencing token that the hold may use, and mostly the only one; unknown for foreign holds.
    pub fence: Option<FencingToken>,
    /// How long it has been held, where that is known.
    pub held_for: Option<Duration>,
    /// How many stand in line where the lock lives; 0 where there is no line. Tasks of one client that share leases are one
    /// waiter there.
    pub waiters: u32,
}

impl Holding {
    /// Its fence and its age are unknown, and nobody waits.
    pub const fn new(key: Key, occupant: Occupant, expiry: Expiry) -> Self {
        Self { key, occupant, expiry, fence: None, held_for: None, waiters: 0 }
    }

    /// The same with its greatest fencing token, if that is known.
    #[must_use]
    pub const fn with_fence(mut self, fence: Option<FencingToken>) -> Self {
        self.fence = fence;
        self
    }

    /// The same with how long it has been held, if that is known.
    #[must_use]
    pub const fn with_held_for(mut self, held_for: Option<Duration>) -> Self {
        self.held_for = held_for;
        self
    }

    /// The same with how many stand in line.
    #[must_use]
    pub const fn with_waiters(mut self, waiters: u32) -> Self {
        self.waiters = waiters;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_value_is_shown_cut_and_quoted() {
        let Occupant::Foreign(text) = Occupant::from_wire(&"x\n".repeat(100)) else { panic!("not ours") };
        assert!(text.len() < 80 && text.contains("\\n") && text.contains("..."), "{text}");
    }
}
