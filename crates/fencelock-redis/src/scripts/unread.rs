//! Values and queue entries that this version cannot read.

use super::reply::Reply;
use super::wire::WIRE;
use fencelock_core::{Fault, Key, Unknown, side_key};
use redis::Value;

/// A live waiter with an unreadable entry. It keeps its position; others are served before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unread {
    holder: String,
    bytes: u64,
    begins: String,
}

impl Unread {
    /// Reads the last element of a reply, if the script found an unreadable entry. No other element of a reply is an array.
    pub(crate) fn of(answer: &Value) -> Option<Self> {
        let Value::Array(words) = answer else { return None };
        let Some(last @ Value::Array(_)) = words.last() else { return None };
        let mut reply = Reply::new("", last.clone()).ok()?;
        let (holder, bytes, begins) = (reply.text().ok()?, reply.count().ok()?, reply.text().ok()?);
        Some(Self { holder, bytes: bytes.into(), begins })
    }

    /// The id proves a hold, so only its start is shown.
    pub(crate) fn describe(&self, redis_key: &str) -> String {
        let holder: String = self.holder.chars().take(8).collect();
        let Self { bytes, begins, .. } = self;
        let entry = if *bytes == 0 { "no entry".to_owned() } else { format!("{begins:?}... of {bytes} bytes") };
        format!(
            "in the queue of {redis_key:?} the waiter {holder:?}... has an entry that version {WIRE} cannot read: {entry}. It keeps its \
             position, and others are served before it, until its client writes the entry again or has not polled for 3 s"
        )
    }

    /// The remedy if the entry does not disappear by itself.
    pub(crate) fn advice(redis_key: &str) -> String {
        format!(
            "use a later fencelock here if one writes such entries; else read them with HGETALL {:?}, and remove the \
             waiter: ZREM {:?} ID",
            side_key(redis_key, "waiters"),
            side_key(redis_key, "line")
        )
    }
}

/// `CAP` in `lock.lua`: the maximum number of waiters that a claim examines.
const EXAMINED: i64 = 32;

/// Whether a key may be [`stuck`], although an inspection says that it is free.
pub(crate) fn may_be_stuck(answer: &Value) -> bool {
    matches!(answer, Value::Int(waiters) if *waiters >= EXAMINED)
}

/// Reads the answer to `unread.lua` for a key that [`may_be_stuck`].
///
/// # Errors
/// A claim would be [`stuck`].
pub(crate) fn check(node: &str, redis_key: &str, answer: &Value) -> Result<(), Unknown> {
    match answer {
        Value::Array(words) if matches!(words.get(3), Some(Value::Int(found)) if *found >= EXAMINED) => {
            Err(stuck(node, redis_key, Unread::of(answer).as_ref()))
        }
        _ => Ok(()),
    }
}

/// For a claim of a free key whose queue starts with as many such waiters as one call examines.
pub(crate) fn stuck(node: &str, redis_key: &str, unread: Option<&Unread>) -> Unknown {
    let first = unread.map_or_else(String::new, |unread| unread.describe(redis_key));
    let detail = format!("too many waiters whose entries cannot be read: {first}; {}", Unread::advice(redis_key));
    Unknown::new(node, Fault::Busy, detail)
}

/// The refusal to evict a lock of a later version.
pub(crate) fn not_ended(key: &Key) -> String {
    format!("{key:?} is locked by a later version of fencelock, and was not changed: use that version")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn an_unreadable_entry_is_the_last_element_of_a_reply() {
        let unread = Value::Array(vec![text("0123456789abcdef"), Value::Int(900), text("soon")]);
        let reply = Value::Array(vec![text("granted"), text("7"), Value::Int(1), unread]);
        let description = Unread::of(&reply).unwrap().describe("app:k");
        let parts = [
            "in the queue of \"app:k\"",
            "\"01234567\"...",
            "\"soon\"... of 900 bytes",
            "version 1",
            "keeps its position",
        ];
        for part in parts {
            assert!(description.contains(part), "{part} in {description}");
        }
        assert!(!description.contains("89abcdef"), "the whole id is a proof: {description}");
        assert_eq!(Unread::of(&Value::Array(vec![text("granted"), text("7"), Value::Int(1)])), None);
    }
}
