//! The locks that tasks claim, by the name of the key.

use crate::history::SlotOf;
use crate::rng_ext::RngExt as _;
use crate::topology::Topology;
use fastrand::Rng;
use fencelock::{Client, Error, Guard, Mode};
use std::ops::RangeInclusive;
use std::time::Duration;

const READERS: &str = "readers";
const PERMITS: &str = "permits";
/// In a cluster, this set and the next key move with keys that are in use all the time.
const SLOTS: &str = "{key-1}:slots";
/// Keys that are only claimed together with others. In a cluster, they are on different masters.
const PARTS: [&str; 4] = ["part-0", "part-1", "part-2", "part-3"];
/// How many keys are claimed together.
const SET_SIZE: RangeInclusive<usize> = 2..=5;
/// The name of the election, in which each process has a candidate and an observer.
pub(crate) const ELECTION: &str = "{key-0}:election";
/// The key of work that succeeds at most once in each window.
pub(crate) const ONCE: &str = "{key-0}:once";
/// The key of work that starts at most once in each window.
pub(crate) const STARTS: &str = "{key-0}:starts";
/// The shortest possible window.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// The permits of each semaphore.
const LIMIT: u32 = 3;
/// The number of slots of a set.
const SLOT_COUNT: u32 = 2;
/// The share of claims for a slot, in percent.
const SLOTS_PERCENT: u8 = 12;
/// The share of claims for several keys, in percent.
const SEVERAL_PERCENT: u8 = 8;
/// The share of attempts to do work that succeeds at most once in each window, in percent.
const ONCE_PERCENT: u8 = 4;
/// The share of attempts to do work that starts at most once in each window, in percent.
const STARTS_PERCENT: u8 = 3;

/// All keys of a run on the servers.
pub(crate) fn keys_on_servers(count: usize, topology: Topology) -> Vec<String> {
    let slots = (0..SLOT_COUNT).map(|number| format!("{SLOTS}#{number}"));
    let others = PARTS.into_iter().chain([ELECTION, ONCE, STARTS]).map(str::to_owned);
    keys(count, topology).into_iter().chain(slots).chain(others).collect()
}

/// The keys that each have tasks of their own. The last one is for permits, and the one before it for readers, if the servers support them.
pub(crate) fn keys(count: usize, topology: Topology) -> Vec<String> {
    let modes: &[&str] = match (topology.has_readers(), topology.has_permits()) {
        (_, true) => &[READERS, PERMITS],
        (true, false) => &[READERS],
        (false, false) => &[],
    };
    let exclusive = (0..count.saturating_sub(modes.len())).map(|number| format!("key-{number}"));
    exclusive.chain(modes.iter().map(|key| (*key).to_owned())).collect()
}

/// The mode in which a key must be granted soon after the end of a fault.
pub(crate) fn soon(key: &str, topology: Topology) -> Mode {
    if key == READERS && !topology.has_queues() { Mode::Shared } else { Mode::Exclusive }
}

/// The mode of the next claim of a key: most of those of readers are shared, except for this percentage.
pub(crate) fn mode_of(key: &str, writers_percent: u8, rng: &mut Rng) -> Mode {
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

/// What a task claims next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A key, or a slot of a set.
    One(String),
    /// Two to five keys, in any order.
    Several(Vec<String>),
    /// A run of work, if it is not done in this window.
    Once,
    /// A start of work, if it was not started in this window.
    Start,
}

/// Usually the own key of the task; otherwise all tasks would wait for a single stalled key.
pub(crate) fn choose(keys: &[String], task: usize, rng: &mut Rng) -> Wanted {
    const SEVERAL_FROM: u8 = SLOTS_PERCENT;
    const ONCE_FROM: u8 = SEVERAL_FROM + SEVERAL_PERCENT;
    const STARTS_FROM: u8 = ONCE_FROM + ONCE_PERCENT;
    const REST_FROM: u8 = STARTS_FROM + STARTS_PERCENT;
    match rng.u8(..100) {
        ..SEVERAL_FROM => Wanted::One(SLOTS.to_owned()),
        SEVERAL_FROM..ONCE_FROM => Wanted::Several(several(keys, rng)),
        ONCE_FROM..STARTS_FROM => Wanted::Once,
        STARTS_FROM..REST_FROM => Wanted::Start,
        _ if rng.usize(..12) == 0 => Wanted::One(keys[rng.usize(..keys.len())].clone()),
        _ => Wanted::One(keys[task % keys.len()].clone()),
    }
}

/// Some keys for exclusive locks, and some that only sets use, so most sets share some of their keys with others. If there
/// is only one for exclusive locks, also the key for readers.
fn several(keys: &[String], rng: &mut Rng) -> Vec<String> {
    let is_exclusive = |key: &&str| !matches!(*key, READERS | PERMITS);
    let all = || keys.iter().map(String::as_str);
    let count = all().filter(is_exclusive).count();
    let single = all().filter(|key| is_exclusive(key) || (count < 2 && *key == READERS));
    let mut fitting: Vec<String> = single.chain(PARTS).map(str::to_owned).collect();
    rng.shuffle(&mut fitting);
    fitting.truncate(rng.usize(SET_SIZE));
    fitting
}

/// The event that two tasks hold such locks at the same time; `None` if they must not.
pub(crate) fn together(name: &str, mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Shared | Mode::Permits { .. } => Some("holders of a key together"),
        _ if name == SLOTS => Some("slots in use together"),
        _ => None,
    }
}

/// The parameters of a claim.
#[derive(Debug)]
pub(crate) struct ClaimSettings<'a> {
    /// The key, or that of a set of slots.
    pub(crate) key: &'a str,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) label: &'a str,
}

/// Acquires a lock, or a slot.
pub(crate) async fn acquire(client: &Client, request: ClaimSettings<'_>) -> Result<(Guard, Option<SlotOf>), Error> {
    let ClaimSettings { key, mode, ttl, wait, label } = request;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn sets_have_two_to_five_different_keys_and_share_some_of_them() {
        let mut rng = Rng::with_seed(1);
        let keys = keys(3, Topology::Single);
        let sets: Vec<Vec<String>> = (0..100).map(|_| several(&keys, &mut rng)).collect();
        let different: Vec<BTreeSet<&String>> = sets.iter().map(|set| set.iter().collect()).collect();
        assert!(sets.iter().zip(&different).all(|(set, different)| set.len() == different.len()));
        let sizes: BTreeSet<usize> = sets.iter().map(Vec::len).collect();
        assert!(sizes.into_iter().eq(SET_SIZE));
        let share_some = |pair: &&[BTreeSet<&String>]| {
            !pair[0].is_disjoint(&pair[1]) && !pair[0].is_subset(&pair[1]) && !pair[1].is_subset(&pair[0])
        };
        let sharing = different.windows(2).filter(share_some).count();
        assert!(sharing > 40, "{sharing} of 99 pairs share some of their keys");
    }
}
