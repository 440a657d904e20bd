//! One scheme's turn.

use super::books::Books;
use super::job::{Job, Tally};
use super::score::Score;
use super::{Load, NotRun, Successor, Way};
use crate::server::Server;
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment};
use std::time::Duration;

/// The keys of one scheme's turn on the server. They are removed when it is dropped, whatever happened.
#[derive(Debug)]
pub struct Round {
    books: Books,
    url: String,
    prefix: String,
    scheme: String,
    load: Load,
}

impl Round {
    /// Writes the numbers as they are at first.
    ///
    /// # Errors
    /// [`NotRun`], also if there is no such scheme.
    pub fn open(url: &str, scheme: &str, load: Load) -> Result<Self, NotRun> {
        let way = Way::of(scheme)?;
        let now = BootClock.now().since(Moment::default()).as_nanos();
        let prefix = format!("fencelock-lab:{{{}-{now}}}:", std::process::id());
        let books = Books::open(Server::connect(url)?, &prefix, way.is_fenced());
        let mut round = Self { books, url: url.to_owned(), prefix, scheme: scheme.to_owned(), load };
        round.books.begin(&load)?;
        Ok(round)
    }

    /// A part for each process.
    pub fn jobs(&self) -> Vec<Job> {
        let job = |process| Job {
            url: self.url.clone(),
            prefix: self.prefix.clone(),
            scheme: self.scheme.clone(),
            process,
            load: self.load,
        };
        (0..self.load.processes).map(job).collect()
    }

    /// For whoever lets a process stand still: tells when somebody else has come in.
    ///
    /// # Errors
    /// [`NotRun`].
    pub fn successor(&self) -> Result<Successor, NotRun> {
        let way = Way::of(&self.scheme)?;
        let books = Books::open(Server::connect(&self.url)?, &self.prefix, way.is_fenced());
        Ok(Successor::new(books, self.load.ttl, way.lets_others_in() && self.load.processes > 1))
    }

    /// Reads the books, when all processes have ended. Those that were killed have no tally.
    ///
    /// # Errors
    /// [`NotRun`].
    pub fn score(&mut self, tallies: &[Tally], took: Duration) -> Result<Score, NotRun> {
        let mut tally = Tally::default();
        for one in tallies {
            tally.add(*one);
        }
        let start = self.load.start();
        let mut score = Score {
            scheme: self.scheme.clone(),
            load: self.load,
            tally,
            took,
            left: 0,
            taken: 0,
            wrong: 0,
            missing: 0,
        };
        for account in 0..self.load.accounts() {
            let (left, taken) = self.books.balance(account)?;
            let missing = left - (start - taken);
            score.left += left;
            score.taken += taken;
            score.wrong += u64::from(missing != 0);
            score.missing += missing.unsigned_abs();
        }
        Ok(score)
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        // A server that is gone by now cannot be cleaned up.
        let _ = self.books.burn();
    }
}
