use super::{CoverageCounts, Mix, Mutant, Scenario, Trace, simulate};
use crate::checker::{Check, CheckResults, check};
use fencelock_core::Invalid;
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
    /// Number of events handled.
    pub events: u64,
    /// Number of grants.
    pub grants: u64,
    /// Virtual time, in microseconds.
    pub micros: u64,
    /// Violations that are excused by a clock jump.
    pub excused: u64,
    /// Coverage counters.
    pub covered: CoverageCounts,
    /// Seeds with violations, in order.
    pub found: Vec<BrokenSeed>,
}

impl Batch {
    fn add(&mut self, seed: u64, one: &Judged) {
        self.seeds += 1;
        self.events += one.events;
        self.grants += one.grants;
        self.micros += one.micros;
        self.excused += one.results.excused.len() as u64;
        self.covered.add(&one.covered);
        if !one.results.is_good() {
            self.found.push(broken_seed(seed, &one.results));
        }
    }

    fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.grants += other.grants;
        self.micros += other.micros;
        self.excused += other.excused;
        self.covered.add(&other.covered);
        self.found.extend(other.found);
    }
}

struct Judged {
    events: u64,
    grants: u64,
    micros: u64,
    covered: CoverageCounts,
    results: CheckResults,
}

fn broken_seed(seed: u64, results: &CheckResults) -> BrokenSeed {
    let mut checks: Vec<Check> = results.broken.iter().map(|violation| violation.check).collect();
    checks.sort_unstable();
    checks.dedup();
    let words = results.broken.first().map(ToString::to_string).unwrap_or_default();
    BrokenSeed { seed, checks, words }
}

fn run_one(scenario: &Scenario) -> Judged {
    let run = simulate(scenario, Trace::Off);
    let results = check(&run.history);
    let grants = run.history.lines.iter().filter(|line| line.is_grant()).count() as u64;
    Judged { events: run.events, grants, micros: scenario.length_us, covered: run.covered, results }
}

/// Simulates the seeds from `first` on and checks their histories, with one thread per processor.
///
/// Seeds share no state, so the results do not depend on the threads.
///
/// # Errors
/// [`Invalid`] if the number of nodes is not valid for a quorum.
pub fn batch(
    first: u64,
    seeds: u64,
    nodes: usize,
    mix: Mix,
    mutant: Option<Mutant>,
    threads: usize,
) -> Result<Batch, Invalid> {
    Scenario::of(first, nodes)?;
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
                    mine.add(seed, &run_one(&scenario.with(mix).without(mutant)));
                }
                whole.lock().unwrap_or_else(std::sync::PoisonError::into_inner).merge(mine);
            });
        }
    });
    let mut whole = whole.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    whole.found.sort_by_key(|finding| finding.seed);
    Ok(whole)
}
