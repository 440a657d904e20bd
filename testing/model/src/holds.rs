use std::collections::BTreeMap;
use std::sync::Arc;

/// The holds of a lock that several clients hold together, by the end of each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Holds {
    /// The end of each hold by holder.
    pub ends_ms: BTreeMap<u128, u64>,
    /// When the server forgets them.
    pub expires_ms: Option<u64>,
}

/// What is known about these holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct HeldEntries {
    /// The entry of each hold.
    pub entries: BTreeMap<u128, HeldEntry>,
    /// Of a semaphore: the permits in use.
    pub used: Option<u64>,
    /// When the server forgets them.
    pub expires_ms: Option<u64>,
}

/// One hold of several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HeldEntry {
    /// The number of permits; 1 if it is shared.
    pub weight: u32,
    /// Its fencing token.
    pub token: u64,
    /// The owner.
    pub owner: Arc<str>,
}

impl HeldEntry {
    /// The entry as stored on the server.
    pub fn text(&self) -> String {
        format!("{} {} {}", self.weight, self.token, self.owner)
    }
}

impl Holds {
    /// Those that have not ended, the first end first.
    pub(super) fn live(&self, now_ms: u64) -> Vec<(u64, u128)> {
        let mut live: Vec<_> =
            self.ends_ms.iter().map(|(id, end)| (*end, *id)).filter(|(end, _)| *end >= now_ms).collect();
        live.sort_unstable();
        live
    }

    /// Redis has no empty collections.
    pub(super) fn remove(&mut self, holder: u128) {
        self.ends_ms.remove(&holder);
        if self.ends_ms.is_empty() {
            self.expires_ms = None;
        }
    }
}
