use crate::Key;

/// Redis Cluster spreads keys over this many slots.
const SLOTS: u16 = 16_384;

/// The name of something that belongs to a lock and must live on the same node of a Redis Cluster as its key.
///
/// The cluster places a key by what stands between its first `{` and the next `}`, or by the whole key if there is
/// nothing. So `orders` has `fencelock:{orders}:fence`, and `{user:1}:cart` has `fencelock:{user:1}:fence:{user:1}:cart`.
/// A key with a brace but no tag, such as `}{`, cannot be quoted in a tag; it gets the first number that falls into
/// its slot.
///
/// Source: "Redis cluster specification", hash tags.
pub fn side_key(key: &Key, what: &str) -> String {
    let name = key.as_str();
    match tag(name) {
        Some(tag) => format!("fencelock:{{{tag}}}:{what}:{name}"),
        None if !name.contains('}') => format!("fencelock:{{{name}}}:{what}"),
        None => format!("fencelock:{{{}}}:{what}:{name}", number_in_slot(slot(name))),
    }
}

/// The lock that a side key belongs to; `None` if it is none, or belongs to another purpose.
pub fn key_of_side_key(side: &str, what: &str) -> Option<Key> {
    let rest = side.strip_prefix(Key::RESERVED)?;
    let plain = rest.strip_suffix(what).and_then(|rest| rest.strip_suffix("}:"));
    let with_tag = rest.split_once(&format!("}}:{what}:")).map(|(_, name)| name);
    // Whatever it looks like, it is the right one if it leads back here.
    plain.into_iter().chain(with_tag).filter_map(|name| Key::new(name).ok()).find(|key| side_key(key, what) == side)
}

fn tag(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

fn slot(name: &str) -> u16 {
    crc16(tag(name).unwrap_or(name).as_bytes()) % SLOTS
}

fn number_in_slot(wanted: u16) -> u32 {
    // A hundred thousand numbers cover all 16384 slots; the test below counts them.
    (0..1 << 20).find(|n: &u32| slot(&n.to_string()) == wanted).unwrap_or(0)
}

/// CRC-16/XMODEM, as the cluster specification asks for.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    #[test]
    fn the_checksum_is_the_one_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn a_plain_key_is_its_own_tag() {
        assert_eq!(side_key(&key("orders"), "fence"), "fencelock:{orders}:fence");
    }

    #[test]
    fn a_key_with_a_tag_lends_its_tag() {
        assert_eq!(side_key(&key("{user:1}:cart"), "queue"), "fencelock:{user:1}:queue:{user:1}:cart");
    }

    #[test]
    fn a_number_is_found_for_every_slot() {
        let slots: HashSet<u16> = (0..1u32 << 20).map(|n| slot(&n.to_string())).collect();
        assert_eq!(slots.len(), usize::from(SLOTS));
    }

    #[test]
    fn names_that_look_alike_have_side_keys_of_their_own() {
        let names = ["a", "{a}", "{a}a", "a{a}", "}a{", "{}a", "a}", "{a", "a{", "{{a}}", "{a}{b}", ":", "fence:a"];
        let side: HashSet<String> = names.iter().map(|name| side_key(&key(name), "fence")).collect();
        assert_eq!(side.len(), names.len());
    }

    proptest! {
        #[test]
        fn a_side_key_lives_where_its_lock_lives(name in "[a-c{}:]{1,8}") {
            let lock = key(&name);
            prop_assert_eq!(slot(&side_key(&lock, "fence")), slot(&name), "{}", name);
            prop_assert_eq!(slot(&side_key(&lock, "queue")), slot(&name), "{}", name);
        }

        #[test]
        fn a_side_key_leads_back_to_its_lock(name in "[a-c{}:]{1,8}(:fence)?") {
            let lock = key(&name);
            prop_assert_eq!(key_of_side_key(&side_key(&lock, "fence"), "fence"), Some(lock.clone()));
            prop_assert_eq!(key_of_side_key(&side_key(&lock, "line"), "fence"), None);
        }
    }
}
