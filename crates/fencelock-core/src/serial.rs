//! The text and number forms of keys, holders and tokens for `serde`. Deserialized values pass the same checks as
//! constructed ones.

use crate::{FencingToken, HolderId, Key};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// Serialized as its name.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Deserialized from its name, checked like [`Key::new`].
impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text { expected: "a lock's key", parsed: PhantomData })
    }
}

/// Serialized as 32 hexadecimal digits. It is a proof: a reader can renew and release.
impl Serialize for HolderId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Deserialized from 32 lowercase hexadecimal digits.
impl<'de> Deserialize<'de> for HolderId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text { expected: "32 lowercase hexadecimal digits", parsed: PhantomData })
    }
}

/// Serialized as a number, which JavaScript and any double represent exactly.
impl Serialize for FencingToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

/// Deserialized from a number, checked like [`FencingToken::new`].
impl<'de> Deserialize<'de> for FencingToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(Number)
    }
}

/// Parses a text with the rules of `T`.
struct Text<T> {
    expected: &'static str,
    parsed: PhantomData<T>,
}

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

struct Number;

impl Visitor<'_> for Number {
    type Value = FencingToken;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fencing token, an integer from 1 to 2^53 - 1")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<FencingToken, E> {
        FencingToken::new(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<FencingToken, E> {
        FencingToken::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_str, from_value, json, to_string, to_value};

    #[test]
    fn a_key_is_a_string_and_is_checked_when_it_is_read() {
        let key = Key::new("订单:42 {a}").unwrap();
        assert_eq!(to_value(&key).unwrap(), json!("订单:42 {a}"));
        assert_eq!(from_str::<Key>(&to_string(&key).unwrap()).unwrap(), key);
        let escaped = r#""a\nb""#;
        for text in [r#""""#, escaped, r#""fencelock:{a}:fence""#, "7", "null"] {
            assert!(from_str::<Key>(text).is_err(), "{text}");
        }
        assert!(from_value::<Key>(json!("k".repeat(513))).is_err());
    }

    #[test]
    fn a_holder_is_its_digits() {
        let holder = HolderId::from_bytes([0xab; 16]);
        assert_eq!(to_value(holder).unwrap(), json!("ab".repeat(16)));
        assert_eq!(from_value::<HolderId>(json!("ab".repeat(16))).unwrap(), holder);
        for bad in [json!("AB".repeat(16)), json!("ab"), json!(1), json!([1, 2])] {
            assert!(from_value::<HolderId>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_a_number_in_its_range() {
        for number in [1, FencingToken::MAX] {
            let token = FencingToken::new(number).unwrap();
            assert_eq!(to_value(token).unwrap(), json!(number));
            assert_eq!(from_value::<FencingToken>(json!(number)).unwrap(), token);
        }
        for bad in ["0", "-1", "9007199254740992", "1.0", "\"7\"", "null"] {
            assert!(from_str::<FencingToken>(bad).is_err(), "{bad}");
        }
        let error = from_str::<FencingToken>("0").unwrap_err().to_string();
        assert!(error.contains("integer `0`, expected a fencing token, an integer from 1 to 2^53 - 1"), "{error}");
    }

    #[test]
    fn they_are_fields_of_what_others_store() {
        #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
        struct Job {
            key: Key,
            holder: HolderId,
            fence: FencingToken,
        }
        let job = Job {
            key: Key::new("k").unwrap(),
            holder: HolderId::from_bytes([1; 16]),
            fence: FencingToken::new(7).unwrap(),
        };
        let text = to_string(&job).unwrap();
        assert_eq!(text, format!(r#"{{"key":"k","holder":"{}","fence":7}}"#, "01".repeat(16)));
        assert_eq!(from_str::<Job>(&text).unwrap(), job);
    }
}
