//! The locks of a load: their names, and how a task acquires them.

use crate::holds::Hold;
use crate::protocol::LoadMode;
use fencelock::{Client, Error, Guard, Guards, Released, ReleasedAll};
use std::time::Duration;

/// The key of one task.
pub(crate) fn own(base: &str, process: u32, task: u32) -> String {
    format!("{base}:{process}:{task}")
}

/// The key with this number.
pub(crate) fn one_of_many(base: &str, number: u32) -> String {
    format!("{base}:{number}")
}

/// The keys of a task that always acquires the same ones.
pub(crate) fn fixed(base: &str, mode: LoadMode) -> Vec<String> {
    match mode {
        LoadMode::Together { keys } => (0..keys).map(|number| one_of_many(base, number)).collect(),
        _ => vec![base.to_owned()],
    }
}

/// Distinct keys of `all`, as many as the mode acquires at once.
pub(crate) fn drawn(base: &str, all: u32, mode: LoadMode, rng: &mut fastrand::Rng) -> Vec<String> {
    let mut numbers = vec![rng.u32(0..all)];
    while numbers.len() < mode.keys() as usize {
        let number = rng.u32(0..all);
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    numbers.into_iter().map(|number| one_of_many(base, number)).collect()
}

/// The names of the locks behind a key that a task acquires: its slots, or itself.
pub(crate) fn names(key: String, mode: LoadMode) -> Vec<String> {
    match mode {
        LoadMode::Slots { slots } => (0..slots).map(|slot| format!("{key}#{slot}")).collect(),
        _ => vec![key],
    }
}

/// What a task has acquired.
pub(crate) enum Acquired {
    One(Guard),
    Several(Guards),
}

impl Acquired {
    /// The first fencing token.
    pub(crate) fn fencing_token(&self) -> u64 {
        match self {
            Self::One(guard) => guard.fencing_token().get(),
            Self::Several(guards) => guards.fencing_tokens().first().map_or(0, |token| token.get()),
        }
    }

    /// Releases all of it. Returns why a lock was lost before, if one was.
    pub(crate) async fn release(self) -> Result<Option<String>, Error> {
        Ok(match self {
            Self::One(guard) => match guard.release().await? {
                Released::Released => None,
                Released::AlreadyLost { why } => Some(why.to_string()),
            },
            Self::Several(guards) => match guards.release().await? {
                ReleasedAll::Released => None,
                ReleasedAll::AlreadyLost { losses } => losses.first().map(|loss| loss.reason.to_string()),
            },
        })
    }
}

/// How a task acquires its locks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requests {
    pub(crate) mode: LoadMode,
    pub(crate) ttl: Duration,
    /// The longest wait; `None` for as long as necessary.
    pub(crate) wait: Option<Duration>,
}

impl Requests {
    /// Acquires these keys: one, except where the mode acquires several together.
    pub(crate) async fn acquire(self, client: &Client, keys: &[String], wanted: Hold) -> Result<Acquired, Error> {
        let Self { mode, ttl, wait } = self;
        let [key, ..] = keys else { unreachable!("a task acquires at least one key") };
        match mode {
            LoadMode::Together { .. } => {
                let lock = client.lock_all(keys).ttl(ttl);
                let lock = if let Some(wait) = wait { lock.wait(wait) } else { lock };
                lock.acquire().await.map(Acquired::Several)
            }
            LoadMode::Slots { slots } => {
                let slots = client.slots(key, slots).ttl(ttl);
                let slots = if let Some(wait) = wait { slots.wait(wait) } else { slots };
                slots.acquire().await.map(|slot| Acquired::One(slot.into_guard()))
            }
            LoadMode::Permits { limit, weight } => {
                let permits = client.semaphore(key, limit).ttl(ttl);
                let permits = if let Some(wait) = wait { permits.wait(wait) } else { permits };
                permits.acquire(weight).await.map(Acquired::One)
            }
            LoadMode::Exclusive | LoadMode::Shared { .. } => {
                let lock = client.lock(key).ttl(ttl);
                let lock = if let Some(wait) = wait { lock.wait(wait) } else { lock };
                let lock = if wanted == Hold::Shared { lock.shared() } else { lock };
                lock.acquire().await.map(Acquired::One)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_drawn_together_are_different_ones() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..100 {
            let mut keys = drawn("k", 4, LoadMode::Together { keys: 3 }, &mut rng);
            assert!(keys.iter().all(|key| ["k:0", "k:1", "k:2", "k:3"].contains(&key.as_str())), "{keys:?}");
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 3);
        }
        assert_eq!(drawn("k", 1, LoadMode::Exclusive, &mut rng), ["k:0"]);
    }

    #[test]
    fn a_key_expands_to_its_slots_and_a_base_to_its_keys() {
        assert_eq!(names("k".to_owned(), LoadMode::Slots { slots: 2 }), ["k#0", "k#1"]);
        assert_eq!(names("k".to_owned(), LoadMode::Exclusive), ["k"]);
        assert_eq!(fixed("k", LoadMode::Together { keys: 2 }), ["k:0", "k:1"]);
        assert_eq!(fixed("k", LoadMode::Slots { slots: 2 }), ["k"]);
    }
}
