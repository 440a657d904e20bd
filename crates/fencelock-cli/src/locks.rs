use serde_json::{Value, json};
use std::fmt;

/// The locks that an event is about: all that a command runs under, or one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Locks<'a> {
    keys: &'a [String],
    one: Option<&'a str>,
}

impl<'a> Locks<'a> {
    /// All locks of a command.
    pub(crate) const fn all(keys: &'a [String]) -> Self {
        Self { keys, one: None }
    }

    /// This lock, if one is given, among all locks of a command.
    pub(crate) const fn with_one(self, one: Option<&'a str>) -> Self {
        Self { one, ..self }
    }

    /// `event` with `key`, which is null for several locks, and `keys`, those of the command.
    pub(crate) fn add_to(self, mut event: Value) -> Value {
        let only = if let [key] = self.keys { Some(key.as_str()) } else { None };
        event["key"] = json!(self.one.or(only));
        event["keys"] = json!(self.keys);
        event
    }
}

impl fmt::Display for Locks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.one {
            Some(key) => f.write_str(key),
            None => f.write_str(&self.keys.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lock_is_named_and_several_are_listed() {
        let (one, two) = (["a".to_owned()], ["a".to_owned(), "b".to_owned()]);
        assert_eq!((Locks::all(&one).to_string(), Locks::all(&two).to_string()), ("a".to_owned(), "a, b".to_owned()));
        assert_eq!(Locks::all(&two).with_one(Some("b")).to_string(), "b");
        let event = |locks: Locks<'_>| locks.add_to(json!({ "event": "killing" })).to_string();
        assert_eq!(event(Locks::all(&one)), r#"{"event":"killing","key":"a","keys":["a"]}"#);
        assert_eq!(event(Locks::all(&two)), r#"{"event":"killing","key":null,"keys":["a","b"]}"#);
        assert_eq!(event(Locks::all(&two).with_one(Some("b"))), r#"{"event":"killing","key":"b","keys":["a","b"]}"#);
    }
}
