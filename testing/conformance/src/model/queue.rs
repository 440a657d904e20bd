use super::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of an entry that are reported if it cannot be read.
const SHOWN: usize = 16;

/// A channel that a client listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(pub u32);

/// Who stands in line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Name {
    /// One of ours.
    Holder(u128),
    /// Whatever another program put there.
    Other(Arc<str>),
}

impl Name {
    /// As it is on the server.
    pub fn text(&self) -> String {
        match self {
            Self::Holder(holder) => format!("{holder:032x}"),
            Self::Other(text) => text.to_string(),
        }
    }
}

/// By bytes, which is how a sorted set breaks ties.
impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Holder(a), Self::Holder(b)) => a.cmp(b),
            _ => self.text().cmp(&other.text()),
        }
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Those who wait, by ticket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// In the order of service.
    pub members: Vec<(u64, Name)>,
    /// When it is forgotten.
    pub expires_ms: Option<u64>,
}

impl Line {
    /// Puts somebody at the end, and says how many are before.
    pub(super) fn append(&mut self, name: Name) -> usize {
        let ticket = self.members.last().map_or(1, |(last, _)| last + 1);
        self.members.push((ticket, name));
        self.members.len() - 1
    }

    pub(super) fn rank(&self, name: &Name) -> Option<usize> {
        self.members.iter().position(|(_, member)| member == name)
    }

    pub(super) fn at(&self, rank: usize) -> Option<&Name> {
        self.members.get(rank).map(|(_, name)| name)
    }

    pub(super) fn remove(&mut self, rank: usize) {
        self.members.remove(rank);
        self.vanish_if_empty();
    }

    /// Redis has no empty collections: with the last member goes the key, and its end.
    fn vanish_if_empty(&mut self) {
        if self.members.is_empty() {
            self.expires_ms = None;
        }
    }
}

/// Until when each waiter counts without another sign of life, ms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Lives {
    /// By name.
    pub until_ms: BTreeMap<Name, u64>,
    /// When it is forgotten.
    pub expires_ms: Option<u64>,
}

impl Lives {
    pub(super) fn remove(&mut self, name: &Name) -> Option<u64> {
        let until_ms = self.until_ms.remove(name);
        if self.until_ms.is_empty() {
            self.expires_ms = None;
        }
        until_ms
    }

    /// The first of those whose life is over, in the order of their ends.
    pub(super) fn over(&self, now_ms: u64, cap: usize) -> Vec<Name> {
        let mut over: Vec<_> = self.until_ms.iter().filter(|(_, until_ms)| **until_ms <= now_ms).collect();
        over.sort_by_key(|(name, until_ms)| (**until_ms, (*name).clone()));
        over.into_iter().take(cap).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn count(&self, now_ms: u64) -> u64 {
        self.until_ms.values().filter(|until_ms| **until_ms > now_ms).count() as u64
    }
}

/// What is known of each waiter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Waiters {
    /// By name.
    pub entries: BTreeMap<Name, Entry>,
    /// When it is forgotten.
    pub expires_ms: Option<u64>,
}

impl Waiters {
    pub(super) fn remove(&mut self, name: &Name) -> Option<Entry> {
        let entry = self.entries.remove(name);
        if self.entries.is_empty() {
            self.expires_ms = None;
        }
        entry
    }

    /// What can be read of one who stands in line.
    pub(super) fn read(&self, name: &Name) -> Option<&Waiter> {
        self.entries.get(name)?.waiter(name)
    }

    /// What is reported of one that cannot be read.
    pub(super) fn unread(&self, name: &Name) -> Unread {
        let text = self.entries.get(name).map(Entry::text).unwrap_or_default();
        Unread { name: name.clone(), bytes: text.len(), begins: text.chars().take(SHOWN).collect() }
    }
}

/// What stands in the hash of waiters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Written by a claim, of whatever version.
    Waiter(Waiter),
    /// Anything else. Its waiter is not served, and keeps its position while it is alive.
    Garbage(Arc<str>),
}

impl Entry {
    /// The waiter, if this is the entry of that name.
    fn waiter(&self, of: &Name) -> Option<&Waiter> {
        match self {
            Self::Waiter(waiter) => {
                Some(waiter).filter(|waiter| waiter.value.holder().map(Name::Holder).as_ref() == Some(of))
            }
            Self::Garbage(_) => None,
        }
    }

    /// As it stands on the server.
    pub fn text(&self) -> String {
        match self {
            Self::Garbage(text) => text.to_string(),
            Self::Waiter(Waiter { ttl_ms, wanted, channel, value, version }) => {
                let channel = channel.map_or("-".to_owned(), |channel| format!("c{}", channel.0));
                let version = version.as_ref().map(|version| format!("\t{version}")).unwrap_or_default();
                format!("{ttl_ms} {wanted} {channel} {value}{version}")
            }
        }
    }
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The lease it wants.
    pub ttl_ms: u64,
    /// How many fencing tokens.
    pub wanted: u64,
    /// What wakes it.
    pub channel: Option<Channel>,
    /// What it wants written.
    pub value: Value,
    /// The version of the wire that its client writes, and what that version adds. `None`: version 0.
    pub version: Option<Arc<str>>,
}

/// A waiter that is alive and whose entry cannot be read: what the answer says of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unread {
    /// Who.
    pub name: Name,
    /// How long the entry is; 0 if there is none.
    pub bytes: usize,
    /// What it begins with.
    pub begins: String,
}

/// A lock was handed to a waiter: the message on its channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HandOff {
    /// Where it is said.
    pub channel: Channel,
    /// To whom.
    pub to: Name,
    /// The token of the grant; the last of a block.
    pub fence: u64,
    /// How many tokens end with it.
    pub count: u64,
    /// How long it lasts unless confirmed.
    pub lease_ms: u64,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Heard {
    /// Somebody reads the channel.
    BySome,
    /// Nobody does: the waiter's process is gone.
    ByNone,
    /// Scripts may not publish there, so nothing is known, and the waiter gets the benefit of the doubt.
    Refused,
}
