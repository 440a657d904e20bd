use crate::Invalid;
use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of what is locked: 1 to 512 bytes of UTF-8 without control characters.
///
/// The bytes go on the wire as they are, so any other program that uses the same name on the same server shares the
/// lock. Spaces, braces and any writing system are allowed; a line break or a NUL is refused, because a name must fit on one
/// line of a log and of a lock file.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
pub struct Key(Arc<str>);

impl Key {
    /// The key is repeated in every message and side key, so it must be short.
    pub const MAX_BYTES: usize = 512;
    /// The prefix of the side keys of all locks: a lock with such a name would corrupt another lock.
    pub const RESERVED: &'static str = "fencelock:";

    /// # Errors
    /// [`Invalid`] if the name is empty, too long, reserved, or has a control character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Invalid> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Invalid::new("a lock's key must not be empty"));
        }
        if name.len() > Self::MAX_BYTES {
            return Err(Invalid::new(format!(
                "a lock's key has at most {} bytes; this one has {}: {:.40}...",
                Self::MAX_BYTES,
                name.len(),
                name
            )));
        }
        if let Some(c) = name.chars().find(|c| c.is_control()) {
            return Err(Invalid::new(format!("a lock's key must not contain {c:?} (control character): {name:?}")));
        }
        if name.starts_with(Self::RESERVED) {
            return Err(Invalid::new(format!(
                "keys that begin with {:?} are reserved for fencelock: {name:?}",
                Self::RESERVED
            )));
        }
        Ok(Self(name.into()))
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Key {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<&str> for Key {
    type Error = Invalid;

    fn try_from(name: &str) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<String> for Key {
    type Error = Invalid;

    fn try_from(name: String) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.as_str().to_owned()
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// A map with [`Key`]s can be searched by `&str`: equality, order and hash of a key are those of its name.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Key {
    fn eq(&self, name: &str) -> bool {
        self.as_str() == name
    }
}

impl PartialEq<&str> for Key {
    fn eq(&self, name: &&str) -> bool {
        self.as_str() == *name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, HashMap};

    #[test]
    fn an_empty_name_is_refused() {
        assert!(Key::new("").is_err());
    }

    #[test]
    fn five_hundred_and_twelve_bytes_are_the_limit() {
        assert!(Key::new("k".repeat(512)).is_ok());
        assert!(Key::new("k".repeat(513)).is_err());
        assert!(Key::new("锁".repeat(171)).is_err(), "the limit counts bytes, not characters");
    }

    #[test]
    fn line_breaks_and_nul_are_refused_and_named() {
        for name in ["a\nb", "a\rb", "a\0b", "a\u{85}b"] {
            let error = Key::new(name).unwrap_err().to_string();
            assert!(error.contains("control character"), "{error}");
        }
    }

    #[test]
    fn spaces_braces_and_other_scripts_are_kept_byte_for_byte() {
        for name in [" ", "a b", "{user}:1", "}{", "订单:42", "a/../b", "%41"] {
            assert_eq!(Key::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn a_key_converts_from_and_to_text() {
        let key = Key::try_from("orders").unwrap();
        assert_eq!(Key::try_from(String::from("orders")).unwrap(), key);
        assert_eq!("orders".parse::<Key>().unwrap(), key);
        assert!(Key::try_from("").is_err() && Key::try_from(String::new()).is_err());
        assert_eq!((key.as_ref(), key.to_string()), ("orders", "orders".to_owned()));
        assert!(key == "orders" && key == *"orders" && key != "other");
        assert_eq!(String::from(key), "orders");
    }

    #[test]
    fn a_map_of_keys_is_searched_by_name() {
        let names = ["b", "a", "订单:42"];
        let keys = || names.iter().map(|name| (Key::new(name).unwrap(), *name));
        let (hashed, ordered): (HashMap<_, _>, BTreeMap<_, _>) = (keys().collect(), keys().collect());
        for name in names {
            assert_eq!((hashed.get(name), ordered.get(name)), (Some(&name), Some(&name)));
        }
        assert_eq!(hashed.get("c"), None);
    }

    #[test]
    fn the_names_of_side_keys_are_refused() {
        assert!(Key::new("fencelock:{a}:fence").is_err());
        assert!(Key::new("fencelock:a").is_err());
        assert!(Key::new("fencelock").is_ok() && Key::new("fencelock-a").is_ok());
    }
}
