use super::Value;
use fencelock_core::Mode;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of bytes reported for an unreadable entry.
const SHOWN: usize = 16;

/// A channel to which a client subscribes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(pub u32);

/// The name of a waiter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Name {
    /// A holder id.
    Holder(u128),
    /// A name written by another program.
    Other(Arc<str>),
}

impl Name {
    /// The name as stored on the server.
    pub fn text(&self) -> String {
        match self {
            Self::Holder(holder) => format!("{holder:032x}"),
            Self::Other(text) => text.to_string(),
        }
    }
}

/// Compares bytes, as a sorted set does for equal scores.
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

/// The waiters, by ticket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct WaiterQueue {
    /// The waiters in the order of service.
    pub members: Vec<(u64, Name)>,
    /// When the server forgets the queue.
    pub expires_ms: Option<u64>,
}

impl WaiterQueue {
    /// Appends a waiter that arrives now, and returns the number of waiters in front.
    pub(super) fn append(&mut self, name: Name, now_ms: u64) -> usize {
        let ticket = self.members.last().map_or(1, |(last, _)| last / 1000 + 1).max(now_ms) * 1000;
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

    /// Redis has no empty collections: the last removal deletes the key and its TTL.
    fn vanish_if_empty(&mut self) {
        if self.members.is_empty() {
            self.expires_ms = None;
        }
    }
}

/// The time until which each waiter is alive without a poll, in ms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct WaiterDeadlines {
    /// The deadlines by name.
    pub until_ms: BTreeMap<Name, u64>,
    /// When the server forgets them.
    pub expires_ms: Option<u64>,
}

impl WaiterDeadlines {
    pub(super) fn remove(&mut self, name: &Name) -> Option<u64> {
        let until_ms = self.until_ms.remove(name);
        if self.until_ms.is_empty() {
            self.expires_ms = None;
        }
        until_ms
    }

    /// The first expired waiters, ordered by deadline.
    pub(super) fn over(&self, now_ms: u64, cap: usize) -> Vec<Name> {
        let mut over: Vec<_> = self.until_ms.iter().filter(|(_, until_ms)| **until_ms <= now_ms).collect();
        over.sort_by_key(|(name, until_ms)| (**until_ms, (*name).clone()));
        over.into_iter().take(cap).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn count(&self, now_ms: u64) -> u64 {
        self.until_ms.values().filter(|until_ms| **until_ms > now_ms).count() as u64
    }
}

/// The entries of the waiters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Waiters {
    /// The entries by name.
    pub entries: BTreeMap<Name, Entry>,
    /// When the server forgets them.
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

    /// The entry of a waiter, if it is readable.
    pub fn read(&self, name: &Name) -> Option<&WaiterEntry> {
        self.entries.get(name)?.waiter(name)
    }

    /// The report about an unreadable entry.
    pub(super) fn unread(&self, name: &Name) -> Unread {
        let text = self.entries.get(name).map(Entry::text).unwrap_or_default();
        Unread { name: name.clone(), bytes: text.len(), begins: text.chars().take(SHOWN).collect() }
    }
}

/// An entry in the hash of waiters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Written by a claim of any version.
    Waiter(WaiterEntry),
    /// Any other text. Its waiter is not served, and keeps its position while it is alive.
    Garbage(Arc<str>),
}

impl Entry {
    /// The waiter, if this is the entry of that name.
    fn waiter(&self, of: &Name) -> Option<&WaiterEntry> {
        match self {
            Self::Waiter(waiter) => {
                Some(waiter).filter(|waiter| waiter.value.holder().map(Name::Holder).as_ref() == Some(of))
            }
            Self::Garbage(_) => None,
        }
    }

    /// The entry as stored on the server.
    pub fn text(&self) -> String {
        match self {
            Self::Garbage(text) => text.to_string(),
            Self::Waiter(WaiterEntry { ttl_ms, wanted, channel, value, version }) => {
                let channel = channel.map_or("-".to_owned(), |channel| format!("c{}", channel.0));
                format!("{ttl_ms} {wanted} {channel} {value}\t{version}")
            }
        }
    }
}

/// A waiter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WaiterEntry {
    /// The requested TTL.
    pub ttl_ms: u64,
    /// The requested number of fencing tokens.
    pub wanted: u64,
    /// The channel that wakes it.
    pub channel: Option<Channel>,
    /// The value to write.
    pub value: Value,
    /// The version of the wire format of its client, and the fields that it adds.
    pub version: Arc<str>,
}

impl WaiterEntry {
    /// What it requests. What this version cannot read counts as less than an exclusive lock.
    pub fn mode(&self) -> Mode {
        let Some(fields) = self.version.strip_prefix("1 ") else {
            return Mode::Exclusive;
        };
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| number.to_string() == text);
        match fields.split(' ').collect::<Vec<_>>()[..] {
            ["r", "1", "0"] => Mode::Shared,
            ["s", weight, limit] => number(weight)
                .zip(number(limit))
                .and_then(|(weight, limit)| Mode::permits(weight, limit).ok())
                .unwrap_or(Mode::Exclusive),
            _ => Mode::Exclusive,
        }
    }
}

/// A live waiter with an unreadable entry, as a reply reports it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unread {
    /// The name.
    pub name: Name,
    /// The length of the entry; 0 if there is none.
    pub bytes: usize,
    /// The start of the entry.
    pub begins: String,
}

/// The message of a hand-off.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HandOff {
    /// The channel.
    pub channel: Channel,
    /// The receiver.
    pub to: Name,
    /// The token of the grant; the last of a block.
    pub fence: u64,
    /// The number of tokens in the block.
    pub count: u64,
    /// The lease until it is confirmed.
    pub lease_ms: u64,
}

/// The result of publishing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// A client subscribes to the channel.
    Received,
    /// No client subscribes: the process of the waiter has exited.
    NoSubscriber,
    /// Scripts may not publish, so the result is unknown, and the waiter is assumed to be alive.
    Denied,
}
