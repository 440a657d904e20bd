//! A 128-bit hash of a state. Two states with the same hash are taken for one: among a million states that happens with a
//! probability below 10^-26.

use std::hash::{Hash, Hasher};

#[derive(Debug)]
struct Wide(u64, u64);

impl Hasher for Wide {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(25) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.1 = (self.1 ^ word ^ (self.1 >> 29)).wrapping_mul(0xC2B2_AE3D_27D4_EB4F).rotate_left(31);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

pub(crate) fn hash(value: &impl Hash) -> u128 {
    let mut hasher = Wide(0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210);
    value.hash(&mut hasher);
    u128::from(mix(hasher.0)) << 64 | u128::from(mix(hasher.1))
}

/// The finisher of splitmix64.
pub(crate) fn mix(word: u64) -> u64 {
    let mut mixed = word;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Splitmix64: small, and the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, many: usize) -> usize {
        usize::try_from(self.next() % many as u64).unwrap()
    }
}
