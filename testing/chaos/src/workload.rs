//! The locks that tasks claim, by the name of the key.

use crate::history::SlotOf;
use crate::rng_ext::RngExt as _;
use crate::topology::Topology;
use fastrand::Rng;
use fencelock::{Client, Error, Guard, Mode};
use std::time::Duration;

const READERS: &str = "readers";
const PERMITS: &str = "permits";
const SLOTS: &str = "slots";
/// The permits of each semaphore.
const LIMIT: u32 = 3;
/// The number of slots of a set.
const SLOT_COUNT: u32 = 2;
/// The share of claims for a slot, in percent.
const SLOTS_PERCENT: u8 = 12;

/// All keys of a run on the servers.
pub(crate) fn keys_on_servers(count: usize, topology: Topology) -> Vec<String> {
    let slots = (0..SLOT_COUNT).map(|number| format!("{SLOTS}#{number}"));
    keys(count, topology).into_iter().chain(slots).collect()
}

/// The keys that each have tasks of their own. The last one is for permits, if the servers support them, and the one before it for readers.
pub(crate) fn keys(count: usize, topology: Topology) -> Vec<String> {
    let modes: &[&str] = if topology.has_permits() { &[READERS, PERMITS] } else { &[READERS] };
    let exclusive = (0..count.saturating_sub(modes.len())).map(|number| format!("key-{number}"));
    exclusive.chain(modes.iter().map(|key| (*key).to_owned())).collect()
}

/// The mode in which a key must be granted soon after the end of a fault.
pub(crate) fn soon(key: &str, topology: Topology) -> Mode {
    if key == READERS && !topology.has_queues() { Mode::Shared } else { Mode::Exclusive }
}

/// The mode of the next claim of a key: most of those of readers are shared, except for this percentage.
pub(crate) fn choose(key: &str, writers_percent: u8, rng: &mut Rng) -> Mode {
    match key {
        READERS if rng.u8(..100) >= writers_percent => Mode::Shared,
        PERMITS if !rng.chance(20_000) => {
            let weight = if rng.chance(300_000) { 1 + rng.u32(..LIMIT) } else { 1 };
            Mode::permits(weight, LIMIT).unwrap_or_default()
        }
        _ => Mode::Exclusive,
    }
}

/// Whether writers of this key downgrade from time to time.
pub(crate) fn has_downgrades(key: &str) -> bool {
    key == READERS
}

/// Another lock that a task claims from time to time, instead of its own key.
pub(crate) fn another(rng: &mut Rng) -> Option<&'static str> {
    (rng.u8(..100) < SLOTS_PERCENT).then_some(SLOTS)
}

/// The event that two tasks hold such locks at the same time; `None` if they must not.
pub(crate) fn together(name: &str, mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Shared => Some("readers together"),
        Mode::Permits { .. } => Some("permits in use together"),
        _ if name == SLOTS => Some("slots in use together"),
        _ => None,
    }
}

/// The parameters of a claim.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The key, or that of a set of slots.
    pub(crate) key: &'a str,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) label: &'a str,
}

/// Acquires a lock, or a slot.
pub(crate) async fn acquire(client: &Client, request: Request<'_>) -> Result<(Guard, Option<SlotOf>), Error> {
    let Request { key, mode, ttl, wait, label } = request;
    if key == SLOTS {
        let slot = client.slots(key, SLOT_COUNT).ttl(ttl).wait(wait).label(label).acquire().await?;
        let of = SlotOf { number: slot.slot(), slots: SLOT_COUNT };
        return Ok((slot.into_guard(), Some(of)));
    }
    if let Mode::Permits { weight, limit, .. } = mode {
        let semaphore = client.semaphore(key, limit).ttl(ttl).wait(wait).label(label);
        return Ok((semaphore.acquire(weight).await?, None));
    }
    let lock = client.lock(key).ttl(ttl).wait(wait).label(label);
    let lock = if mode == Mode::Shared { lock.shared() } else { lock };
    Ok((lock.acquire().await?, None))
}
