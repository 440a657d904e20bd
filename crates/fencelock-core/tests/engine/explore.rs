//! All states of a small scenario, or random schedules of a large one.
//!
//! A failure prints `SCENARIO:choice,choice,...`: the first choice is the seed of the engine's random numbers, each other
//! one an act. `FENCELOCK_REPLAY` runs that schedule again.

use crate::coverage::CoverageSet;
use crate::hashing::{SplitMix, hash};
use crate::mutants::Mutant;
use crate::scenario::Scenario;
use crate::shrink;
use crate::wind_down::wind_down;
use crate::world::World;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

const REPLAY: &str = "FENCELOCK_REPLAY";
const SCHEDULES: &str = "FENCELOCK_SCHEDULES";
const SEED: &str = "FENCELOCK_SEED";
/// Different random numbers of the engine.
const SEEDS: usize = 64;
/// More acts than any schedule needs.
const MANY: usize = 600;
/// The end is tried from each state without a further act, and from one in so many of the others. With a mutant it is tried from
/// each, so that the first damage is the nearest.
const SAMPLE: u128 = 8;

/// How many schedules or states there were, and what they came across.
#[derive(Debug, Default)]
pub(crate) struct SearchSummary {
    pub(crate) count: usize,
    /// Whether there are no others.
    pub(crate) complete: bool,
    pub(crate) covered: CoverageSet,
    pub(crate) longest: usize,
}

/// A schedule that breaks a promise.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) choices: Vec<usize>,
    pub(crate) why: String,
    pub(crate) trace: Vec<String>,
}

/// A schedule in progress.
pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) choices: Vec<usize>,
}

impl Run {
    pub(crate) fn new(scenario: &Scenario, mutant: Option<Mutant>, seed: usize, traced: bool) -> Result<Self, String> {
        let world = World::new(scenario, mutant, seed as u64, traced)?;
        Ok(Self { world, choices: vec![seed] })
    }

    /// One more act. `Ok(false)` if there is none.
    pub(crate) fn step(&mut self, choose: impl FnOnce(usize) -> usize) -> Result<bool, String> {
        let acts = self.world.acts();
        let many = self.world.choices(&acts);
        if many == 0 {
            return Ok(false);
        }
        let choice = choose(many) % many;
        self.choices.push(choice);
        self.world.take(&acts, choice)?;
        Ok(true)
    }
}

/// Every state that can be reached, nearest first; or the first `most` of them.
pub(crate) fn search(scenario: &Scenario, mutant: Option<Mutant>, most: usize) -> Result<SearchSummary, Failure> {
    let shrunk = |choices: Vec<usize>| shrink::shrink(scenario, mutant, &choices);
    let Ok(first) = World::new(scenario, mutant, 0, false) else { return Err(shrunk(vec![0])) };
    let mut report = SearchSummary { complete: true, ..SearchSummary::default() };
    let mut seen: HashSet<u128, BuildHasherDefault<Prehashed>> = HashSet::default();
    let mut parents: Vec<(usize, u8)> = vec![(0, 0)];
    seen.insert(hash(&first));
    let mut layer = vec![(first, 0)];
    while !layer.is_empty() {
        let mut next = Vec::new();
        for (world, state) in layer {
            let acts = world.acts();
            let many = world.choices(&acts);
            if many == 0 || mutant.is_some() || hash(&world).is_multiple_of(SAMPLE) {
                let end = wind_down(world.clone());
                let end = end.map_err(|_| shrunk(path(&parents, state)))?;
                report.covered.extend(end.covered);
            }
            for choice in 0..many {
                let mut after = world.clone();
                if after.take(&acts, choice).is_err() {
                    let mut choices = path(&parents, state);
                    choices.push(choice);
                    return Err(shrunk(choices));
                }
                report.covered.extend(after.covered);
                if parents.len() >= most {
                    report.complete = false;
                } else if seen.insert(hash(&after)) {
                    parents.push((state, u8::try_from(choice).expect("few choices")));
                    next.push((after, parents.len() - 1));
                }
            }
        }
        report.longest += usize::from(!next.is_empty());
        layer = next;
    }
    report.count = parents.len();
    Ok(report)
}

/// The choices that lead to a state.
fn path(parents: &[(usize, u8)], mut state: usize) -> Vec<usize> {
    let mut choices = Vec::new();
    while state != 0 {
        let (parent, choice) = parents[state];
        choices.push(choice.into());
        state = parent;
    }
    choices.push(0);
    choices.reverse();
    choices
}

/// So many random schedules.
pub(crate) fn random(scenario: &Scenario, mutant: Option<Mutant>, many: usize) -> Result<SearchSummary, Failure> {
    let mut report = SearchSummary { count: many, ..SearchSummary::default() };
    let first = number(SEED).unwrap_or(1);
    for seed in 0..many {
        let mut numbers = SplitMix((first + seed) as u64);
        let run = Run::new(scenario, mutant, numbers.below(SEEDS), false);
        let Ok(mut run) = run else { return Err(shrink::shrink(scenario, mutant, &[0])) };
        let result = loop {
            match run.step(|many| numbers.below(many)) {
                Ok(true) if run.choices.len() > MANY => break Err("it never ends".to_owned()),
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(why) => break Err(why),
            }
        };
        report.longest = report.longest.max(run.choices.len());
        match result.and_then(|()| wind_down(run.world).map_err(|end| end.0)) {
            Ok(end) => report.covered.extend(end.covered),
            Err(_) => return Err(shrink::shrink(scenario, mutant, &run.choices)),
        }
    }
    Ok(report)
}

/// Runs given choices, and then the end.
pub(crate) fn given(
    scenario: &Scenario,
    mutant: Option<Mutant>,
    choices: &[usize],
    traced: bool,
) -> Result<CoverageSet, Failure> {
    let fail = |why: String, run: Vec<usize>, trace: Option<Vec<String>>| {
        Err(Failure { choices: run, why, trace: trace.unwrap_or_default() })
    };
    let mut run = match Run::new(scenario, mutant, choices.first().copied().unwrap_or(0), traced) {
        Ok(run) => run,
        Err(why) => return fail(why, choices.to_vec(), None),
    };
    for choice in choices.iter().skip(1) {
        match run.step(|_| *choice) {
            Ok(true) => {}
            Ok(false) => break,
            Err(why) => return fail(why, run.choices, run.world.trace),
        }
    }
    match wind_down(run.world) {
        Ok(end) => Ok(end.covered),
        Err(end) => fail(end.0, run.choices, end.1.trace),
    }
}

/// The schedule that was asked for, if it is of this scenario.
pub(crate) fn replay(scenario: &Scenario) -> Option<Result<CoverageSet, Failure>> {
    let text = std::env::var(REPLAY).ok()?;
    let choices = text.strip_prefix(scenario.name)?.strip_prefix(':')?;
    let choices: Vec<_> = choices.split(',').filter_map(|choice| choice.parse().ok()).collect();
    Some(given(scenario, None, &choices, true))
}

/// Whether a schedule of any scenario is replayed, and nothing else is to run.
pub(crate) fn replays() -> bool {
    std::env::var(REPLAY).is_ok()
}

/// How many random schedules are wanted of each scenario.
pub(crate) fn schedules(usual: usize) -> usize {
    number(SCHEDULES).unwrap_or(usual)
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// The description of a failure.
pub(crate) fn explain(scenario: &Scenario, failure: &Failure) -> String {
    let choices: Vec<_> = failure.choices.iter().map(ToString::to_string).collect();
    format!(
        "{name}: {}\nto replay it:\n  {REPLAY}='{name}:{}' cargo test -p fencelock-core --test engine\n{}",
        failure.why,
        choices.join(","),
        failure.trace.join("\n"),
        name = scenario.name,
    )
}

/// The states are hashed already.
#[derive(Default)]
struct Prehashed(u64);

impl Hasher for Prehashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only of 128-bit hashes");
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = u64::try_from(hash & u128::from(u64::MAX)).unwrap();
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
