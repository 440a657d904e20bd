use crate::{Holder, HolderId};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The holder of a key.
///
/// Exhaustive: a value that is not a fencelock lock is foreign.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Occupant {
    /// A fencelock holder, with its owner.
    Holder(Holder),
    /// A value of another program.
    Foreign(Foreign),
}

impl Occupant {
    /// Parses a value from the server.
    pub fn from_wire(value: &str) -> Self {
        match Holder::from_wire(value) {
            Some(holder) => Self::Holder(holder),
            None => Self::Foreign(Foreign::string(value)),
        }
    }

    /// The holder id, if it is a fencelock lock.
    pub fn holder_id(&self) -> Option<HolderId> {
        match self {
            Self::Holder(holder) => Some(holder.id),
            Self::Foreign(_) => None,
        }
    }
}

/// The displayed part of a foreign value: type, length, and the first characters.
///
/// The value of a lock of another library is the proof with which that library releases it. So at most its first 8 characters
/// are stored, and at most half of it. Two are equal if the complete values have the same digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Foreign {
    text: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kind {
    /// With the digest of the value.
    String(u64),
    Other,
    Unread,
}

impl Foreign {
    /// A string that may be a lock of another library.
    pub fn string(value: &str) -> Self {
        let shown: String = value.chars().take(8.min(value.chars().count() / 2)).collect();
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        let bytes = value.len();
        Self { text: format!("a string of {bytes} bytes, {shown:?}..."), kind: Kind::String(hasher.finish()) }
    }

    /// A value that is not a lock of a known library: a hash, or a file locked by another program. The text describes it.
    pub fn other(what: impl Into<String>) -> Self {
        Self { text: what.into(), kind: Kind::Other }
    }

    /// What cannot be read, so whether the key is held is unknown. The text says why.
    pub fn unread(why: impl Into<String>) -> Self {
        Self { text: why.into(), kind: Kind::Unread }
    }

    /// Whether it is a string that may be a lock of another library.
    pub const fn is_string(&self) -> bool {
        matches!(self.kind, Kind::String(_))
    }

    /// Whether it cannot be read, so that nobody may hold the key.
    pub const fn is_unread(&self) -> bool {
        matches!(self.kind, Kind::Unread)
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
            Self::Foreign(foreign) if foreign.is_unread() => write!(f, "unknown ({foreign})"),
            Self::Foreign(foreign) => write!(f, "another program ({foreign})"),
        }
    }
}

/// When a hold expires.
///
/// Exhaustive: there is no third case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// After this time, unless renewed.
    In(Duration),
    /// Never: it ends with the process of its holder, or only by a release.
    Never,
}

impl Expiry {
    /// The earlier one.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::In(one), Self::In(other)) => Self::In(one.min(other)),
            (Self::Never, some) | (some, Self::Never) => some,
        }
    }

    /// The time, if there is one.
    pub const fn span(self) -> Option<Duration> {
        match self {
            Self::In(span) => Some(span),
            Self::Never => None,
        }
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
