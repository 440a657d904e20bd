//! The shortest story that still goes wrong.

use super::game::{Difference, Game};
use super::real::Real;
use super::sent::Mutant;
use super::sights::Sights;
use super::step::{Around, Step};

/// A story alone on the server.
fn tell(real: &mut Real, story: &[Step], mutant: Option<Mutant>, cap: usize) -> Option<Difference> {
    let mut game = Game::new(real, mutant, 1, cap);
    story.iter().find_map(|step| game.round(std::slice::from_ref(step), &mut Sights::default()).err())
}

/// Leaves out what does not matter: steps, then what is around them. `None` if the story alone goes well.
pub(super) fn shrink(
    real: &mut Real,
    story: &[Step],
    mutant: Option<Mutant>,
    cap: usize,
) -> Option<(Vec<Step>, Difference)> {
    let mut difference = tell(real, story, mutant, cap)?;
    let mut story = story.to_vec();
    loop {
        let simpler = shorter(&story).chain(calmer(&story)).collect::<Vec<_>>();
        let found = simpler.into_iter().find_map(|story| Some((tell(real, &story, mutant, cap)?, story)));
        let Some((still, simpler)) = found else { return Some((story, difference)) };
        (story, difference) = (simpler, still);
    }
}

/// Without some steps in a row, the longest rows first; the time they took passes all the same, or not.
fn shorter(story: &[Step]) -> impl Iterator<Item = Vec<Step>> {
    let lengths =
        std::iter::successors(Some(story.len() / 2), |length| Some(length / 2)).take_while(|length| *length > 0);
    let rows = lengths.flat_map(|length| (0..=story.len() - length).map(move |from| from..from + length));
    rows.flat_map(|row| {
        let took: i64 = story[row.clone()].iter().map(|step| step.around.by_us).sum();
        [0, took].map(|took| {
            let mut rest = [&story[..row.start], &story[row.end..]].concat();
            if let Some(next) = rest.get_mut(row.start) {
                next.around.by_us += took;
            }
            rest
        })
    })
}

/// With one step in a calm server, or in its own time.
fn calmer(story: &[Step]) -> impl Iterator<Item = Vec<Step>> {
    (0..story.len()).flat_map(move |i| {
        let mine = &story[i].around;
        let [calm, still] = [Around { by_us: mine.by_us, ..Around::CALM }, Around { by_us: 0, ..mine.clone() }];
        [calm, still].into_iter().filter(move |around| around != mine).map(move |around| {
            let mut story = story.to_vec();
            story[i].around = around;
            story
        })
    })
}
