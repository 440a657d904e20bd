//! The content of a lock file: one line of JSON, for the next fence and for people.

use fencelock_core::{Expiry, FencingToken, Holder, HolderInfo, Invalid, Key, Liveness, Mode, Occupant, Owner};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The maximum length of a record: a key has at most 512 bytes, an owner is truncated, and JSON at most doubles them.
pub(super) const LONGEST: usize = 4096;

/// The maximum number of slots of a row, so the maximum number of its holders. Whoever may write to the directory can write any number
/// into a record, and each of them costs a process that looks at the lock two system calls.
pub(super) const MOST_SLOTS: u32 = 4096;

/// Other programs may write longer owners than [`Owner::new`] allows; they are truncated.
const OWNER_LONGEST: usize = 1024;

/// Whether the holder held the lock when it wrote the record. The kernel decides whether it holds the lock now.
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
    pub(super) mode: Mode,
    /// In the record of a lock file: the number of slot files that may have holders of a row. 0 in the record of an
    /// exclusive hold.
    pub(super) slots: u32,
}

/// An unusable record; the text gives the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage(pub(super) String);

/// The line as written. `state` comes first and both states have the same length, so that a release rewrites one word.
/// `slots` comes next, so that it is complete in a read that meets a write. Fields with their default value are not
/// written: the line of an exclusive hold is the same as in version 0.1, which ignores fields that it does not know.
#[derive(Serialize, Deserialize)]
struct RecordLine {
    state: RecordState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<RowMode>,
    key: String,
    owner: String,
    fence: u64,
    since: u64,
    pid: u32,
    holder: String,
}

/// The beginning of each record.
const BEGIN: &[u8] = br#"{"state":"#;
/// How a record shows that `slots` is set.
const SLOTS: &[u8] = br#""slots":"#;

/// The mode of a holder of a row; exclusive holders have none.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RowMode {
    Shared,
    Permits { weight: u32, limit: u32 },
}

impl RowMode {
    const fn of(mode: Mode) -> Option<Self> {
        match mode {
            Mode::Shared => Some(Self::Shared),
            Mode::Permits { weight, limit, .. } => Some(Self::Permits { weight, limit }),
            _ => None,
        }
    }

    fn mode(self) -> Result<Mode, Invalid> {
        match self {
            Self::Shared => Ok(Mode::Shared),
            Self::Permits { weight, limit } => Mode::permits(weight, limit),
        }
    }
}

/// Whether slots may be in use: the record has a number of them, or is lost. Faster than parsing it, for locks that are only used
/// exclusively.
pub(super) fn may_have_slots(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_whole = line.len() < bytes.len() && line.starts_with(BEGIN) && line.ends_with(b"\"}");
    !is_whole || line.windows(SLOTS.len()).any(|part| part == SLOTS)
}

impl Record {
    /// The line, with its line end.
    pub(super) fn to_line(&self) -> String {
        let owner = self.holder.owner.as_str();
        let line = RecordLine {
            state: self.state,
            slots: Some(self.slots).filter(|slots| *slots > 0),
            mode: RowMode::of(self.mode),
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
        let bad = |error: Invalid| Damage(error.to_string());
        let fence = FencingToken::new(line.fence).map_err(bad)?;
        if fence.get() == FencingToken::MAX {
            // No clock reaches it for two centuries, and no fence could follow it, so the key would be unusable.
            return Err(damage("its fence is the greatest number"));
        }
        let slots = line.slots.unwrap_or(0);
        if slots > MOST_SLOTS {
            return Err(Damage(format!("it has {slots} slots, more than {MOST_SLOTS}")));
        }
        Ok(Self {
            state: line.state,
            key: Key::new(&line.key).map_err(bad)?,
            holder: Holder { id: line.holder.parse().map_err(bad)?, owner: Owner::from_text(&line.owner) },
            fence,
            since: line.since,
            pid: line.pid,
            mode: line.mode.map_or(Ok(Mode::Exclusive), RowMode::mode).map_err(bad)?,
            slots,
        })
    }

    /// The same hold, released.
    pub(super) fn freed(&self) -> Self {
        Self { state: RecordState::Free, ..self.clone() }
    }

    /// The record of a lock file after this grant in a row: the next token follows this one, and there is no exclusive holder.
    pub(super) fn of_row(&self, slots: u32) -> Self {
        Self { slots, ..self.freed() }
    }

    /// The hold, as seen at `wall` microseconds.
    pub(super) fn info(&self, wall: u64) -> HolderInfo {
        let held_for = Duration::from_micros(wall.saturating_sub(self.since));
        HolderInfo::new(Occupant::Holder(self.holder.clone()), Expiry::Never)
            .with_mode(self.mode)
            .with_fence(Some(self.fence))
            .with_held_for(Some(held_for))
            .with_alive(Some(Liveness::Process))
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
            mode: Mode::Exclusive,
            slots: 0,
        }
    }

    #[test]
    fn a_record_is_one_line_that_reads_back() {
        let line = record().to_line();
        assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
        assert_eq!(Record::from_bytes(line.as_bytes()), Ok(record()));
    }

    #[test]
    fn the_line_of_an_exclusive_hold_has_neither_a_mode_nor_slots() {
        let line = record().to_line();
        assert!(!line.contains("mode") && !may_have_slots(line.as_bytes()), "{line}");
        assert!(may_have_slots(record().of_row(3).to_line().as_bytes()));
    }

    #[test]
    fn a_mode_and_a_number_of_slots_read_back() {
        for mode in [Mode::Shared, Mode::permits(2, 7).unwrap()] {
            let record = Record { mode, slots: 12, ..record() };
            assert_eq!(Record::from_bytes(record.to_line().as_bytes()), Ok(record));
        }
    }

    #[test]
    fn more_slots_than_a_row_can_have_are_damage() {
        let bytes = |slots: u32| Record { slots, ..record() }.to_line().into_bytes();
        assert_eq!(Record::from_bytes(&bytes(MOST_SLOTS)).unwrap().slots, MOST_SLOTS);
        for slots in [MOST_SLOTS + 1, u32::MAX] {
            assert!(Record::from_bytes(&bytes(slots)).unwrap_err().0.contains("slots"), "{slots}");
        }
    }

    #[test]
    fn a_weight_above_its_limit_is_invalid() {
        let line = Record { mode: Mode::permits(2, 7).unwrap(), ..record() }.to_line();
        assert!(Record::from_bytes(line.replace("\"weight\":2", "\"weight\":8").as_bytes()).is_err());
    }

    #[test]
    fn a_key_that_contains_the_name_of_a_field_is_only_a_key() {
        let record = Record { key: Key::new("\"slots\":7").unwrap(), ..record() };
        assert!(!may_have_slots(record.to_line().as_bytes()));
        assert_eq!(Record::from_bytes(record.to_line().as_bytes()), Ok(record));
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
    fn the_greatest_fence_is_invalid() {
        let line = record().to_line().replace("1780000000000000", &FencingToken::MAX.to_string());
        assert!(Record::from_bytes(line.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn a_truncated_record_is_invalid(cut in 0usize..200) {
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
