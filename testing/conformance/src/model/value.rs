use std::fmt;
use std::sync::Arc;

/// The value of the user's key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// A lock of fencelock: 32 hexadecimal digits, a space, and the owner.
    Ours {
        /// The holder id.
        holder: u128,
        /// The text after the space; `None` without a space.
        owner: Option<Arc<str>>,
    },
    /// Any other string.
    Foreign(Arc<str>),
    /// A value of another type.
    Other(Kind),
}

/// A Redis type other than string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A hash.
    Hash,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    Zset,
    /// A stream.
    Stream,
}

impl Kind {
    /// The name in the reply of `TYPE`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::Zset => "zset",
            Self::Stream => "stream",
        }
    }
}

impl Value {
    /// A lock of this holder, without an owner.
    pub const fn of(holder: u128) -> Self {
        Self::Ours { holder, owner: None }
    }

    /// Parses a string value.
    pub fn parse(text: &str) -> Self {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let ours = text
            .split_at_checked(32)
            .filter(|(id, rest)| id.bytes().all(digit) && (rest.is_empty() || rest.starts_with(' ')));
        match ours.and_then(|(id, rest)| Some((u128::from_str_radix(id, 16).ok()?, rest))) {
            Some((holder, rest)) => Self::Ours { holder, owner: rest.strip_prefix(' ').map(Arc::from) },
            None => Self::Foreign(text.into()),
        }
    }

    /// The holder, if this is a lock of fencelock.
    pub const fn holder(&self) -> Option<u128> {
        match self {
            Self::Ours { holder, .. } => Some(*holder),
            _ => None,
        }
    }

    /// Whether this is a lock of a later version, in an unknown format.
    pub fn is_later(&self) -> bool {
        matches!(self, Self::Foreign(text) if text.starts_with("fencelock:"))
    }

    /// The type in the reply of a script: empty for a string.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Other(kind) => kind.name(),
            _ => "",
        }
    }
}

/// The string; empty for another type.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours { holder, owner: None } => write!(f, "{holder:032x}"),
            Self::Ours { holder, owner: Some(owner) } => write!(f, "{holder:032x} {owner}"),
            Self::Foreign(text) => f.write_str(text),
            Self::Other(_) => Ok(()),
        }
    }
}
