use fencelock_core::Mode;
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
    /// A lock that several clients hold together.
    Shared {
        /// The limit of a semaphore; `None` if it is a shared lock.
        limit: Option<u32>,
        /// The first token granted.
        first: u64,
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

    /// A lock in this mode, which is not exclusive.
    pub(super) const fn shared(mode: Mode, first: u64) -> Self {
        let limit = if let Mode::Permits { limit, .. } = mode { Some(limit) } else { None };
        Self::Shared { limit, first }
    }

    /// The mode of a lock that several clients hold together, with weight 1.
    pub(super) fn shared_mode(&self) -> Option<Mode> {
        let Self::Shared { limit, .. } = self else { return None };
        limit.map_or(Some(Mode::Shared), |limit| Mode::permits(1, limit).ok())
    }

    fn parse_shared(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0 && number.to_string() == text);
        if let Some(first) = text.strip_prefix("fencelock:1:r:0:") {
            return Some(Self::Shared { limit: None, first: number(first)? });
        }
        let (limit, first) = text.strip_prefix("fencelock:1:s:")?.split_once(':')?;
        let limit = u32::try_from(number(limit)?).ok().filter(|limit| *limit <= Mode::MOST_PERMITS)?;
        Some(Self::Shared { limit: Some(limit), first: number(first)? })
    }

    /// Parses a string value.
    pub fn parse(text: &str) -> Self {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let ours = text
            .split_at_checked(32)
            .filter(|(id, rest)| id.bytes().all(digit) && (rest.is_empty() || rest.starts_with(' ')));
        match ours.and_then(|(id, rest)| Some((u128::from_str_radix(id, 16).ok()?, rest))) {
            Some((holder, rest)) => Self::Ours { holder, owner: rest.strip_prefix(' ').map(Arc::from) },
            None => Self::parse_shared(text).unwrap_or_else(|| Self::Foreign(text.into())),
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
            Self::Shared { limit: None, first } => write!(f, "fencelock:1:r:0:{first}"),
            Self::Shared { limit: Some(limit), first } => write!(f, "fencelock:1:s:{limit}:{first}"),
            Self::Foreign(text) => f.write_str(text),
            Self::Other(_) => Ok(()),
        }
    }
}
