//! The text and number forms of keys, holders and tokens for `serde`, which pass the same checks as constructed ones.
#![cfg(feature = "serde")]
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock_core::{FencingToken, HolderId, Key};
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
    assert!(error.contains("between 1 and 2^53 - 1; 0 does not"), "{error}");
}
