use crate::Invalid;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// A number that increases with every grant of a key, and so detects a holder that was paused.
///
/// Send it with every write to the protected resource, and let the receiver reject a token smaller than the
/// greatest it has seen. Then a holder that was paused beyond the end of its lease does no harm.
///
/// It is a number of microseconds, from 1 to 2^53 - 1, so that Lua, JavaScript and a double represent it exactly. It is
/// close to the time of the grant, but do not rely on that: only the order is guaranteed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(try_from = "u64", into = "u64"))]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The greatest exact integer of a double; as microseconds since 1970 it is in the year 2255.
    pub const MAX: u64 = (1 << 53) - 1;

    /// # Errors
    /// [`Invalid`] for zero and above [`FencingToken::MAX`].
    pub fn new(value: u64) -> Result<Self, Invalid> {
        NonZeroU64::new(value).filter(|v| v.get() <= Self::MAX).map(Self).ok_or_else(|| out_of_range(value))
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

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

/// Always fits: a token is less than 2^53. Most databases have signed integers.
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.get().cast_signed()
    }
}

impl From<FencingToken> for NonZeroU64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = Invalid;

    fn try_from(value: u64) -> Result<Self, Invalid> {
        Self::new(value)
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = Invalid;

    fn try_from(value: i64) -> Result<Self, Invalid> {
        // Negative numbers are out of range too, and the message shows them unchanged.
        u64::try_from(value).map_err(|_| out_of_range(value)).and_then(Self::new)
    }
}

impl FromStr for FencingToken {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let value = text.parse().map_err(|_| Invalid::new(format!("a fencing token is a number, not {text:?}")))?;
        Self::new(value)
    }
}

fn out_of_range(value: impl fmt::Display) -> Invalid {
    Invalid::new(format!("a fencing token lies between 1 and 2^53 - 1; {value} does not"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_into_signed_and_unsigned_integers() {
        for number in [1, 1 << 52, FencingToken::MAX] {
            let token = FencingToken::new(number).unwrap();
            assert_eq!((u64::from(token), NonZeroU64::from(token).get()), (number, number));
            assert_eq!(i64::from(token), i64::try_from(number).unwrap());
            assert_eq!(FencingToken::try_from(number).unwrap(), token);
            assert_eq!(FencingToken::try_from(i64::from(token)).unwrap(), token);
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_and_shown_as_given() {
        for number in [0, -1, i64::MIN, i64::MAX] {
            let error = FencingToken::try_from(number).unwrap_err().to_string();
            assert!(error.contains(&format!("; {number} does not")), "{error}");
        }
        assert!(FencingToken::try_from(0u64).is_err() && FencingToken::try_from(FencingToken::MAX + 1).is_err());
    }

    #[test]
    fn a_token_lies_between_one_and_what_a_double_holds() {
        for (text, fits) in [("1", true), ("9007199254740991", true), ("0", false), ("9007199254740992", false)] {
            assert_eq!(text.parse::<FencingToken>().is_ok(), fits, "{text}");
        }
    }
}
