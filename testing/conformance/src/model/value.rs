use std::fmt;
use std::sync::Arc;

/// What can stand under the user's key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// A lock of ours: 32 hexadecimal digits, and after a space who that is.
    Ours {
        /// The digits.
        holder: u128,
        /// What follows the space; `None` if there is not even that.
        owner: Option<Arc<str>>,
    },
    /// Any other string.
    Foreign(Arc<str>),
    /// No string at all.
    Other(Kind),
}

/// A type of Redis that is no string.
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
    /// As the command `TYPE` calls it.
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
    /// A lock of this holder, without a word about who that is.
    pub const fn of(holder: u128) -> Self {
        Self::Ours { holder, owner: None }
    }

    /// A string as it stands on the server.
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

    /// Whose lock it is, if it is one of ours.
    pub const fn holder(&self) -> Option<u128> {
        match self {
            Self::Ours { holder, .. } => Some(*holder),
            _ => None,
        }
    }

    /// Whether it is a lock of a later version, in a form that this one does not know.
    pub fn is_later(&self) -> bool {
        matches!(self, Self::Foreign(text) if text.starts_with("fencelock:"))
    }

    /// The type as scripts answer it: nothing for a string.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Other(kind) => kind.name(),
            _ => "",
        }
    }
}

/// The string; nothing for another type.
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
