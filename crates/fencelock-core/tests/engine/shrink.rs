//! The shortest schedule that still fails, as far as leaving out choices leads.

use crate::explore::{Failure, given};
use crate::mutants::Mutant;
use crate::scenario::Scenario;

/// Leaves out choices as long as the schedule still breaks a promise.
pub(crate) fn shrink(scenario: &Scenario, mutant: Option<Mutant>, choices: &[usize]) -> Failure {
    let fails = |choices: &[usize]| given(scenario, mutant, choices, false).err();
    let mut best = fails(choices).expect("the same choices give the same world");
    loop {
        let shorter = shorter(&best.choices)
            .find_map(|choices| fails(&choices).filter(|failure| order(&failure.choices) < order(&best.choices)));
        match shorter {
            Some(failure) => best = failure,
            None => return given(scenario, mutant, &best.choices, true).expect_err("as before"),
        }
    }
}

fn order(choices: &[usize]) -> (usize, usize) {
    (choices.len(), choices.iter().sum())
}

/// The same choices with a part left out, the longest parts first; then with one of them smaller.
fn shorter(choices: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let acts = choices.len() - 1;
    let lengths = std::iter::successors(Some(acts), |length| Some(length / 2)).take_while(|length| *length > 0);
    let left_out = lengths.flat_map(move |length| {
        (1..=acts + 1 - length).rev().map(move |at| [&choices[..at], &choices[at + length..]].concat())
    });
    let smaller = (0..=acts).filter(|at| choices[*at] > 0).flat_map(move |at| {
        [0, choices[at] / 2, choices[at] - 1].map(|choice| {
            let mut choices = choices.to_vec();
            choices[at] = choice;
            choices
        })
    });
    left_out.chain(smaller)
}

#[test]
fn a_schedule_that_fails_is_shrunk_to_one_that_fails() {
    let (scenario, mutant) = (crate::scenarios::ACQUIRE_DROP, Some(Mutant::GivesNothingBack));
    let long = (0..).find_map(|seed| {
        let mut numbers = fastrand::Rng::with_seed(seed);
        let choices: Vec<_> = (0..30).map(|_| numbers.usize(..12)).collect();
        given(&scenario, mutant, &choices, false).err().filter(|failure| failure.choices.len() > 8)
    });
    let failure = shrink(&scenario, mutant, &long.expect("some of them fail").choices);
    assert!(failure.choices.len() <= 4 && !failure.trace.is_empty(), "{failure:?}");
}
