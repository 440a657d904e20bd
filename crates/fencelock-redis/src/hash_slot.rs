use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Redis Cluster distributes keys over this many hash slots.
pub(crate) const HASH_SLOTS: u16 = 16_384;

/// The hash slot of a key of a Redis Cluster: keys in the same slot are on the same node.
///
/// The slot depends on the text between the first `{` and the next `}`, or on the whole key if there is none.
///
/// Source: "Redis cluster specification", hash tags.
pub(crate) fn hash_slot(key: &str) -> u16 {
    crc16(tag(key).unwrap_or(key).as_bytes()) % HASH_SLOTS
}

/// The least number whose decimal digits are a key of this hash slot.
///
/// # Panics
/// If `slot` is not less than [`HASH_SLOTS`].
pub(crate) fn number_in_slot(slot: u16) -> u32 {
    static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let mut numbers = BTreeMap::new();
        for number in 0.. {
            numbers.entry(hash_slot(&number.to_string())).or_insert(number);
            if numbers.len() == usize::from(HASH_SLOTS) {
                break;
            }
        }
        numbers.into_values().collect()
    });
    NUMBERS[usize::from(slot)]
}

pub(crate) fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

/// CRC-16/XMODEM, as the cluster specification requires.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn every_slot_has_a_number() {
        assert!((0..HASH_SLOTS).all(|slot| hash_slot(&number_in_slot(slot).to_string()) == slot));
        let most = (0..HASH_SLOTS).map(number_in_slot).max().unwrap();
        assert!(most < 200_000, "the search for all numbers is short: {most}");
    }

    #[test]
    fn a_tag_is_the_text_between_the_first_braces() {
        for (key, tagged) in [("a{b}c", Some("b")), ("{}a", None), ("a{b", None), ("a}b{c}{d}", Some("c"))] {
            assert_eq!(tag(key), tagged, "{key}");
        }
        assert_eq!((hash_slot("foo"), hash_slot("user:{foo}:cart")), (12182, 12182));
    }
}
