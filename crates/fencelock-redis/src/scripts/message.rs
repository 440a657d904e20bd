//! The message on the channel of a waiter's client.

use super::wire::WIRE;
use fencelock_core::{HolderId, TokenBlock};
use std::time::Duration;

/// The hand-over of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant<'a> {
    /// The run id of the server that handed the key over.
    pub(crate) server: &'a str,
    pub(crate) holder: HolderId,
    pub(crate) tokens: TokenBlock,
    pub(crate) lease: Duration,
}

/// Reads `<version> <run id> <holder id> <last token> <count> <lease, ms>`, a tab and the key, as `advance` in the scripts writes it. The
/// key follows a tab in every version: a message with another part before it proves nothing, and the waiters of its key must poll.
pub(crate) fn read(text: &str) -> Option<(&str, Option<Grant<'_>>)> {
    let (words, key) = text.split_once('\t')?;
    Some((key, grant(words)))
}

fn grant(words: &str) -> Option<Grant<'_>> {
    let words: Vec<_> = words.split(' ').collect();
    // A message with more words belongs to a later version, whatever its version field.
    let [WIRE, server, holder, last, count, lease] = words[..] else { return None };
    let tokens = TokenBlock::ending(last.parse().ok()?, count.parse().ok()?);
    let lease = Duration::from_millis(lease.parse().ok()?);
    Some(Grant { server, holder: holder.parse().ok()?, tokens, lease })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::FencingToken;
    use std::num::NonZeroU32;

    fn id() -> String {
        "ab".repeat(16)
    }

    #[test]
    fn a_hand_off_is_read_with_spaces_in_its_key() {
        let text = format!("1 5e4f {} 1780000000000001 64 3000\tp:nightly report", id());
        let grant = Grant {
            server: "5e4f",
            holder: id().parse().unwrap(),
            tokens: TokenBlock::ending(FencingToken::new(1_780_000_000_000_001).unwrap(), NonZeroU32::new(64).unwrap()),
            lease: Duration::from_secs(3),
        };
        assert_eq!(read(&text), Some(("p:nightly report", Some(grant))));
    }

    #[test]
    fn a_message_of_another_version_is_a_hint() {
        let id = id();
        for text in [
            format!("2 5e4f {id} 1780000000000001 1 3000\tk y"),
            format!("1 5e4f {id} 1780000000000001 1 3000 r\tk y"),
            format!("1 5e4f {id} 1780000000000001 1 3000 {id} 1780000000000002 1 3000\tk y"),
            format!("01 5e4f {id} 1780000000000001 1 3000\tk y"),
            "9 whatever it says\tk y".to_owned(),
            "\tk y".to_owned(),
        ] {
            assert_eq!(read(&text), Some(("k y", None)), "{text}");
        }
    }

    #[test]
    fn invalid_numbers_are_not_a_grant() {
        let id = id();
        for words in
            ["s 0 1 1", "s 1 0 1", "s 1 1", "s 1 1 -1", "s 9007199254740992 1 1"].map(|rest| rest.split_once(' '))
        {
            let (server, numbers) = words.unwrap();
            let text = format!("1 {server} {id} {numbers}\tk");
            assert_eq!(read(&text), Some(("k", None)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_garbage() {
        let without_tab = format!("1 5e4f {} 1780000000000001 1 3000 k", id());
        for text in ["", "hello", "zz 1 1 2 s", &without_tab] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
