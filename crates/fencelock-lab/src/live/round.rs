//! One round: a workload with one scheme.

use super::job::{LiveJob, Tally};
use super::ledger::Ledger;
use super::score::Score;
use super::{Load, LockMethodKind, NotRun, Successor};
use crate::load::{Audit, LoadMode};
use crate::server::ServerConnection;
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment};
use std::time::Duration;

/// The keys of one round on the server. Dropping removes them.
#[derive(Debug)]
pub struct Round {
    ledger: Ledger,
    url: String,
    prefix: String,
    scheme: String,
    load: Load,
}

impl Round {
    /// Writes the initial values.
    ///
    /// # Errors
    /// [`NotRun`], also if there is no such scheme.
    pub fn open(url: &str, scheme: &str, load: Load) -> Result<Self, NotRun> {
        let way = LockMethodKind::of(scheme, load.workload)?;
        let now = BootClock.now().since(Moment::default()).as_nanos();
        let prefix = format!("fencelock-lab:{{{}-{now}}}:", std::process::id());
        let ledger = Ledger::open(ServerConnection::connect(url)?, &prefix, way.is_fenced());
        let mut round = Self { ledger, url: url.to_owned(), prefix, scheme: scheme.to_owned(), load };
        round.ledger.begin(&load)?;
        Ok(round)
    }

    /// The jobs of all processes.
    pub fn jobs(&self) -> Vec<LiveJob> {
        let job = |process| LiveJob {
            url: self.url.clone(),
            prefix: self.prefix.clone(),
            scheme: self.scheme.clone(),
            process,
            load: self.load,
        };
        (0..self.load.processes).map(job).collect()
    }

    /// Detects the next holder while a process is paused.
    ///
    /// # Errors
    /// [`NotRun`].
    pub fn successor(&self) -> Result<Successor, NotRun> {
        let way = LockMethodKind::of(&self.scheme, self.load.workload)?;
        let ledger = Ledger::open(ServerConnection::connect(&self.url)?, &self.prefix, way.is_fenced());
        Ok(Successor::new(ledger, self.load.ttl, way.admits_successor() && self.load.processes > 1))
    }

    /// Reads the ledger after all processes have exited. Killed processes have no tally.
    ///
    /// # Errors
    /// [`NotRun`].
    pub fn score(&mut self, tallies: &[Tally], took: Duration) -> Result<Score, NotRun> {
        let mut tally = Tally::default();
        for one in tallies {
            tally.add(one);
        }
        let limit = self.load.permits.into();
        let holds: Vec<_> = tallies.iter().map(|tally| tally.holds.as_slice()).collect();
        let audit = Audit::of(LoadMode::Permits { limit, weight: 1 }, &holds);
        let start = self.load.start();
        let mut score = Score {
            scheme: self.scheme.clone(),
            load: self.load,
            tally,
            at_once: audit.most_permits.unwrap_or_default(),
            took,
            left: 0,
            taken: 0,
            wrong: 0,
            missing: 0,
        };
        for account in 0..self.load.accounts() {
            let (left, taken) = self.ledger.balance(account)?;
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
        // An unreachable server cannot be cleaned up.
        let _ = self.ledger.clean_up();
    }
}
