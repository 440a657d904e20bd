use crate::hash_slot::{hash_slot, number_in_slot, tag};
use fencelock_core::Key;
use std::borrow::Cow;
use std::fmt;

/// The names of what belongs to one lock and must live on the same node of a Redis Cluster as its key.
///
/// The cluster places a key by what stands between its first `{` and the next `}`, or by the whole key if there is
/// nothing. So:
///
/// | lock | its fence | when |
/// |---|---|---|
/// | `app:orders` | `fencelock:{app:orders}:fence` | mostly |
/// | `app:{user:1}:cart` | `fencelock:key:app:{user:1}:cart:fence` | the name has a tag |
/// | `app:}{` | `fencelock:raw:app:%7D%7B{42}:fence` | it has braces, but no tag, and cannot be one: the first number in its slot is |
///
/// Whatever a name begins with, its side keys have after `fencelock:{`, `fencelock:key:` or `fencelock:raw:`. So the rights of a
/// user can be bounded by a prefix.
///
/// Source: "Redis cluster specification", hash tags.
#[derive(Debug, Clone)]
pub(crate) struct SideKeys<'a> {
    open: &'static str,
    name: Cow<'a, str>,
    close: Cow<'static, str>,
}

impl<'a> SideKeys<'a> {
    /// The names for the lock that is called `name` on the wire.
    pub(crate) fn of(name: &'a str) -> Self {
        if tag(name).is_some() {
            Self { open: "key:", name: name.into(), close: ":".into() }
        } else if name.contains('}') {
            let close = format!("{{{}}}:", number_in_slot(hash_slot(name)));
            Self { open: "raw:", name: without_braces(name).into(), close: close.into() }
        } else {
            Self { open: "{", name: name.into(), close: "}:".into() }
        }
    }

    /// The name for one purpose. It can be written to a request without an allocation.
    pub(crate) const fn name<'b>(&'b self, what: &'b str) -> impl fmt::Display + 'b {
        SideKey { keys: self, what }
    }
}

struct SideKey<'a> {
    keys: &'a SideKeys<'a>,
    what: &'a str,
}

/// Each acquisition writes some, so it uses no format string.
impl fmt::Display for SideKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SideKeys { open, name, close } = self.keys;
        [Key::RESERVED, open, name, close, self.what].into_iter().try_for_each(|part| f.write_str(part))
    }
}

/// The name of what belongs to a lock for one purpose.
pub fn side_key(name: &str, what: &str) -> String {
    SideKeys::of(name).name(what).to_string()
}

/// The wire name of the lock that a side key belongs to; `None` if it is not a side key, or belongs to another purpose.
pub(crate) fn key_of_side_key(side: &str, what: &str) -> Option<String> {
    let name = side.strip_prefix(Key::RESERVED)?.strip_suffix(what)?.strip_suffix(':')?;
    let plain = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).map(str::to_owned);
    let tagged = name.strip_prefix("key:").map(str::to_owned);
    let raw = name.strip_prefix("raw:").and_then(|name| name.rsplit_once('{')).map(|(name, _)| with_braces(name));
    // Whatever it looks like, it is the right one if it leads back here.
    [plain, tagged, raw].into_iter().flatten().find(|name| side_key(name, what) == side)
}

fn without_braces(name: &str) -> String {
    name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

fn with_braces(name: &str) -> String {
    name.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_plain_key_is_its_own_tag() {
        assert_eq!(side_key("orders", "fence"), "fencelock:{orders}:fence");
    }

    #[test]
    fn a_key_with_a_tag_lends_its_tag() {
        assert_eq!(side_key("app:{user:1}:cart", "queue"), "fencelock:key:app:{user:1}:cart:queue");
    }

    #[test]
    fn a_key_with_braces_and_no_tag_lends_a_number() {
        let side = side_key("app:}{", "fence");
        assert!(side.starts_with("fencelock:raw:app:%7D%7B{") && side.ends_with("}:fence"), "{side}");
    }

    #[test]
    fn names_that_look_alike_have_side_keys_of_their_own() {
        let names = [
            "a", "{a}", "{a}a", "a{a}", "}a{", "{}a", "a}", "{a", "a{", "{{a}}", "{a}{b}", ":", "fence:a", "}", "%7D",
            "%7D{7}", "%257D",
        ];
        let side: HashSet<String> = names.iter().map(|name| side_key(name, "fence")).collect();
        assert_eq!(side.len(), names.len());
    }

    #[test]
    fn one_value_names_every_purpose() {
        let keys = SideKeys::of("{a}b");
        assert_eq!(keys.name("line").to_string(), "fencelock:key:{a}b:line");
        assert_eq!(keys.name("fence").to_string(), "fencelock:key:{a}b:fence");
    }

    proptest! {
        #[test]
        fn a_side_key_lives_where_its_lock_lives(name in "[a-c{}:]{1,8}") {
            prop_assert_eq!(hash_slot(&side_key(&name, "fence")), hash_slot(&name), "{}", name);
            prop_assert_eq!(hash_slot(&side_key(&name, "line")), hash_slot(&name), "{}", name);
        }

        #[test]
        fn a_side_key_leads_back_to_its_lock(name in "[a-c{}:%7BD25]{1,8}(:fence)?") {
            let (fence, line) = (side_key(&name, "fence"), side_key(&name, "line"));
            prop_assert_eq!(key_of_side_key(&fence, "fence"), Some(name));
            prop_assert_eq!(key_of_side_key(&line, "fence"), None);
        }
    }
}
