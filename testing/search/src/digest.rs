//! Digests of states, which take the place of the states in a search of millions of them.
#![allow(clippy::cast_possible_truncation, reason = "a hash takes words apart")]

use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A digest of 128 bits. Searches take two states with the same digest for one: among a million states that happens with a
/// probability below 10^-26. It is the same in every run.
pub fn digest(state: &impl Hash) -> u128 {
    let mut hasher = Wide { halves: (0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210), bytes: 0, count: 0 };
    state.hash(&mut hasher);
    hasher.flush();
    u128::from(mix(hasher.halves.0)) << 64 | u128::from(mix(hasher.halves.1))
}

/// Of maps and sets of digests: hashes no digest again.
pub type ByDigest = BuildHasherDefault<Prehashed>;

/// Two multiplicative hashes of the same words. The default hasher takes most of the time of a search, and its keys are trusted
/// here. Searches are compiled in their own crates, so everything is inlined there.
struct Wide {
    halves: (u64, u64),
    /// The last bytes, up to seven, which become one word: most fields of small states are bytes.
    bytes: u64,
    count: u32,
}

impl Wide {
    #[inline]
    fn word(&mut self, word: u64) {
        let (one, two) = self.halves;
        let one = (one.rotate_left(25) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.halves = (one, (two ^ word ^ (two >> 29)).wrapping_mul(0xC2B2_AE3D_27D4_EB4F).rotate_left(31));
    }

    #[inline]
    fn flush(&mut self) {
        if self.count != 0 {
            // The number of bytes, so that none of them can be taken for part of what follows.
            self.halves.0 = self.halves.0.wrapping_add(self.count.into());
            self.word(self.bytes);
            (self.bytes, self.count) = (0, 0);
        }
    }
}

impl Hasher for Wide {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        if !words.is_empty() {
            self.flush();
        }
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.write_u8(*byte);
        }
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.bytes |= u64::from(byte) << (8 * self.count);
        self.count += 1;
        if self.count == 8 {
            self.flush();
        }
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.flush();
        self.word(word);
    }

    #[inline]
    fn write_u128(&mut self, words: u128) {
        self.write_u64(words as u64);
        self.word((words >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn write_isize(&mut self, discriminant: isize) {
        match u8::try_from(discriminant) {
            Ok(small) => self.write_u8(small),
            Err(_) => self.write_u64(discriminant.cast_unsigned() as u64),
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        mix(self.halves.0)
    }
}

/// The finisher of splitmix64.
#[inline]
const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The hash of a digest: its lower half.
#[derive(Debug, Default)]
pub struct Prehashed(u64);

impl Hasher for Prehashed {
    #[inline]
    fn write(&mut self, _: &[u8]) {
        unreachable!("only digests have this hasher");
    }

    #[inline]
    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
