//! All states of a small scenario, or random schedules of a large one.
//!
//! A failure prints `SCENARIO:choice,choice,...`: the first choice is the seed of the engine's random numbers, each other
//! one an act. `FENCELOCK_REPLAY` runs that schedule again.

use crate::coverage::CoverageSet;
use crate::digest::first_act;
use crate::mutants::Mutant;
use crate::scenario::Scenario;
use crate::shrink;
use crate::visited::{Reduction, Visited};
use crate::wind_down::wind_down;
use crate::world::World;
use fencelock_search::digest;
use std::collections::VecDeque;

const REPLAY: &str = "FENCELOCK_REPLAY";
const SCHEDULES: &str = "FENCELOCK_SCHEDULES";
const STATES: &str = "FENCELOCK_STATES";
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

/// The order in which states are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The first damage is the nearest.
    NearestFirst,
    /// Few states wait to be visited at a time, which takes less memory, and some acts are not tried in every order.
    DepthFirst,
}

/// Every state that can be reached, nearest first; or the first `most` of them.
pub(crate) fn search(scenario: &Scenario, mutant: Option<Mutant>, most: usize) -> Result<SearchSummary, Failure> {
    let found = search_with(scenario, mutant, most, (Order::NearestFirst, Reduction::On));
    found.map_err(|choices| shrink::shrink(scenario, mutant, &choices))
}

/// As [`search`], for many states.
pub(crate) fn search_all(scenario: &Scenario, most: usize) -> Result<SearchSummary, Failure> {
    let found = search_with(scenario, None, most, (Order::DepthFirst, Reduction::On));
    found.map_err(|choices| shrink::shrink(scenario, None, &choices))
}

/// A state that is to be visited.
struct Next {
    world: World,
    number: usize,
    depth: usize,
    /// All tasks have done what they can.
    settled: bool,
}

/// The choices of an error lead to the damage.
pub(crate) fn search_with(
    scenario: &Scenario,
    mutant: Option<Mutant>,
    most: usize,
    (order, reduction): (Order, Reduction),
) -> Result<SearchSummary, Vec<usize>> {
    let world = World::new(scenario, mutant, 0, false).map_err(|_| vec![0])?;
    let mut report = SearchSummary { complete: true, ..SearchSummary::default() };
    let mut visited = Visited::new(reduction);
    let mut parents: Vec<(u32, u8)> = vec![(0, 0)];
    visited.insert(&world);
    let mut next = VecDeque::from([Next { world, number: 0, depth: 0, settled: true }]);
    let pop = |next: &mut VecDeque<Next>| match order {
        Order::NearestFirst => next.pop_front(),
        Order::DepthFirst => next.pop_back(),
    };
    while let Some(Next { world, number, depth, settled }) = pop(&mut next) {
        report.longest = report.longest.max(depth);
        let acts = world.acts();
        let many = world.choices(&acts);
        if many == 0 || mutant.is_some() || digest(&world).is_multiple_of(SAMPLE) {
            let end = wind_down(world.clone()).map_err(|_| path(&parents, number))?;
            report.covered.extend(end.covered);
        }
        let reduces = settled && (order, reduction) == (Order::DepthFirst, Reduction::On);
        let only = if reduces { first_act(&world, &acts) } else { None };
        let from = next.len();
        for choice in only.map_or(0..many, |only| only..only + 1) {
            let mut after = world.clone();
            if after.take(&acts, choice).is_err() {
                let mut choices = path(&parents, number);
                choices.push(choice);
                return Err(choices);
            }
            report.covered.extend(after.covered);
            if parents.len() >= most {
                report.complete = false;
            } else if visited.insert(&after) {
                parents.push((u32::try_from(number).unwrap(), u8::try_from(choice).expect("few choices")));
                let settled = choice < acts.len();
                next.push_back(Next { world: after, number: parents.len() - 1, depth: depth + 1, settled });
            }
        }
        if order == Order::DepthFirst {
            // Time and faults, which are the last acts, are visited last.
            next.make_contiguous()[from..].reverse();
        }
    }
    report.count = parents.len();
    Ok(report)
}

/// The choices that lead to a state.
fn path(parents: &[(u32, u8)], mut state: usize) -> Vec<usize> {
    let mut choices = Vec::new();
    while state != 0 {
        let (parent, choice) = parents[state];
        choices.push(choice.into());
        state = parent as usize;
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
        let mut numbers = fastrand::Rng::with_seed((first + seed) as u64);
        let run = Run::new(scenario, mutant, numbers.usize(..SEEDS), false);
        let Ok(mut run) = run else { return Err(shrink::shrink(scenario, mutant, &[0])) };
        let result = loop {
            match run.step(|many| numbers.usize(..many)) {
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

/// How many states of each scenario are searched at most.
pub(crate) fn states(usual: usize) -> usize {
    number(STATES).unwrap_or(usual)
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
