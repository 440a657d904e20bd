//! The first schedules of a small scenario, or many random ones of a large one. Each repeats in one try.

use crate::choices::Choices;
use crate::mutants::Mutant;
use crate::script::{Coverage, Script};
use crate::stage::{Act, Stage};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Once;
use std::time::{Duration, Instant};

/// Replays one schedule of a small scenario: `SCENARIO:CHOICE,CHOICE,...`, as a failure prints it.
const REPLAY: &str = "FENCELOCK_REPLAY";
/// Random schedules of each scenario.
const SCHEDULES: &str = "FENCELOCK_SCHEDULES";
/// The first of the seeds.
const SEED: &str = "FENCELOCK_SEED";

/// How many schedules ran, and what they came across.
#[derive(Debug, Default)]
pub(crate) struct SearchSummary {
    pub(crate) schedules: u64,
    /// Whether there are no others.
    pub(crate) complete: bool,
    pub(crate) covered: HashMap<Coverage, u64>,
    took: Duration,
    longest: usize,
}

/// All schedules, or the first `most` of them.
pub(crate) fn all(script: &Script, mutant: Option<Mutant>, most: u64) -> Result<SearchSummary, String> {
    let mut runner = Runner::new(script, mutant);
    let mut next = Some(Choices::default());
    while let Some(mut choices) = next.take_if(|_| runner.report.schedules < most) {
        runner.run(&mut choices)?;
        next = choices.next();
    }
    runner.report.complete = next.is_none();
    Ok(runner.done("all"))
}

/// As many random schedules.
pub(crate) fn some(script: &Script, mutant: Option<Mutant>, many: u64) -> Result<SearchSummary, String> {
    let mut runner = Runner::new(script, mutant);
    let first = number(SEED).unwrap_or(1);
    for seed in first..first + many {
        runner.run(&mut Choices::random(seed))?;
    }
    Ok(runner.done("random"))
}

/// The requested schedule, if it belongs to this scenario.
pub(crate) fn replay(script: &Script) -> Result<bool, String> {
    let Ok(text) = std::env::var(REPLAY) else { return Ok(false) };
    if let Some(choices) = text.strip_prefix(script.name).and_then(|rest| rest.strip_prefix(':')) {
        let given: Vec<_> = choices.split(',').filter_map(|choice| choice.parse().ok()).collect();
        Runner::new(script, None).run(&mut Choices::given(given))?;
    }
    Ok(true)
}

/// Runs random schedules, and each of them again on a runtime of its own.
pub(crate) fn twice(script: &Script, many: u64) -> Result<(), String> {
    let mut runner = Runner::new(script, None);
    for seed in 1..=many {
        let trace = runner.run(&mut Choices::random(seed))?;
        if Runner::new(script, None).run(&mut Choices::random(seed))? != trace {
            return Err(format!("{}: seed {seed} is another schedule when it is repeated", script.name));
        }
    }
    Ok(())
}

/// How many random schedules are wanted of each scenario.
pub(crate) fn schedules(usual: u64) -> u64 {
    number(SCHEDULES).unwrap_or(usual)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

struct Runner<'a> {
    script: &'a Script,
    mutant: Option<Mutant>,
    runtime: tokio::runtime::Runtime,
    report: SearchSummary,
    started: Instant,
}

impl<'a> Runner<'a> {
    fn new(script: &'a Script, mutant: Option<Mutant>) -> Self {
        count_panics();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        #[expect(clippy::disallowed_methods, reason = "the report says how long it took")]
        let started = Instant::now();
        Self { script, mutant, runtime, report: SearchSummary::default(), started }
    }

    fn run(&mut self, choices: &mut Choices) -> Result<Vec<Act>, String> {
        let panics = PANICS.get();
        let (result, trace) = self.runtime.block_on(async {
            let mut stage = Stage::new(self.script, self.mutant, choices.seed);
            let result = stage.perform(choices).await;
            for sight in stage.covered {
                *self.report.covered.entry(sight).or_default() += 1;
            }
            (result, stage.trace)
        });
        self.report.schedules += 1;
        self.report.longest = self.report.longest.max(choices.taken.len());
        let result = if PANICS.get() == panics { result } else { Err("something panicked".into()) };
        if let Err(why) = result {
            let (name, number) = (self.script.name, self.report.schedules);
            let again = match choices.seed {
                0 => format!("{REPLAY}='{name}:{}'", choices.text()),
                seed => format!("{SEED}={seed} {SCHEDULES}=1"),
            };
            return Err(format!(
                "{name}: {why}\nschedule {number} of this run; to replay it:\n  {again} cargo test -p fencelock --test \
                 interleavings\n{trace:#?}"
            ));
        }
        Ok(trace)
    }

    fn done(mut self, kind: &str) -> SearchSummary {
        self.report.took = self.started.elapsed();
        let SearchSummary { schedules, complete, took, longest, .. } = &self.report;
        let name = self.script.name;
        let whole = if *complete { ", complete" } else { "" };
        println!("{name}: {schedules} schedules ({kind}{whole}), up to {longest} choices, {took:.1?}");
        self.report
    }
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// The runtime discards the panics of detached tasks.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            usual(info);
        }));
    });
}
