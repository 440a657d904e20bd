use crate::Key;

/// Redis Cluster spreads keys over this many slots.
const SLOTS: u16 = 16_384;

/// The names of what belongs to one lock and must live on the same node of a Redis Cluster as its key.
///
/// The cluster places a key by what stands between its first `{` and the next `}`, or by the whole key if there is
/// nothing. So `orders` has `fencelock:{orders}:fence`, and `{user:1}:cart` has `fencelock:{user:1}:fence:{user:1}:cart`.
/// A key with a brace but no tag, such as `}{`, cannot be quoted in a tag; it gets the first number that falls into
/// its slot.
///
/// Source: "Redis cluster specification", hash tags.
#[derive(Debug, Clone)]
pub struct SideKeys {
    /// Ends where the purpose is to be written.
    name: String,
    before: usize,
    /// What follows the purpose; empty for most keys.
    after: String,
}

impl SideKeys {
    /// The names for the lock that is called `name` on the wire.
    pub fn of(name: &str) -> Self {
        let (before, after) = match tag(name) {
            Some(tag) => (format!("fencelock:{{{tag}}}:"), format!(":{name}")),
            None if name.contains('}') => {
                (format!("fencelock:{{{}}}:", number_in_slot(slot(name))), format!(":{name}"))
            }
            None => {
                // Room for the purpose, so that the names of most keys are written without another allocation.
                let mut before = String::with_capacity(name.len() + 24);
                before.push_str("fencelock:{");
                before.push_str(name);
                before.push_str("}:");
                (before, String::new())
            }
        };
        Self { before: before.len(), name: before, after }
    }

    /// The name for one purpose. It stands until the next call.
    pub fn name(&mut self, what: &str) -> &str {
        self.name.truncate(self.before);
        self.name.push_str(what);
        self.name.push_str(&self.after);
        &self.name
    }
}

/// The name of what belongs to a lock for one purpose; see [`SideKeys`].
pub fn side_key(name: &str, what: &str) -> String {
    SideKeys::of(name).name(what).to_owned()
}

/// The wire name of the lock that a side key belongs to; `None` if it is none, or belongs to another purpose.
pub fn key_of_side_key<'a>(side: &'a str, what: &str) -> Option<&'a str> {
    let rest = side.strip_prefix(Key::RESERVED)?;
    let plain = rest.strip_suffix(what).and_then(|rest| rest.strip_suffix("}:"));
    let with_tag = rest.split_once(&format!("}}:{what}:")).map(|(_, name)| name);
    // Whatever it looks like, it is the right one if it leads back here.
    plain.into_iter().chain(with_tag).find(|name| side_key(name, what) == side)
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

    #[test]
    fn the_checksum_is_the_one_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn a_plain_key_is_its_own_tag() {
        assert_eq!(side_key("orders", "fence"), "fencelock:{orders}:fence");
    }

    #[test]
    fn a_key_with_a_tag_lends_its_tag() {
        assert_eq!(side_key("{user:1}:cart", "queue"), "fencelock:{user:1}:queue:{user:1}:cart");
    }

    #[test]
    fn a_number_is_found_for_every_slot() {
        let slots: HashSet<u16> = (0..1u32 << 20).map(|n| slot(&n.to_string())).collect();
        assert_eq!(slots.len(), usize::from(SLOTS));
    }

    #[test]
    fn names_that_look_alike_have_side_keys_of_their_own() {
        let names = ["a", "{a}", "{a}a", "a{a}", "}a{", "{}a", "a}", "{a", "a{", "{{a}}", "{a}{b}", ":", "fence:a"];
        let side: HashSet<String> = names.iter().map(|name| side_key(name, "fence")).collect();
        assert_eq!(side.len(), names.len());
    }

    #[test]
    fn one_value_names_every_purpose() {
        let mut keys = SideKeys::of("{a}b");
        assert_eq!(keys.name("line"), "fencelock:{a}:line:{a}b");
        assert_eq!(keys.name("fence"), "fencelock:{a}:fence:{a}b");
    }

    proptest! {
        #[test]
        fn a_side_key_lives_where_its_lock_lives(name in "[a-c{}:]{1,8}") {
            prop_assert_eq!(slot(&side_key(&name, "fence")), slot(&name), "{}", name);
            prop_assert_eq!(slot(&side_key(&name, "line")), slot(&name), "{}", name);
        }

        #[test]
        fn a_side_key_leads_back_to_its_lock(name in "[a-c{}:]{1,8}(:fence)?") {
            let (fence, line) = (side_key(&name, "fence"), side_key(&name, "line"));
            prop_assert_eq!(key_of_side_key(&fence, "fence"), Some(name.as_str()));
            prop_assert_eq!(key_of_side_key(&line, "fence"), None);
        }
    }
}
