use crate::FencingToken;
use std::fmt;

/// Checks fencing tokens at the receiver: it rejects a token smaller than the greatest it has seen.
///
/// Keep one for each key, next to the protected data, and call it in the same step as the write: under the same
/// mutex, in the same transaction. Equal tokens pass, because one hold may write many times.
///
/// ```
/// use fencelock_core::{FenceGate, FencingToken};
///
/// let token = |number| FencingToken::new(number).unwrap();
/// let mut gate = FenceGate::default();
/// assert!(gate.admit(token(7)).is_ok());
/// assert!(gate.admit(token(9)).is_ok());
/// let superseded = gate.admit(token(7)).unwrap_err();
/// assert_eq!(superseded.greatest, token(9));
/// ```
///
/// If the receiver is a database, the gate is a column. In SQL every protected write is
///
/// ```sql
/// UPDATE stock SET pieces = :pieces, fence = :token WHERE item = :item AND fence <= :token;
/// ```
///
/// and no changed row means that the write was rejected. In Redis it is a script, with the token in `ARGV[1]`:
///
/// ```lua
/// if tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') > tonumber(ARGV[1]) then return 0 end
/// redis.call('HSET', KEYS[1], 'fence', unpack(ARGV))
/// return 1
/// ```
///
/// The rules for a receiver and more recipes are in `docs/en/fencing.md` of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FenceGate {
    greatest: Option<FencingToken>,
}

/// The result for a stale token: a greater one was used before. The writer must stop, because another holder
/// has replaced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Superseded {
    /// The stale token.
    pub token: FencingToken,
    /// The greatest token seen.
    pub greatest: FencingToken,
}

impl FenceGate {
    /// A gate that continues from a stored state: `greatest` is the token that was stored with the data.
    pub const fn resume(greatest: Option<FencingToken>) -> Self {
        Self { greatest }
    }

    /// Accepts a write, and stores its token.
    ///
    /// # Errors
    /// [`Superseded`] if a greater token was seen; the gate has not changed.
    pub fn admit(&mut self, token: FencingToken) -> Result<(), Superseded> {
        match self.greatest {
            Some(greatest) if greatest > token => Err(Superseded { token, greatest }),
            _ => {
                self.greatest = Some(token);
                Ok(())
            }
        }
    }

    /// The greatest token seen, to be stored with the data; `None` before the first.
    pub const fn greatest(&self) -> Option<FencingToken> {
        self.greatest
    }
}

impl fmt::Display for Superseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the fencing token {} is superseded: {} was here before", self.token, self.greatest)
    }
}

impl std::error::Error for Superseded {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    #[test]
    fn the_first_token_passes_whatever_it_is() {
        assert!(FenceGate::default().admit(token(1)).is_ok());
        assert!(FenceGate::default().admit(token(FencingToken::MAX)).is_ok());
    }

    #[test]
    fn one_hold_may_write_many_times() {
        let mut gate = FenceGate::default();
        assert!((0..3).all(|_| gate.admit(token(5)).is_ok()));
    }

    #[test]
    fn a_refusal_names_both_tokens_and_changes_nothing() {
        let mut gate = FenceGate::resume(Some(token(9)));
        let superseded = gate.admit(token(7)).unwrap_err();
        assert_eq!(superseded.to_string(), "the fencing token 7 is superseded: 9 was here before");
        assert_eq!(gate.greatest(), Some(token(9)));
    }

    proptest! {
        #[test]
        fn what_passes_never_falls(numbers in prop::collection::vec(1..100u64, 1..50)) {
            let mut gate = FenceGate::default();
            let passed: Vec<u64> = numbers.iter().copied().filter(|number| gate.admit(token(*number)).is_ok()).collect();
            prop_assert!(passed.is_sorted());
            prop_assert_eq!(passed.last().copied(), numbers.iter().copied().max());
        }
    }
}
