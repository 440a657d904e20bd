use fencelock_core::engine::Rng;
use fencelock_core::{HolderId, Invalid};

/// Random numbers from a seed: the same on every machine, and with every version of a library.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The numbers of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// Whether something with this chance in percent happens.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// An index of so many items.
    ///
    /// # Panics
    /// If there are none.
    pub fn index(&mut self, many: usize) -> usize {
        usize::try_from(self.below(many as u64)).expect("less than a usize")
    }

    /// One of these items.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())].clone()
    }
}

impl Rng for SplitMix {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        // Every bit of the result depends on every bit of the word.
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn holder_id(&mut self) -> Result<HolderId, Invalid> {
        let (high, low) = (self.next_u64(), self.next_u64());
        Ok(HolderId::from_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()))
    }
}
