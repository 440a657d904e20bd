use crate::{Holder, HolderId, HolderInfo, Holders, Key};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Who has a key.
///
/// Exhaustive: what is not one of ours is foreign.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Occupant {
    /// A holder of ours, with its owner.
    Holder(Holder),
    /// Something that another program put there.
    Foreign(Foreign),
}

impl Occupant {
    /// Reads a value from the wire.
    pub fn from_wire(value: &str) -> Self {
        match Holder::from_wire(value) {
            Some(holder) => Self::Holder(holder),
            None => Self::Foreign(Foreign::string(value)),
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

/// What another program put under a key, as far as it is shown: type, length, and the first characters.
///
/// The value of another library's lock is the proof by which that library releases it. So no more than its first 8 characters
/// are kept, and at most half of it. Two of these are equal if the whole values are, as far as a digest can tell.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Foreign {
    text: String,
    is_string: bool,
    digest: u64,
}

impl Foreign {
    /// A string that may be a lock of another library.
    pub fn string(value: &str) -> Self {
        let shown: String = value.chars().take(8.min(value.chars().count() / 2)).collect();
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        let (bytes, is_string) = (value.len(), true);
        Self { text: format!("a string of {bytes} bytes, {shown:?}..."), is_string, digest: hasher.finish() }
    }

    /// Something that is no lock of any library: a hash, a file that somebody has locked. The text says what, for people.
    pub fn other(what: impl Into<String>) -> Self {
        Self { text: what.into(), is_string: false, digest: 0 }
    }

    /// Whether it is a string that may be a lock of another library.
    pub const fn is_string(&self) -> bool {
        self.is_string
    }
}

/// `a string of 36 bytes, "5f3b12ab"...`, `a hash`.
impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holder(holder) => fmt::Display::fmt(&holder.owner, f),
            Self::Foreign(foreign) => write!(f, "another program ({foreign})"),
        }
    }
}

/// When a hold ends by itself.
///
/// Exhaustive: there is no third way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// After this long, unless renewed.
    In(Duration),
    /// Never: the end of the holder's process frees it, or nothing does.
    Never,
}

impl Expiry {
    /// Whichever comes first.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::In(one), Self::In(other)) => Self::In(one.min(other)),
            (Self::Never, some) | (some, Self::Never) => some,
        }
    }

    /// The span, if there is one.
    pub const fn span(self) -> Option<Duration> {
        match self {
            Self::In(span) => Some(span),
            Self::Never => None,
        }
    }
}

/// What a backend knows of a held key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Holding {
    /// What is held.
    pub key: Key,
    /// By whom, and how.
    pub holders: Holders<HolderInfo>,
    /// How many stand in line where the lock lives; 0 where there is no line. Tasks of one client that share leases are one
    /// waiter there.
    pub waiters: u32,
}

impl Holding {
    /// One holder, and nobody waits.
    pub const fn new(key: Key, holder: HolderInfo) -> Self {
        Self { key, holders: Holders::one(holder), waiters: 0 }
    }

    /// The same with one more holder.
    #[must_use]
    pub fn with_holder(mut self, holder: HolderInfo) -> Self {
        self.holders = self.holders.and(holder);
        self
    }

    /// The same with how many stand in line.
    #[must_use]
    pub const fn with_waiters(mut self, waiters: u32) -> Self {
        self.waiters = waiters;
        self
    }

    /// The first holder that is named; of an exclusive lock, the only one.
    pub const fn first(&self) -> &HolderInfo {
        self.holders.first()
    }

    /// What is known of this occupant's hold, if it is named.
    pub fn hold_of(&self, occupant: &Occupant) -> Option<&HolderInfo> {
        self.holders.iter().find(|hold| hold.occupant == *occupant)
    }

    /// Whether this holder is named.
    pub fn has(&self, holder: HolderId) -> bool {
        self.holders.iter().any(|hold| hold.holder_id() == Some(holder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_value_is_shown_cut_and_quoted() {
        let Occupant::Foreign(foreign) = Occupant::from_wire(&"x\n".repeat(100)) else { panic!("not ours") };
        assert_eq!(foreign.to_string(), r#"a string of 200 bytes, "x\nx\nx\nx\n"..."#);
    }

    #[test]
    fn a_short_foreign_value_is_shown_by_half() {
        assert_eq!(Foreign::string("secret").to_string(), r#"a string of 6 bytes, "sec"..."#);
        assert_eq!(Foreign::string("").to_string(), r#"a string of 0 bytes, ""..."#);
    }

    #[test]
    fn foreign_values_that_begin_alike_are_distinguished() {
        assert_ne!(Foreign::string("5f3b12ab-1"), Foreign::string("5f3b12ab-2"));
        assert_eq!(Foreign::string("5f3b12ab-1"), Foreign::string("5f3b12ab-1"));
    }
}
