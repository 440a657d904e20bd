use crate::{Completion, FencingToken, Foreign, Holder, Key, Owner, Ttl};
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// The content of a register: what all clients know of one key.
///
/// A record is never deleted: a free one has no hold. So no version comes back, and the next token is greater without a clock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// New in every write, so that equal contents have different versions, also where the version is a hash of the content.
    pub nonce: u64,
    /// The greatest fencing token so far; 0 if none was granted.
    pub token: u64,
    /// The hold; `None` while the key is free.
    pub hold: Option<Hold>,
    /// The latest success of the work of this key.
    pub done: Option<Completion>,
    /// Lines of a later version, which are kept as they are.
    pub kept: Arc<str>,
}

/// The hold of a [`Record`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The holder.
    pub holder: Holder,
    /// The lease lasts this long from the latest write.
    pub ttl: Ttl,
    /// When it was granted, in microseconds since 1970 by the clock of the store; 0 if the store tells no time. Informational.
    pub since_micros: u64,
}

/// Without the time, which no decision depends on: holds that are otherwise the same have the same future.
impl Hash for Hold {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.holder.id.hash(hasher);
        self.ttl.hash(hasher);
    }
}

const FORMAT: &str = "fencelock 1";

impl Record {
    /// The longest record that is read. The longest that is written has 3 KiB.
    pub const MAX_BYTES: usize = 4096;

    /// The length of the record of a held key is a multiple of this, and that of a free key is less by [`Record::FREE`]. So a listing
    /// with lengths shows which keys may be held.
    const UNIT: usize = 1024;
    const FREE: usize = 256;
    /// The longest part that a later version may add without a new format.
    const KEPT: usize = 1024;

    /// A record of a free key.
    pub fn free(token: u64) -> Self {
        Self { nonce: 0, token, hold: None, done: None, kept: "".into() }
    }

    /// Lines of text: the format, and a name with a value in each of the others. Neither a key nor an owner has control characters,
    /// so nothing is escaped. Empty lines fill it up.
    pub fn to_bytes(&self, key: &Key) -> Vec<u8> {
        let mut text = format!("{FORMAT}\nkey {key}\nnonce {:016x}\ntoken {}\n", self.nonce, self.token);
        // Writing to a string does not fail.
        if let Some(Hold { holder, ttl, since_micros }) = &self.hold {
            let owner = holder.owner.as_str();
            let _ = writeln!(text, "hold {} {} {since_micros} {owner}", holder.id, ttl.as_millis());
        }
        if let Some(done) = &self.done {
            let _ = writeln!(text, "done {}", done.to_wire());
        }
        text.push_str(&self.kept);
        let spare = if self.hold.is_some() { 0 } else { Self::FREE };
        let length = (text.len() + spare).next_multiple_of(Self::UNIT) - spare;
        let mut bytes = text.into_bytes();
        bytes.resize(length, b'\n');
        bytes
    }

    /// Whether a record of this length may be that of a held key.
    pub const fn may_be_held(length: u64) -> bool {
        !(length + Self::FREE as u64).is_multiple_of(Self::UNIT as u64)
    }

    /// The key that a record names, for stores whose names do not tell it.
    pub fn key_of(bytes: &[u8]) -> Option<Key> {
        let text = str::from_utf8(bytes).ok().filter(|text| text.starts_with("fencelock "))?;
        Key::new(text.split('\n').find_map(|line| line.strip_prefix("key "))?).ok()
    }

    /// The record of `key` in `bytes`.
    ///
    /// # Errors
    /// What is stored if it is not understood as a whole. It may be a hold of a later version, so it is never overwritten.
    pub fn from_bytes(bytes: &[u8], key: &Key) -> Result<Self, Foreign> {
        // Of a longer one, a store may return less than there is.
        let more = if bytes.len() > Self::MAX_BYTES { "more than " } else { "" };
        let length = bytes.len().min(Self::MAX_BYTES);
        Self::parse(bytes, key).map_err(|what| Foreign::other(format!("{more}{length} bytes, {what}")))
    }

    fn parse(bytes: &[u8], key: &Key) -> Result<Self, &'static str> {
        if bytes.len() > Self::MAX_BYTES {
            return Err("too long for a record of a lock");
        }
        let text = str::from_utf8(bytes).map_err(|_| "not text")?;
        let mut lines = text.split('\n');
        match lines.next() {
            Some(FORMAT) => {}
            Some(line) if line.starts_with("fencelock ") => return Err("a record of a later version of fencelock"),
            _ => return Err("not a record of a lock"),
        }
        let (mut named, mut nonce, mut token, mut hold, mut done) = (None, None, None, None, None);
        let mut kept = String::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            let is_twice = match name {
                "key" => named.replace(value).is_some(),
                "nonce" => nonce.replace(read_nonce(value).ok_or("with another nonce")?).is_some(),
                "token" => token.replace(read_token(value).ok_or("with another token")?).is_some(),
                "hold" => hold.replace(read_hold(value).ok_or("with another hold")?).is_some(),
                "done" => done.replace(Completion::from_wire(value).ok_or("with another completion")?).is_some(),
                // What a client must understand before it changes anything.
                _ if name.starts_with('!') => return Err("with a line of a later version of fencelock"),
                _ => {
                    kept.push_str(line);
                    kept.push('\n');
                    false
                }
            };
            if is_twice {
                return Err("with a line twice");
            }
        }
        if named.ok_or("without a key")? != key.as_str() {
            return Err("a record of another key");
        }
        if kept.len() > Self::KEPT {
            return Err("with too much of a later version of fencelock");
        }
        let (nonce, token) = (nonce.ok_or("without a nonce")?, token.ok_or("without a token")?);
        Ok(Self { nonce, token, hold, done, kept: kept.into() })
    }
}

fn read_nonce(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16)
}

fn read_token(text: &str) -> Option<u64> {
    text.parse().ok().filter(|token| *token <= FencingToken::MAX)
}

fn read_hold(text: &str) -> Option<Hold> {
    let mut parts = text.splitn(4, ' ');
    let id = parts.next()?.parse().ok()?;
    let ttl = Ttl::new(Duration::from_millis(parts.next()?.parse().ok()?)).ok()?;
    let since_micros = parts.next()?.parse().ok()?;
    Some(Hold { holder: Holder { id, owner: Owner::from_text(parts.next()?) }, ttl, since_micros })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HolderId;
    use proptest::prelude::*;

    fn key() -> Key {
        Key::new("orders").unwrap()
    }

    fn held() -> Record {
        let holder =
            Holder { id: HolderId::from_bytes([0xab; 16]), owner: Owner::new("web-1", 42, Some("night run")).unwrap() };
        let hold = Hold { holder, ttl: Ttl::default(), since_micros: 1_780_000_000_000_000 };
        Record { nonce: 0xf00, hold: Some(hold), ..Record::free(1_780_000_000_000_001) }
    }

    fn text(record: &Record) -> String {
        String::from_utf8(record.to_bytes(&key())).unwrap()
    }

    fn refusal(text: &str) -> String {
        Record::from_bytes(text.as_bytes(), &key()).unwrap_err().to_string()
    }

    #[test]
    fn a_record_is_text_that_reads_back() {
        let shown = text(&held());
        let hold = format!("hold {} 30000 1780000000000000 web-1:42 night run", "ab".repeat(16));
        let lines = ["fencelock 1", "key orders", "nonce 0000000000000f00", "token 1780000000000001", &hold];
        assert!(shown.lines().take(5).eq(lines), "{shown}");
        assert_eq!(Record::from_bytes(shown.as_bytes(), &key()), Ok(held()));
        let done = Completion::new(9, FencingToken::new(7).unwrap(), 5, Owner::from_text("web-1:42 a b"));
        let free = Record { done: Some(done), ..Record::free(8) };
        assert_eq!(Record::from_bytes(text(&free).as_bytes(), &key()), Ok(free));
    }

    #[test]
    fn the_length_tells_a_held_key_from_a_free_one_and_the_longest_record_is_read() {
        let owner = Owner::from_text(&"o".repeat(256));
        for (length, more) in [(1, 0), (256, 0), (512, 0), (512, 1000)] {
            let key = Key::new("k".repeat(length)).unwrap();
            let done =
                Completion::new(9_999_999_999_999_999, FencingToken::new(1 << 50).unwrap(), 1 << 50, owner.clone());
            let mut record = Record { done: Some(done), kept: format!("x {}\n", "y".repeat(more)).into(), ..held() };
            record.hold.as_mut().unwrap().holder.owner = owner.clone();
            for held in [true, false] {
                record.hold = record.hold.filter(|_| held);
                let bytes = record.to_bytes(&key);
                assert_eq!(Record::may_be_held(bytes.len() as u64), held, "{length} {more} {}", bytes.len());
                assert!(bytes.len() <= 3 << 10, "{}", bytes.len());
                assert_eq!(Record::from_bytes(&bytes, &key).as_ref(), Ok(&record));
            }
        }
    }

    #[test]
    fn what_a_later_version_adds_is_kept_and_what_must_be_understood_is_foreign() {
        let more = text(&held()).trim_end().to_owned() + "\nweight 3\nodd\n";
        let read = Record::from_bytes(more.as_bytes(), &key()).unwrap();
        let written = text(&Record { hold: None, ..read });
        assert!(written.contains("\nweight 3\nodd\n") && !written.contains("hold"), "{written}");
        assert!(refusal(&(more + "!shared 2\n")).contains("later version"));
    }

    #[test]
    fn what_is_not_understood_is_foreign() {
        let ours = text(&held());
        for (from, to, why) in [
            ("fencelock 1\n", "fencelock 2\n", "later version"),
            ("fencelock 1\n", "{\"a\": 1}\n", "not a record"),
            ("key orders", "key Orders", "another key"),
            ("nonce 0", "nonce ", "another nonce"),
            ("token 1", "token -1", "another token"),
            ("token 1", "token 9999999", "another token"),
            ("30000", "0", "another hold"),
            ("30000", "30000 permits", "another hold"),
            ("\n\n", "\ndone 3 x\n", "another completion"),
            ("\n\n", "\ntoken 7\n", "a line twice"),
            ("token", "Token", "without a token"),
        ] {
            let changed = ours.replacen(from, to, 1);
            assert!(changed != ours && refusal(&changed).contains(why), "{why}: {}", refusal(&changed));
        }
        assert!(refusal("").contains("0 bytes, not a record"));
        let long = refusal(&(ours + &"\n".repeat(1 << 20)));
        assert!(long.contains("more than 4096 bytes, too long"), "{long}");
        assert!(Record::from_bytes(&[0xff; 9], &key()).is_err());
    }

    proptest! {
        #[test]
        fn any_key_and_owner_read_back(name in "[^\\p{Cc}]{1,100}", owner in ".{0,200}", token in 0..=FencingToken::MAX) {
            prop_assume!(Key::new(&name).is_ok());
            let key = Key::new(&name).unwrap();
            let mut record = Record { token, ..held() };
            record.hold.as_mut().unwrap().holder.owner = Owner::from_text(&owner);
            prop_assert_eq!(Record::from_bytes(&record.to_bytes(&key), &key), Ok(record));
        }

        #[test]
        fn any_bytes_are_foreign(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Record::from_bytes(&bytes, &key()).is_err());
        }
    }
}
