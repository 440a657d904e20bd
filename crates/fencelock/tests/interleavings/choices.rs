//! The choices of a schedule, and the order of schedules.

use fencelock_testkit::SplitMix;

/// The choices of one schedule. The first ones may be given; after them it takes the first of everything, or random ones.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    given: Vec<usize>,
    rng: Option<SplitMix>,
    /// Of the random numbers of the clients.
    pub(crate) seed: u64,
    /// What was chosen, and out of how many.
    pub(crate) taken: Vec<(usize, usize)>,
}

impl Choices {
    pub(crate) fn given(given: Vec<usize>) -> Self {
        Self { given, ..Self::default() }
    }

    pub(crate) fn random(seed: u64) -> Self {
        Self { rng: Some(SplitMix::new(seed)), seed, ..Self::default() }
    }

    /// One out of `many`. Where there is nothing to choose, nothing is noted.
    pub(crate) fn one_of(&mut self, many: usize) -> usize {
        if many < 2 {
            return 0;
        }
        let chosen = match (self.given.get(self.taken.len()), &mut self.rng) {
            (Some(given), _) => given % many,
            (None, Some(rng)) => rng.index(many),
            (None, None) => 0,
        };
        self.taken.push((chosen, many));
        chosen
    }

    /// The schedule after this one, depth first; `None` after the last.
    pub(crate) fn next(&self) -> Option<Self> {
        let turn = self.taken.iter().rposition(|(chosen, many)| chosen + 1 < *many)?;
        let mut given: Vec<_> = self.taken[..=turn].iter().map(|(chosen, _)| *chosen).collect();
        given[turn] += 1;
        Some(Self::given(given))
    }

    /// As it is given to a replay.
    pub(crate) fn text(&self) -> String {
        self.taken.iter().map(|(chosen, _)| chosen.to_string()).collect::<Vec<_>>().join(",")
    }
}

#[test]
fn depth_first_takes_every_sequence_once() {
    let mut seen = Vec::new();
    let mut next = Some(Choices::default());
    while let Some(mut choices) = next {
        // The second choice is there only after the first way of the first.
        let first = choices.one_of(3);
        let second = if first == 0 { choices.one_of(2) } else { 9 };
        seen.push((first, second));
        next = choices.next();
    }
    assert_eq!(seen, [(0, 0), (0, 1), (1, 9), (2, 9)]);
}
