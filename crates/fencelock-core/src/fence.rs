use crate::Invalid;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// A number that grows with every grant of a key: the part of a lock that a paused holder cannot break.
///
/// Send it along with every write to what the lock protects, and let the receiver refuse a token smaller than the
/// greatest it has seen. Then a holder that slept through the end of its lease can do no harm.
///
/// It is a count of microseconds, from 1 to 2^53 - 1, so that Lua, JavaScript and a double hold it exactly. It is close to the time
/// of the grant, but nothing may rest on that: only the order is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The greatest integer that a double counts up to without a gap; as microseconds since 1970 it is in the year 2255.
    pub const MAX: u64 = (1 << 53) - 1;

    /// # Errors
    /// [`Invalid`] for zero and above [`FencingToken::MAX`].
    pub fn new(value: u64) -> Result<Self, Invalid> {
        NonZeroU64::new(value)
            .filter(|v| v.get() <= Self::MAX)
            .map(Self)
            .ok_or_else(|| Invalid::new(format!("a fencing token lies between 1 and 2^53 - 1; {value} does not")))
    }

    /// The number to send with a write.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for FencingToken {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let value = text.parse().map_err(|_| Invalid::new(format!("a fencing token is a number, not {text:?}")))?;
        Self::new(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lies_between_one_and_what_a_double_holds() {
        for (text, fits) in [("1", true), ("9007199254740991", true), ("0", false), ("9007199254740992", false)] {
            assert_eq!(text.parse::<FencingToken>().is_ok(), fits, "{text}");
        }
    }
}
