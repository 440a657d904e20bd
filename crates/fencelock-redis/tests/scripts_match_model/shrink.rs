//! Finds the shortest trace that still shows a difference.

use super::coverage::Coverage;
use super::differential::{self, Difference, Differential, START_US};
use super::real::Real;
use super::sent::Mutant;
use super::step::{Around, Step};

/// Runs one trace alone on the server.
pub(super) fn run_alone(real: &mut Real, trace: &[Step], mutant: Option<Mutant>, cap: usize) -> Option<Difference> {
    let mut differential = Differential::new(real, mutant, 1, cap);
    trace.iter().find_map(|step| differential.round(std::slice::from_ref(step), &mut Coverage::default()).err())
}

/// Removes steps that do not matter, then changes of the environment. `None` if the trace alone shows no difference.
pub(super) fn shrink(
    real: &mut Real,
    trace: &[Step],
    mutant: Option<Mutant>,
    cap: usize,
) -> Option<(Vec<Step>, Difference)> {
    let mut difference = run_alone(real, trace, mutant, cap)?;
    let mut trace = trace.to_vec();
    loop {
        let simpler = shorter(&trace).chain(calmer(&trace)).collect::<Vec<_>>();
        let found = simpler.into_iter().find_map(|trace| Some((run_alone(real, &trace, mutant, cap)?, trace)));
        let Some((still, simpler)) = found else { return Some((trace, difference)) };
        (trace, difference) = (simpler, still);
    }
}

/// Removes consecutive steps, the longest runs first, with or without the time that they took.
fn shorter(trace: &[Step]) -> impl Iterator<Item = Vec<Step>> {
    let lengths =
        std::iter::successors(Some(trace.len() / 2), |length| Some(length / 2)).take_while(|length| *length > 0);
    let rows = lengths.flat_map(|length| (0..=trace.len() - length).map(move |from| from..from + length));
    rows.flat_map(|row| {
        let took: i64 = trace[row.clone()].iter().map(|step| step.around.by_us).sum();
        [0, took].map(|took| {
            let mut rest = [&trace[..row.start], &trace[row.end..]].concat();
            if let Some(next) = rest.get_mut(row.start) {
                next.around.by_us += took;
            }
            rest
        })
    })
}

/// Removes the faults of one step, or its change of the clock.
fn calmer(trace: &[Step]) -> impl Iterator<Item = Vec<Step>> {
    (0..trace.len()).flat_map(move |i| {
        let mine = &trace[i].around;
        let [calm, still] = [Around { by_us: mine.by_us, ..Around::CALM }, Around { by_us: 0, ..mine.clone() }];
        [calm, still].into_iter().filter(move |around| around != mine).map(move |around| {
            let mut trace = trace.to_vec();
            trace[i].around = around;
            trace
        })
    })
}

/// Only for one mutant, because shrinking takes longer than detecting.
#[test]
fn a_trace_is_shrunk_to_the_steps_that_matter() {
    let Some(mut real) = Real::start(START_US) else { return };
    // A release frees the lock of any holder.
    let from = "if is_holder(value, ARGV[1]) then\n  redis.call('DEL'";
    let mutant = Some(Mutant { from, to: "if value then\n  redis.call('DEL'" });
    let find = |seed| {
        let found = differential::play(&mut real, seed, (50, 30), mutant, &mut Coverage::default());
        found.err().map(|(trace, _)| (seed, trace))
    };
    let (seed, trace) = (1000..1020).find_map(find).expect("a difference");
    let (shortest, _) = shrink(&mut real, &trace, mutant, differential::cap(seed)).expect("a difference alone");
    // A claim, and a release by another holder.
    assert_eq!(shortest.len(), 2, "{shortest:#?}");
}
