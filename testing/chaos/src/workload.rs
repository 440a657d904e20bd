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

/// The keys of a run. If the servers support all modes, the last two are for readers and permits.
pub(crate) fn keys(count: usize, topology: Topology) -> Vec<String> {
    let mut keys: Vec<String> = (0..count).map(|number| format!("key-{number}")).collect();
    if topology.has_modes()
        && let [.., readers, permits] = keys.as_mut_slice()
    {
        READERS.clone_into(readers);
        PERMITS.clone_into(permits);
    }
    keys
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
