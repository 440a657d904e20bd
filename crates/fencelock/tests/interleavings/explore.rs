//! All schedules of a small scenario, or many of a large one.

use crate::choices::Choices;
use crate::mutants::Mutant;
use crate::script::{Coverage, Script};
use crate::stage::Stage;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Once;
use std::time::{Duration, Instant};

/// Replays one schedule: `SCENARIO:CHOICE,CHOICE,...`, as a failure prints it.
const REPLAY: &str = "FENCELOCK_REPLAY";
/// Random schedules of each scenario.
const SCHEDULES: &str = "FENCELOCK_SCHEDULES";
/// The first of the seeds.
const SEED: &str = "FENCELOCK_SEED";
/// The client's own rng (jitter) are not the explorer's, so a schedule is tried again this often.
const AGAIN: u32 = 200;

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
        runner.run(&mut choices, "")?;
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
        runner.run(&mut Choices::random(seed), &format!(" (seed {seed}: {SEED}={seed} {SCHEDULES}=1)"))?;
    }
    Ok(runner.done("random"))
}

/// The requested schedule, if it belongs to this scenario.
pub(crate) fn replay(script: &Script) -> Result<bool, String> {
    let Ok(text) = std::env::var(REPLAY) else { return Ok(false) };
    if let Some(choices) = text.strip_prefix(script.name).and_then(|rest| rest.strip_prefix(':')) {
        let given: Vec<_> = choices.split(',').filter_map(|choice| choice.parse().ok()).collect();
        for _ in 0..AGAIN {
            Runner::new(script, None).run(&mut Choices::given(given.clone()), "")?;
        }
    }
    Ok(true)
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

    fn run(&mut self, choices: &mut Choices, hint: &str) -> Result<(), String> {
        let panics = PANICS.get();
        let (result, trace) = self.runtime.block_on(async {
            let mut stage = Stage::new(self.script, self.mutant);
            let result = stage.perform(choices).await;
            for sight in stage.covered {
                *self.report.covered.entry(sight).or_default() += 1;
            }
            (result, stage.trace)
        });
        self.report.schedules += 1;
        self.report.longest = self.report.longest.max(choices.taken.len());
        let result = if PANICS.get() == panics { result } else { Err("something panicked".into()) };
        result.map_err(|why| {
            let name = self.script.name;
            let text = choices.text();
            format!(
                "{name}: {why}\nschedule {} of this run{hint}; to replay it:\n  {REPLAY}='{name}:{text}' cargo test -p \
                 fencelock --test interleavings\n{trace:#?}",
                self.report.schedules
            )
        })
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
