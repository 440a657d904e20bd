//! The message on the channel of a waiter's client.

use super::wire::WIRE;
use fencelock_core::{FencingToken, HolderId, TokenBlock};
use std::time::Duration;

/// The meaning of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// A key was handed over.
    Grant(Grant<'a>),
    /// An unreadable message, which proves nothing: waiters of this key must poll.
    Hint { key: &'a str },
    /// Not a message of any version.
    Garbage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant<'a> {
    /// The run id of the server that handed the key over.
    pub(crate) server: &'a str,
    pub(crate) holder: HolderId,
    pub(crate) tokens: TokenBlock,
    pub(crate) lease: Duration,
    /// The key as it appears on the server.
    pub(crate) key: &'a str,
}

impl<'a> Message<'a> {
    /// `<version> <run id> <holder id> <last token> <count> <lease, ms>`, a tab and the key, as `advance` in the scripts
    /// writes it. The key follows a tab in every version.
    pub(crate) fn read(text: &'a str) -> Self {
        let Some((words, key)) = text.split_once('\t') else { return Self::Garbage };
        Grant::read(words, key).map_or(Self::Hint { key }, Self::Grant)
    }
}

impl<'a> Grant<'a> {
    fn read(words: &'a str, key: &'a str) -> Option<Self> {
        let mut words = words.split(' ');
        if words.next()? != WIRE {
            return None;
        }
        let server = words.next()?;
        let holder = words.next()?.parse().ok()?;
        let last: FencingToken = words.next()?.parse().ok()?;
        let tokens = TokenBlock::ending(last, words.next()?.parse().ok()?);
        let lease = Duration::from_millis(words.next()?.parse().ok()?);
        // A message with more words belongs to a later version, whatever its version field.
        words.next().is_none().then_some(Self { server, holder, tokens, lease, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            key: "p:nightly report",
        };
        assert_eq!(Message::read(&text), Message::Grant(grant));
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
            assert_eq!(Message::read(&text), Message::Hint { key: "k y" }, "{text}");
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
            assert_eq!(Message::read(&text), Message::Hint { key: "k" }, "{text}");
        }
    }

    #[test]
    fn anything_else_is_garbage() {
        let without_tab = format!("1 5e4f {} 1780000000000001 1 3000 k", id());
        for text in ["", "hello", "zz 1 1 2 s", &without_tab] {
            assert_eq!(Message::read(text), Message::Garbage, "{text}");
        }
    }
}
