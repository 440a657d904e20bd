//! Turns notifications into events, and asks for hand-offs where none arrive.

use crate::calls;
use fencelock_core::{Event, HolderId, Key, Listeners, lock};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::time::Instant;

/// So often a claim that waits is repeated, which finds a hand-off too.
const POLLED: Duration = Duration::from_secs(1);

/// What the connections of a client have in common.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    pub(crate) listeners: Listeners,
    /// What a failover may lose was said.
    pub(crate) has_warned: AtomicBool,
    /// The last request that could hand a key over did so.
    pub(crate) hands_over: AtomicBool,
    /// Those that wait behind a pooler, which delivers no notifications.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    places: HashMap<HolderId, Place>,
    /// A task asks for their hand-offs.
    is_polled: bool,
    /// When it did so last.
    looked: Option<Instant>,
}

/// Where a client waits.
#[derive(Debug)]
struct Place {
    key: Key,
    ahead: u32,
    /// When the queue moved last.
    since: Instant,
}

/// From one look for a hand-off to the next: as often as the queue may move, so that a hand-off takes at most a tenth longer than what was
/// waited for. `None` if the repeated claim comes as soon.
fn pause(unmoved: Duration, poll: Duration) -> Option<Duration> {
    Some(poll.max(unmoved / 10)).filter(|pause| *pause < POLLED)
}

impl Hub {
    /// A payload proves nothing by itself: see [`Event::Handed`].
    pub(crate) fn notified(&self, payload: &str) {
        if let Some(event) = calls::event(payload) {
            self.listeners.send(&event);
        }
    }

    /// What was sent to this client since may be lost.
    pub(crate) fn lost_connection(&self, was_used: bool) {
        if was_used || !lock(&self.waiting).places.is_empty() {
            self.listeners.send(&Event::Reset);
        }
    }

    /// The holder waits behind so many. `true` if a task has to be started that asks for its hand-off.
    pub(crate) fn waits(&self, holder: HolderId, key: &Key, ahead: u32, poll: Duration) -> bool {
        let (mut waiting, now) = (lock(&self.waiting), Instant::now());
        let first = || Place { key: key.clone(), ahead, since: now };
        let place = waiting.places.entry(holder).or_insert_with(first);
        if place.ahead != ahead {
            (place.ahead, place.since) = (ahead, now);
        }
        pause(now - place.since, poll).is_some() && !std::mem::replace(&mut waiting.is_polled, true)
    }

    /// The holder waits no longer.
    pub(crate) fn forget(&self, holder: &HolderId) {
        lock(&self.waiting).places.remove(holder);
    }

    /// Those that wait, all in one look; none before its time. `None` ends the task.
    pub(crate) fn look(&self, poll: Duration) -> Option<Vec<(HolderId, Key)>> {
        let (mut waiting, now) = (lock(&self.waiting), Instant::now());
        let shortest = waiting.places.values().filter_map(|place| pause(now - place.since, poll)).min();
        waiting.is_polled = shortest.is_some();
        let pause = shortest?;
        if waiting.looked.is_some_and(|last| now - last < pause) {
            return Some(Vec::new());
        }
        waiting.looked = Some(now);
        Some(waiting.places.iter().map(|(holder, place)| (*holder, place.key.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks of each second, for a client that repeats its claim once a second and sees so many in front of it.
    async fn looks(ahead: impl Fn(u32) -> u32) -> Vec<usize> {
        let (hub, poll, key) = (Hub::default(), Duration::from_millis(100), Key::new("k").expect("a key"));
        let (holder, mut is_polled) = (HolderId::from_bytes([1; 16]), false);
        let mut second = async |number: u32| {
            is_polled |= hub.waits(holder, &key, ahead(number), poll);
            let mut looks = 0;
            for _ in 0..10 {
                tokio::time::advance(poll).await;
                if is_polled {
                    let due = hub.look(poll);
                    is_polled = due.is_some();
                    looks += usize::from(due.is_some_and(|due| !due.is_empty()));
                }
            }
            looks
        };
        let mut all = Vec::new();
        for number in 0..20 {
            all.push(second(number).await);
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_long_asks_no_more_often_than_its_claim_is_repeated() {
        let looks = looks(|_| 3).await;
        assert_eq!((looks[0], &looks[10..]), (10, &[0; 10][..]), "{looks:?}");
        assert!(looks.is_sorted_by(|one, next| one >= next) && looks.iter().sum::<usize>() <= 40, "{looks:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_queue_moves_hand_offs_are_asked_for_at_every_poll() {
        assert!(looks(|second| 20 - second).await.iter().all(|looks| *looks >= 9));
        let late = looks(|second| 10 - second / 10).await;
        assert!(late[9] <= 1 && late[10] >= 9, "{late:?}");
    }
}
