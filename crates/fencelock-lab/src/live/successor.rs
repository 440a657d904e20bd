//! The next holder after a paused process.

use super::NotRun;
use super::ledger::Ledger;
use fencelock::Clock;
use fencelock::backends::BootClock;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The maximum pause, also if no successor arrives.
const LONGEST: Duration = Duration::from_secs(10);
/// The poll interval.
const PAUSE: Duration = Duration::from_millis(5);

/// An entry into the critical section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entrance {
    /// The account, from 0.
    pub account: u32,
    /// The number of the entry, from 1.
    pub number: i64,
}

impl fmt::Display for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.account, self.number)
    }
}

impl FromStr for Entrance {
    type Err = NotRun;

    fn from_str(text: &str) -> Result<Self, NotRun> {
        let read = || {
            let (account, number) = text.split_once(' ')?;
            Some(Self { account: account.parse().ok()?, number: number.parse().ok()? })
        };
        read().ok_or_else(|| NotRun::Job(text.to_owned()))
    }
}

/// Waits until another client enters after a paused holder.
#[derive(Debug)]
pub struct Successor {
    ledger: Ledger,
    ttl: Duration,
    is_expected: bool,
}

impl Successor {
    /// `is_expected` returns whether a successor can enter.
    pub(super) fn new(ledger: Ledger, ttl: Duration, is_expected: bool) -> Self {
        Self { ledger, ttl, is_expected }
    }

    /// Blocks until the lock of the paused holder has expired and a successor has entered. Returns early if the
    /// scheme admits no successor, after 10 s, or when `is_over`.
    ///
    /// # Errors
    /// [`NotRun`].
    pub fn wait(&mut self, holder: Entrance, is_over: impl Fn() -> bool) -> Result<(), NotRun> {
        let begun = BootClock.now();
        while !is_over() && !self.is_in(holder, BootClock.now().since(begun))? {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn is_in(&mut self, holder: Entrance, spent: Duration) -> Result<bool, NotRun> {
        if spent <= self.ttl {
            return Ok(false);
        }
        Ok(!self.is_expected || spent > LONGEST || self.ledger.entered(holder.account)? > holder.number)
    }
}
