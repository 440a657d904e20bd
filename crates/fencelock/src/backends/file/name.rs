//! Converts a key to the name of its lock file.

use fencelock_core::Key;
use hmac_sha256::Hash;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The extension of lock files.
pub(super) const SUFFIX: &str = ".lock";

/// The extension of files with a completion.
const COMPLETION_SUFFIX: &str = ".once";

/// Most file systems limit a name to 255 bytes; the rest is reserved for the extension and for tools that add their own.
const LONGEST: usize = 200;
/// How much of a long key stays readable before its checksum.
const PREFIX: usize = 120;
/// The extension of the file that a process locks while it enters a row.
const ROW: &str = ".row";
/// The extension of the file that waiting writers lock.
const WRITER: &str = ".writer";

/// The unique, readable file name of `key`.
///
/// Lowercase letters, digits and `.` `_` `-` are unchanged, an uppercase letter is written as `+` and its lowercase
/// form, every other byte as `%` and two lowercase digits. So names also differ on a file system that ignores case, and
/// need no Unicode rules. A leading dot is written `%2e`: no name is hidden, or is `.` or `..`. A name longer
/// than 200 bytes is truncated and gets `~` and its SHA-256; no shorter name contains `~`.
pub(super) fn file_name(key: &Key) -> String {
    let mut name = String::with_capacity(key.as_str().len() + SUFFIX.len());
    let mut cut = 0;
    for (i, byte) in key.as_str().bytes().enumerate() {
        match byte {
            b'.' if i == 0 => name.push_str("%2e"),
            b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => name.push(char::from(byte)),
            b'A'..=b'Z' => name.extend(['+', char::from(byte.to_ascii_lowercase())]),
            // Writing to a string cannot fail.
            _ => drop(write!(name, "%{byte:02x}")),
        }
        if name.len() <= PREFIX {
            cut = name.len();
        }
    }
    if name.len() > LONGEST {
        name.truncate(cut);
        name.push('~');
        for byte in Hash::hash(key.as_str().as_bytes()) {
            let _ = write!(name, "{byte:02x}");
        }
    }
    name + SUFFIX
}

/// The name of the file with the completion of `key`.
pub(super) fn completion_file_name(key: &Key) -> String {
    let mut name = file_name(key);
    name.truncate(name.len() - SUFFIX.len());
    name + COMPLETION_SUFFIX
}

/// The file of a holder of a row; see the module `slot_files`.
pub(super) fn slot_path(lock_file: &Path, slot: u32) -> PathBuf {
    beside(lock_file, &format!(".{slot}"))
}

/// The file that a process locks while it enters a row.
pub(super) fn row_path(lock_file: &Path) -> PathBuf {
    beside(lock_file, ROW)
}

/// The file that waiting writers lock; see the module `writer_mark`.
pub(super) fn writer_path(lock_file: &Path) -> PathBuf {
    beside(lock_file, WRITER)
}

/// It does not have the extension of lock files, so older versions ignore it.
fn beside(lock_file: &Path, extension: &str) -> PathBuf {
    let mut path = lock_file.as_os_str().to_owned();
    path.push(extension);
    path.into()
}

/// The name of the lock file to which this slot file belongs.
fn lock_file_of_slot(name: &str) -> Option<&str> {
    let (lock_file, number) = name.rsplit_once('.')?;
    let is_slot = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_slot && lock_file.ends_with(SUFFIX)).then_some(lock_file)
}

/// The name of the lock file whose waiters this file concerns when it is closed: a slot file, or the mark of a waiting writer.
pub(super) fn lock_file_of(name: &str) -> &str {
    let marked = name.strip_suffix(WRITER).filter(|lock_file| lock_file.ends_with(SUFFIX));
    lock_file_of_slot(name).or(marked).unwrap_or(name)
}

/// Whether this is the name of a lock file or of a file of its row.
pub(super) fn is_used(name: &str) -> bool {
    lock_file_of(name.strip_suffix(ROW).unwrap_or(name)).ends_with(SUFFIX)
}

/// The key of a lock file; `None` for other files, and for a long key, whose name contains only a checksum.
pub(super) fn key_of(file_name: &str) -> Option<Key> {
    let mut rest = file_name.strip_suffix(SUFFIX)?.as_bytes();
    let mut key = Vec::with_capacity(rest.len());
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = match first {
            b'+' => tail.split_first().map(|(letter, tail)| (letter.to_ascii_uppercase(), tail))?,
            b'%' => {
                let (digits, tail) = tail.split_at_checked(2)?;
                (u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?, tail)
            }
            _ => (first, tail),
        };
        key.push(byte);
        rest = tail;
    }
    let key = Key::new(String::from_utf8(key).ok()?).ok()?;
    // A name in a non-canonical form is not a lock file.
    (self::file_name(&key) == file_name).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(key: &str) -> String {
        file_name(&Key::new(key).unwrap())
    }

    #[test]
    fn a_plain_key_names_its_file() {
        assert_eq!(named("orders-2024_11.csv"), "orders-2024_11.csv.lock");
        assert_eq!(named("sku:0001"), "sku%3a0001.lock");
        assert_eq!(named("a/../b"), "a%2f..%2fb.lock");
        assert_eq!(named("SKU"), "+s+k+u.lock");
        assert_eq!(named("100%"), "100%25.lock");
        assert_eq!(completion_file_name(&Key::new("sku:1").unwrap()), "sku%3a1.once");
    }

    #[test]
    fn no_name_is_hidden_or_leads_elsewhere() {
        assert_eq!(named("."), "%2e.lock");
        assert_eq!(named(".."), "%2e..lock");
        assert_eq!(named("/etc/passwd"), "%2fetc%2fpasswd.lock");
    }

    #[test]
    fn a_long_key_keeps_its_beginning_and_a_checksum() {
        let name = named(&"k".repeat(512));
        assert!(name.starts_with(&"k".repeat(120)) && name.len() == 120 + 1 + 64 + 5, "{name}");
        assert_ne!(name, named(&"k".repeat(511)));
        assert_eq!(key_of(&name), None);
    }

    #[test]
    fn a_long_key_is_cut_between_characters() {
        let name = named(&"锁".repeat(170));
        assert_eq!(name.find('~'), Some(120), "{name}");
        let name = named(&format!("x{}", "锁".repeat(100)));
        assert_eq!(name.find('~'), Some(118), "{name}");
    }

    #[test]
    fn other_files_have_no_key() {
        for name in ["", ".lock", "orders", "Orders.lock", "a%2.lock", "a%2F.lock", "%61.lock", "a+.lock", "+1.lock"] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }

    #[test]
    fn the_files_of_a_row_are_no_lock_files() {
        let lock_file = Path::new("/d/a.lock");
        for path in [slot_path(lock_file, 0), slot_path(lock_file, 17), row_path(lock_file), writer_path(lock_file)] {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(is_used(name) && key_of(name).is_none(), "{name}");
        }
        assert_eq!(lock_file_of_slot("a.lock.17"), Some("a.lock"));
        for name in ["a.lock", "a.lock.", "a.lock.x", "a.0", "0", "a.lock.row", "a.lock.1.row"] {
            assert_eq!(lock_file_of_slot(name), None, "{name}");
        }
        assert_eq!(
            (lock_file_of("a.lock.17"), lock_file_of("a.lock.writer"), lock_file_of("a.writer")),
            ("a.lock", "a.lock", "a.writer")
        );
        for name in ["", "a", "a.row", "a.writer", "a.0", "a.lock.x", "a.lock.1.writer"] {
            assert!(!is_used(name), "{name}");
        }
    }

    /// Short and long keys with few different characters, so that similar keys are common.
    fn keys() -> impl Strategy<Value = String> {
        prop_oneof!["[aA.%+~2e/]{1,5}", "\\PC{1,60}", "[aA~]{195,205}", "[a%]{60,70}"]
    }

    proptest! {
        #[test]
        fn different_keys_have_different_files_even_where_case_is_ignored(a in keys(), b in keys()) {
            prop_assume!(a.len() <= Key::MAX_BYTES && b.len() <= Key::MAX_BYTES && a != b);
            prop_assert_ne!(named(&a).to_lowercase(), named(&b).to_lowercase());
        }

        #[test]
        fn a_name_is_one_plain_component_that_reads_back(key in keys()) {
            prop_assume!(key.len() <= Key::MAX_BYTES);
            let name = named(&key);
            prop_assert!(name.len() <= 205 && !name.starts_with('.') && !name.contains('/'), "{}", name);
            let back = key_of(&name);
            prop_assert!(back.is_none() == name.contains('~'), "{}", name);
            prop_assert!(back.is_none_or(|back| back.as_str() == key));
        }
    }
}
