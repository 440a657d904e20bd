//! The name of the object of a key: ASCII, one part of a path, at most 255 bytes, which every store and every file system takes.

use crate::web::hash;
use fencelock_core::Key;
use std::fmt::Write;

const END: &str = ".lock";
/// Longer encoded keys are replaced by their beginning and a hash.
const LONGEST: usize = 200;
const BEGINNING: usize = 120;
/// Stands before the hash: no encoded byte looks like it.
const HASHED: &str = "_-";

/// Letters, digits, `-` and `.` stay, and every other byte is `_` with two hexadecimal digits.
pub(super) fn encode(key: &Key) -> String {
    // Writing to a string does not fail.
    let mut name = String::with_capacity(key.as_str().len() + END.len());
    for byte in key.as_str().bytes() {
        match byte {
            b'-' | b'.' => name.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            _ => _ = write!(name, "_{byte:02x}"),
        }
    }
    if name.len() > LONGEST {
        name.truncate(BEGINNING);
        name.push_str(HASHED);
        name.push_str(&hash(key));
    }
    name + END
}

/// The key of an object; `Err` if only its record tells it, `None` if it is no record.
pub(super) fn decode(name: &str) -> Option<Result<Key, ()>> {
    let name = name.strip_suffix(END)?;
    if name.contains(HASHED) {
        return Some(Err(()));
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(name.len()), name.bytes());
    while let Some(byte) = rest.next() {
        if byte == b'_' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let key = Key::new(String::from_utf8(bytes).ok()?).ok()?;
    // Another program may have written it in another way.
    (encode(&key) == name.to_owned() + END).then_some(Ok(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_ascii_short_one_part_of_a_path_and_reads_back() {
        let long = "锁".repeat(22);
        for (key, name) in [
            ("orders-1.2", Some("orders-1.2.lock")),
            ("a/../b_c", Some("a_2f.._2fb_5fc.lock")),
            ("订单 %41", Some("_e8_ae_a2_e5_8d_95_20_2541.lock")),
            ("..", Some("...lock")),
            (&long, None),
        ] {
            let key = Key::new(key).unwrap();
            let encoded = encode(&key);
            assert!(name.is_none_or(|name| name == encoded), "{encoded}");
            assert_eq!(decode(&encoded), Some(Ok(key)));
        }
    }

    #[test]
    fn a_long_name_has_a_hash_and_differs_by_its_end() {
        let (one, other) = (Key::new("k".repeat(511) + "a").unwrap(), Key::new("k".repeat(511) + "b").unwrap());
        let (one, other) = (encode(&one), encode(&other));
        assert!(one != other && one.len() == 120 + 2 + 64 + 5 && one.is_ascii());
        assert_eq!((decode(&one), decode(&other)), (Some(Err(())), Some(Err(()))));
    }

    #[test]
    fn other_objects_are_no_records() {
        for name in ["orders", ".fencelock", "a_zz.lock", "a_2.lock", "_61.lock", ".lock"] {
            assert_eq!(decode(name), None, "{name}");
        }
    }
}
