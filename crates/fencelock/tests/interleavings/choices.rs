//! The choices of a schedule, and the order of schedules.

use fencelock_core::{HolderId, Invalid};

/// The choices of one schedule. The first ones may be given; after them it takes the first of everything, or random ones.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    given: Vec<usize>,
    rng: Option<Rng>,
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
        Self { rng: Some(Rng(seed)), seed, ..Self::default() }
    }

    /// One out of `many`. Where there is nothing to choose, nothing is noted.
    pub(crate) fn one_of(&mut self, many: usize) -> usize {
        if many < 2 {
            return 0;
        }
        let chosen = match (self.given.get(self.taken.len()), &mut self.rng) {
            (Some(given), _) => given % many,
            (None, Some(rng)) => rng.below(many),
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

/// Splitmix64: small, and the same everywhere.
#[derive(Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, many: usize) -> usize {
        usize::try_from(self.next() % many as u64).unwrap()
    }
}

impl fencelock_core::engine::Rng for Rng {
    fn next_u64(&mut self) -> u64 {
        self.next()
    }

    fn holder_id(&mut self) -> Result<HolderId, Invalid> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes());
        Ok(HolderId::from_bytes(bytes))
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
