use crate::FencingToken;
use std::fmt;

/// Checks fencing tokens at the receiver: it rejects the token of a holder that a later, conflicting holder has replaced.
///
/// Keep one for each key, next to the protected data, and call it in the same step as the access: under the same
/// mutex, in the same transaction. Equal tokens pass, because one hold may access the data many times.
///
/// ```
/// use fencelock_core::{FenceGate, FencingToken};
///
/// let token = |number| FencingToken::new(number).unwrap();
/// let mut gate = FenceGate::default();
/// assert!(gate.admit_write(token(7)).is_ok());
/// assert!(gate.admit_write(token(9)).is_ok());
/// let superseded = gate.admit_write(token(7)).unwrap_err();
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
/// # Shared locks
/// Readers that hold a key at the same time need no order among each other, but a writer needs one to both sides. So the gate
/// has two numbers, the greatest token of a writer and that of a reader. A reader is rejected after a later writer; a writer is
/// rejected after a later writer or a later reader, whose data it would change.
///
/// ```
/// # use fencelock_core::{FenceGate, FencingToken};
/// # let token = |number| FencingToken::new(number).unwrap();
/// let mut gate = FenceGate::default();
/// assert!(gate.admit_read(token(8)).is_ok());
/// assert!(gate.admit_read(token(7)).is_ok(), "both hold the key");
/// assert!(gate.admit_write(token(6)).is_err(), "a late writer");
/// ```
///
/// The tokens of permits of a semaphore do not work here: no number distinguishes a late holder from one that holds at the same
/// time. A semaphore with slots has a gate for each slot.
///
/// The rules for a receiver and more recipes are in `docs/en/fencing.md` of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FenceGate {
    writer: Option<FencingToken>,
    reader: Option<FencingToken>,
}

/// The result for a stale token: a greater one was used before. The holder must stop, because another one
/// has replaced it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Superseded {
    /// The stale token.
    pub token: FencingToken,
    /// The greatest conflicting token seen.
    pub greatest: FencingToken,
}

impl FenceGate {
    /// A gate that continues from a stored state: the greatest tokens of a writer and of a reader that were stored with the
    /// data. Without shared locks there is no reader.
    pub const fn resume(writer: Option<FencingToken>, reader: Option<FencingToken>) -> Self {
        Self { writer, reader }
    }

    /// Accepts a write, and stores its token.
    ///
    /// # Errors
    /// [`Superseded`] if a greater token of a writer or a reader was seen; the gate has not changed.
    pub fn admit_write(&mut self, token: FencingToken) -> Result<(), Superseded> {
        check(token, self.writer.max(self.reader))?;
        self.writer = Some(token);
        Ok(())
    }

    /// Accepts a read under a shared lock, and stores its token.
    ///
    /// # Errors
    /// [`Superseded`] if a greater token of a writer was seen; the gate has not changed.
    pub fn admit_read(&mut self, token: FencingToken) -> Result<(), Superseded> {
        check(token, self.writer)?;
        self.reader = self.reader.max(Some(token));
        Ok(())
    }

    /// The greatest token of a writer, to be stored with the data; `None` before the first.
    pub const fn greatest_writer(&self) -> Option<FencingToken> {
        self.writer
    }

    /// The greatest token of a reader, to be stored with the data; `None` before the first.
    pub const fn greatest_reader(&self) -> Option<FencingToken> {
        self.reader
    }
}

fn check(token: FencingToken, greatest: Option<FencingToken>) -> Result<(), Superseded> {
    match greatest {
        Some(greatest) if greatest > token => Err(Superseded { token, greatest }),
        _ => Ok(()),
    }
}

impl fmt::Display for Superseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the fencing token {} is superseded: {} was accepted before", self.token, self.greatest)
    }
}

crate::invalid::plain_error!(Superseded);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    #[test]
    fn a_refusal_names_both_tokens_and_changes_nothing() {
        let mut gate = FenceGate::resume(Some(token(9)), None);
        let superseded = gate.admit_write(token(7)).unwrap_err();
        assert_eq!(superseded.to_string(), "the fencing token 7 is superseded: 9 was accepted before");
        assert_eq!(gate.admit_read(token(8)).unwrap_err().greatest, token(9));
        assert_eq!(gate, FenceGate::resume(Some(token(9)), None));
    }

    proptest! {
        #[test]
        fn what_passes_never_falls(numbers in prop::collection::vec(1..100u64, 1..50)) {
            let mut gate = FenceGate::default();
            let passed: Vec<u64> =
                numbers.iter().copied().filter(|number| gate.admit_write(token(*number)).is_ok()).collect();
            prop_assert!(passed.is_sorted());
            prop_assert_eq!(passed.last().copied(), numbers.iter().copied().max());
        }
    }
}
