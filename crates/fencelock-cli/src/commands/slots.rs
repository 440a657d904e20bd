use crate::text::{holding, plain};
use fencelock::contract::engine::SlotOrder;
use fencelock::{Client, Error, Holding, Span};
use std::fmt;
use std::fmt::Write;
use std::time::Duration;
use tokio::time::timeout;

/// A server with very many keys takes longer to list its locks.
pub(super) const LISTING: Duration = Duration::from_secs(5);
/// The number of slots that are shown with their holders.
const SHOWN: usize = 16;

/// Why the held slots of a key are unknown.
#[derive(Debug)]
pub(super) enum Unlisted {
    /// The locks were not listed within this time.
    Late(Duration),
    Failed(Error),
}

impl fmt::Display for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(within) => write!(f, "the locks were not listed within {}", Span(*within)),
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

/// The held slots of a key, which are keys of their own.
pub(super) async fn held(key: &str, client: &Client, within: Duration) -> Result<Vec<Holding>, Unlisted> {
    let listed = timeout(within, client.list()).await.map_err(|_| Unlisted::Late(within))?;
    let mut slots = listed.map_err(Unlisted::Failed)?;
    slots.retain(|held| number(key, held.key.as_str()).is_some());
    slots.sort_by_key(|held| number(key, held.key.as_str()));
    Ok(slots)
}

/// The number of the slot of `key` that has this name.
pub(super) fn number(key: &str, name: &str) -> Option<u32> {
    let digits = name.strip_prefix(key)?.strip_prefix('#')?;
    let number: u32 = digits.parse().ok()?;
    (number < SlotOrder::MOST && number.to_string() == digits).then_some(number)
}

/// `2 of its slots are held`
pub(super) fn counted(slots: &[Holding]) -> String {
    match slots.len() {
        1 => "1 of its slots is held".to_owned(),
        many => format!("{many} of its slots are held"),
    }
}

/// The same, and who holds each.
pub(super) fn shown(slots: &[Holding]) -> String {
    let mut text = counted(slots);
    for slot in slots.iter().take(SHOWN) {
        let _ = write!(text, "\n  {}: {}", plain(&slot.key), holding(slot));
    }
    if slots.len() > SHOWN {
        let _ = write!(text, "\n  and {} more: `fencelock list` shows all", slots.len() - SHOWN);
    }
    text
}

/// What is said about a free key whose slots cannot be seen.
pub(super) fn unknown(why: &Unlisted) -> String {
    format!("whether slots of it are held is unknown: {}", plain(&why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_client_makes_of_a_key_is_one_of_its_slots() {
        let numbers =
            ["k#0", "k#999", "k#1000", "k#01", "k#+1", "k#", "k", "k#1#2", "l#1"].map(|name| number("k", name));
        assert_eq!(numbers[..2], [Some(0), Some(999)]);
        assert!(numbers[2..].iter().all(Option::is_none), "{numbers:?}");
        assert_eq!(number("k#1", "k#1#2"), Some(2));
    }
}
