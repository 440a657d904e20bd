//! Whoever comes in while the process of a holder stands still.

use super::NotRun;
use super::books::Books;
use fencelock::Clock;
use fencelock::backends::BootClock;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Nobody stands still for longer, also if nobody else comes.
const LONGEST: Duration = Duration::from_secs(10);
/// Between two looks into the books.
const PAUSE: Duration = Duration::from_millis(5);

/// Somebody who has come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entrance {
    /// To which number, counted from 0.
    pub account: u32,
    /// The how-manieth there, counted from 1.
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

/// Watches an account for somebody who comes in after a holder whose process stands still.
#[derive(Debug)]
pub struct Successor {
    books: Books,
    ttl: Duration,
    comes: bool,
}

impl Successor {
    /// `comes` says whether anybody will.
    pub(super) fn new(books: Books, ttl: Duration, comes: bool) -> Self {
        Self { books, ttl, comes }
    }

    /// Blocks until the lock of a holder that renews it no more has ended, and somebody has come in after it: but not where the
    /// scheme lets nobody in, not for longer than 10 s, and not when `is_over`.
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
        Ok(!self.comes || spent > LONGEST || self.books.entered(holder.account)? > holder.number)
    }
}
