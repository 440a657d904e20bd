use crate::{Invalid, Key};

/// 1 to 16 different keys that are locked together.
///
/// Every client claims the keys of a set in the same order, that of their bytes, regardless of the order of the caller. Two
/// clients that want some of the same keys therefore never wait for each other in a circle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeySet {
    keys: Vec<Key>,
    order: Vec<usize>,
}

impl KeySet {
    /// Keys are held unused while their holder waits for the rest of its set, so a set is small.
    pub const MAX_KEYS: usize = 16;

    /// # Errors
    /// [`Invalid`] if there is no key, more than [`KeySet::MAX_KEYS`], an invalid key, or a key that is named twice.
    pub fn new<K: AsRef<str>>(names: impl IntoIterator<Item = K>) -> Result<Self, Invalid> {
        Self::up_to(Self::MAX_KEYS, names)
    }

    /// The same for up to `most` keys: those of a path are held together with others.
    ///
    /// # Errors
    /// See [`KeySet::new`].
    pub fn up_to<K: AsRef<str>>(most: usize, names: impl IntoIterator<Item = K>) -> Result<Self, Invalid> {
        let keys = names.into_iter().take(most + 1).map(Key::new).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err(Invalid::new("no key to lock: name at least one"));
        }
        if keys.len() > most {
            return Err(Invalid::new(format!("more than {most} keys cannot be locked together")));
        }
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|position| &keys[*position]);
        if let Some(pair) = order.windows(2).find(|pair| keys[pair[0]] == keys[pair[1]]) {
            let key = &keys[pair[0]];
            return Err(Invalid::new(format!("{key:?} is named twice: each key of a set is locked once")));
        }
        Ok(Self { keys, order })
    }

    /// The keys in the order in which the caller named them.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The positions in [`KeySet::keys`] in the order in which the keys are claimed.
    pub fn claim_order(&self) -> &[usize] {
        &self.order
    }

    /// The number of keys that are kept of those that were tried at the same time, in the order of claims: those before the first that
    /// was not granted. A client that waited for a key and held a later one could deadlock.
    pub fn kept(granted: impl IntoIterator<Item = bool>) -> usize {
        granted.into_iter().take_while(|granted| *granted).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(names: &[&str]) -> String {
        KeySet::new(names).unwrap_err().to_string()
    }

    #[test]
    fn keys_are_claimed_in_the_order_of_their_bytes() {
        let set = KeySet::new(["b", "订", "B", "a"]).unwrap();
        let claimed: Vec<_> = set.claim_order().iter().map(|position| set.keys()[*position].as_str()).collect();
        assert_eq!(claimed, ["B", "a", "b", "订"]);
        assert_eq!(set.keys(), ["b", "订", "B", "a"], "the caller's order is kept");
    }

    #[test]
    fn a_set_has_one_to_sixteen_keys() {
        let names: Vec<_> = (0..=KeySet::MAX_KEYS).map(|number| format!("k{number}")).collect();
        assert!(KeySet::new(&names[..1]).is_ok() && KeySet::new(&names[..KeySet::MAX_KEYS]).is_ok());
        assert_eq!(KeySet::new(&names).unwrap_err().to_string(), "more than 16 keys cannot be locked together");
        assert_eq!(refused(&[]), "no key to lock: name at least one");
    }

    #[test]
    fn a_list_without_an_end_is_refused() {
        assert!(KeySet::new((0..).map(|number| number.to_string())).is_err());
    }

    #[test]
    fn a_key_that_is_named_twice_is_refused_and_shown() {
        assert_eq!(refused(&["a", "b", "a"]), "\"a\" is named twice: each key of a set is locked once");
        assert!(KeySet::new(["a", "A", " a", "a "]).is_ok(), "keys are compared byte for byte");
    }

    #[test]
    fn one_invalid_key_makes_the_set_invalid() {
        assert_eq!(refused(&["a", ""]), Key::new("").unwrap_err().to_string());
        assert!(refused(&["a", "b\n"]).contains("control character"));
    }
}
