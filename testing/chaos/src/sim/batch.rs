use super::{Mutant, Scenario, Trace, simulate};
use crate::Failure;
use crate::checker::{Check, CheckResults, check};
use crate::history::{History, Op};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A seed whose history violates a guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenSeed {
    /// The seed.
    pub seed: u64,
    /// The violated checks.
    pub checks: Vec<Check>,
    /// A description of the first violation.
    pub words: String,
}

/// The results of a batch of seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Number of seeds.
    pub seeds: u64,
    /// Number of grants.
    pub grants: u64,
    /// Violations that are excused by a clock jump.
    pub excused: u64,
    /// The number of seeds with each event.
    pub covered: BTreeMap<String, u64>,
    /// Seeds with violations, in order.
    pub found: Vec<BrokenSeed>,
}

impl Batch {
    fn add(&mut self, seed: u64, history: &History) {
        let results = check(history);
        self.seeds += 1;
        self.grants += history.lines.iter().filter(|line| line.is_grant()).count() as u64;
        self.excused += results.excused.len() as u64;
        let events = history.lines.iter().filter(|line| line.op == Op::Seen).filter_map(|line| line.what.clone());
        for what in events.collect::<BTreeSet<_>>() {
            *self.covered.entry(what).or_default() += 1;
        }
        if !results.is_good() {
            self.found.push(broken_seed(seed, &results));
        }
    }

    fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.grants += other.grants;
        self.excused += other.excused;
        for (what, seeds) in other.covered {
            *self.covered.entry(what).or_default() += seeds;
        }
        self.found.extend(other.found);
    }
}

fn broken_seed(seed: u64, results: &CheckResults) -> BrokenSeed {
    let mut checks: Vec<Check> = results.broken.iter().map(|violation| violation.check).collect();
    checks.sort_unstable();
    checks.dedup();
    let words = results.broken.first().map(ToString::to_string).unwrap_or_default();
    BrokenSeed { seed, checks, words }
}

/// Simulates the seeds from `first` on and checks their histories, with one thread per processor.
///
/// Seeds share no state, so the results do not depend on the threads.
///
/// # Errors
/// The number of nodes is not valid for a quorum, or there is no thread for a runtime.
pub fn batch(first: u64, seeds: u64, nodes: usize, mutant: Option<Mutant>, threads: usize) -> Result<Batch, Failure> {
    simulate(&Scenario::of(first, nodes)?, Trace::Off)?;
    let next = AtomicU64::new(first);
    let end = first.saturating_add(seeds);
    let whole = Mutex::new(Batch::default());
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut mine = Batch::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let Ok(scenario) = Scenario::of(seed, nodes) else { break };
                    let Ok(run) = simulate(&scenario.without(mutant), Trace::Off) else { break };
                    mine.add(seed, &run.history);
                }
                whole.lock().unwrap_or_else(std::sync::PoisonError::into_inner).merge(mine);
            });
        }
    });
    let mut whole = whole.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    whole.found.sort_by_key(|finding| finding.seed);
    Ok(whole)
}
