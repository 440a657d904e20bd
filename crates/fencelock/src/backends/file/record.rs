//! The content of a lock file: one line of JSON, for the next fence and for people.

use fencelock_core::{Expiry, FencingToken, Holder, HolderInfo, Holding, Key, Occupant, Owner};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The maximum length of a record: a key has at most 512 bytes, an owner is truncated, and JSON at most doubles them.
pub(super) const LONGEST: usize = 4096;

/// Other programs may write longer owners than [`Owner::new`] allows; they are truncated.
const OWNER_LONGEST: usize = 1024;

/// Whether the holder still held the lock when it wrote the record. The kernel decides whether it does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RecordState {
    Held,
    Free,
}

/// The last hold of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) state: RecordState,
    pub(super) key: Key,
    pub(super) holder: Holder,
    pub(super) fence: FencingToken,
    /// The wall clock at the grant, in microseconds.
    pub(super) since: u64,
    /// The process id of the holder, in its own process namespace.
    pub(super) pid: u32,
}

/// An unusable record; the text gives the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage(pub(super) String);

/// The line as written. `state` comes first and both states have the same length, so that a release rewrites one word.
#[derive(Serialize, Deserialize)]
struct RecordLine {
    state: RecordState,
    key: String,
    owner: String,
    fence: u64,
    since: u64,
    pid: u32,
    holder: String,
}

impl Record {
    /// The line, with its line end.
    pub(super) fn to_line(&self) -> String {
        let owner = self.holder.owner.as_str();
        let line = RecordLine {
            state: self.state,
            key: self.key.as_str().to_owned(),
            owner: cut(owner, OWNER_LONGEST).to_owned(),
            fence: self.fence.get(),
            since: self.since,
            pid: self.pid,
            holder: self.holder.id.to_string(),
        };
        // Serialization of numbers and text does not fail.
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    }

    /// Parses the first line. The rest is the tail of a longer record that is being overwritten.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        let damage = |what: &str| Damage(what.to_owned());
        if bytes.is_empty() {
            return Err(damage("it is empty"));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| damage("its line is cut off"))?;
        let line: RecordLine = serde_json::from_slice(&bytes[..end]).map_err(|error| Damage(error.to_string()))?;
        let bad = |error: fencelock_core::Invalid| Damage(error.to_string());
        let fence = FencingToken::new(line.fence).map_err(bad)?;
        if fence.get() == FencingToken::MAX {
            // No clock proposes it for two centuries, and no fence could follow, so the key would be unusable.
            return Err(damage("its fence is the greatest number"));
        }
        Ok(Self {
            state: line.state,
            key: Key::new(&line.key).map_err(bad)?,
            holder: Holder { id: line.holder.parse().map_err(bad)?, owner: Owner::from_text(&line.owner) },
            fence,
            since: line.since,
            pid: line.pid,
        })
    }

    /// The same hold, released.
    pub(super) fn freed(&self) -> Self {
        Self { state: RecordState::Free, ..self.clone() }
    }

    /// The hold, as seen at `wall` microseconds.
    pub(super) fn holding(self, wall: u64) -> Holding {
        let held_for = Duration::from_micros(wall.saturating_sub(self.since));
        let hold = HolderInfo::new(Occupant::Holder(self.holder), Expiry::Never)
            .with_fence(Some(self.fence))
            .with_held_for(Some(held_for));
        Holding::new(self.key, hold)
    }
}

/// At most `longest` bytes, and whole characters.
fn cut(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::HolderId;
    use proptest::prelude::*;

    fn record() -> Record {
        Record {
            state: RecordState::Held,
            key: Key::new("orders").unwrap(),
            holder: Holder {
                id: HolderId::from_bytes([0xab; 16]),
                owner: Owner::new("web-1", 42, Some("night \"run\"")).unwrap(),
            },
            fence: FencingToken::new(1_780_000_000_000_000).unwrap(),
            since: 1_780_000_000_000_000,
            pid: 42,
        }
    }

    #[test]
    fn a_record_is_one_line_that_reads_back() {
        let line = record().to_line();
        assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
        assert_eq!(Record::from_bytes(line.as_bytes()), Ok(record()));
    }

    #[test]
    fn a_release_does_not_change_the_length() {
        assert_eq!(record().freed().to_line().len(), record().to_line().len());
    }

    #[test]
    fn the_tail_of_a_longer_record_is_ignored() {
        let line = record().to_line() + "44\",\"fence\":1}\n";
        assert_eq!(Record::from_bytes(line.as_bytes()), Ok(record()));
    }

    #[test]
    fn a_record_with_the_longest_names_fits() {
        let mut long = record();
        long.key = Key::new("\"".repeat(512)).unwrap();
        long.holder.owner = Owner::from_text(&"\"".repeat(9000));
        let line = long.to_line();
        assert!(line.len() <= LONGEST, "{}", line.len());
        assert!(Record::from_bytes(line.as_bytes()).is_ok());
    }

    #[test]
    fn the_greatest_fence_is_damage() {
        let line = record().to_line().replace("1780000000000000", &FencingToken::MAX.to_string());
        assert!(Record::from_bytes(line.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn a_truncated_record_is_damage(cut in 0usize..200) {
            let line = record().to_line();
            let cut = cut.min(line.len() - 1);
            prop_assert!(Record::from_bytes(&line.as_bytes()[..cut]).is_err());
        }

        #[test]
        fn invalid_bytes_are_damage(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Record::from_bytes(&bytes).is_err());
        }
    }
}
