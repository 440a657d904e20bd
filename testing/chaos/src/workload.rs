//! The locks that tasks claim, by the name of the key.

use crate::rng_ext::RngExt as _;
use crate::topology::Topology;
use fastrand::Rng;
use fencelock::{Client, Error, Guard, Mode};
use std::time::Duration;

const READERS: &str = "readers";
const PERMITS: &str = "permits";
/// The permits of each semaphore.
const LIMIT: u32 = 3;

/// The keys of a run. The last one is for permits, if the servers support them, and the one before it for readers.
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

/// The parameters of a claim.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) key: &'a str,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) label: &'a str,
}

pub(crate) async fn acquire(client: &Client, request: Request<'_>) -> Result<Guard, Error> {
    let Request { key, mode, ttl, wait, label } = request;
    if let Mode::Permits { weight, limit, .. } = mode {
        return client.semaphore(key, limit).ttl(ttl).wait(wait).label(label).acquire(weight).await;
    }
    let lock = client.lock(key).ttl(ttl).wait(wait).label(label);
    let lock = if mode == Mode::Shared { lock.shared() } else { lock };
    lock.acquire().await
}
