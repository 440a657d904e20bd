use super::waiter::{Waiter, WaiterId};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// The entries are compacted only if more of them than this are empty.
const SLACK: usize = 16;

/// Tasks in the order of their ids. Tasks are added at the ends, and leave mostly from the front.
///
/// A hand-off removes the first task and adds one at the back. In a `BTreeMap` each of the two moves a node of large
/// entries, which took 5 % of the time of a hand-off. The entry of a task that left stays empty until half of the entries
/// are, so that very many tasks may leave at once.
#[derive(Debug, Clone)]
pub(super) struct Queue<W> {
    entries: VecDeque<(WaiterId, Option<Waiter<W>>)>,
    /// The number of entries with a task. The first and the last entry always have one.
    len: usize,
}

impl<W> Queue<W> {
    pub(super) const fn new() -> Self {
        Self { entries: VecDeque::new(), len: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a task whose id is greater, or smaller, than all others.
    pub(super) fn insert(&mut self, id: WaiterId, waiter: Waiter<W>) {
        self.len += 1;
        if self.entries.capacity() == 0 {
            // A key usually has one.
            self.entries.reserve_exact(1);
        }
        if self.entries.back().is_none_or(|(last, _)| *last < id) {
            self.entries.push_back((id, Some(waiter)));
        } else {
            self.entries.push_front((id, Some(waiter)));
        }
    }

    pub(super) fn first(&self) -> Option<(WaiterId, &Waiter<W>)> {
        self.iter().next()
    }

    pub(super) fn pop_first(&mut self) -> Option<(WaiterId, Waiter<W>)> {
        let (id, waiter) = self.entries.pop_front()?;
        self.len -= 1;
        self.trim();
        waiter.map(|waiter| (id, waiter))
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter<W>> {
        self.index(id).and_then(|index| self.entries[index].1.as_ref())
    }

    pub(super) fn get_mut(&mut self, id: WaiterId) -> Option<&mut Waiter<W>> {
        self.index(id).and_then(|index| self.entries[index].1.as_mut())
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let index = self.index(id)?;
        let waiter = self.entries[index].1.take()?;
        self.len -= 1;
        self.trim();
        if self.entries.len() > 2 * self.len + SLACK {
            self.entries.retain(|(_, waiter)| waiter.is_some());
        }
        Some(waiter)
    }

    /// The number of tasks before this one.
    pub(super) fn before(&self, id: WaiterId) -> usize {
        let index = self.entries.partition_point(|(other, _)| *other < id);
        self.entries.range(..index).filter(|(_, waiter)| waiter.is_some()).count()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (WaiterId, &Waiter<W>)> {
        self.entries.iter().filter_map(|(id, waiter)| waiter.as_ref().map(|waiter| (*id, waiter)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter<W>> {
        self.entries.iter_mut().filter_map(|(_, waiter)| waiter.as_mut())
    }

    fn index(&self, id: WaiterId) -> Option<usize> {
        // Ids are usually contiguous, and then no search is needed.
        let guess = usize::try_from(id.0 - self.entries.front()?.0.0).ok()?;
        if self.entries.get(guess).is_some_and(|(found, _)| *found == id) {
            return Some(guess);
        }
        self.entries.binary_search_by_key(&id, |(id, _)| *id).ok()
    }

    fn trim(&mut self) {
        while self.entries.front().is_some_and(|(_, waiter)| waiter.is_none()) {
            self.entries.pop_front();
        }
        while self.entries.back().is_some_and(|(_, waiter)| waiter.is_none()) {
            self.entries.pop_back();
        }
    }
}

/// Empty entries do not affect equality.
impl<W: Hash> Hash for Queue<W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len.hash(state);
        self.iter().for_each(|entry| entry.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::super::waiter::WaiterState;
    use super::*;
    use crate::engine::{AcquireRequest, LeaseSharing};
    use crate::{Mode, Moment, Owner, Ttl};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn waiter(task: i64) -> Waiter<i64> {
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let owner = Owner::new("host", 1, None).unwrap();
        let request = AcquireRequest {
            mode: Mode::Exclusive,
            owner,
            ttl,
            wait: None,
            retry: None,
            max_hold: None,
            lease_sharing: LeaseSharing::Allowed,
            place: None,
        };
        Waiter { request, arrived: Moment::default(), task, state: WaiterState::Queued }
    }

    proptest! {
        #[test]
        fn the_queue_behaves_as_a_sorted_map(calls in prop::collection::vec((0..5_u8, any::<prop::sample::Index>()), 0..300)) {
            let (mut waiters, mut map, mut last, mut first) = (Queue::new(), BTreeMap::new(), 0, 0);
            for (call, which) in calls {
                // Also one that is not among them.
                let number = first - 1 + i64::try_from(which.index(usize::try_from(last - first + 3).unwrap())).unwrap();
                let id = WaiterId(number);
                match call {
                    0 => {
                        last += 1;
                        waiters.insert(WaiterId(last), waiter(last));
                        map.insert(last, last);
                    }
                    1 => {
                        first -= 1;
                        waiters.insert(WaiterId(first), waiter(first));
                        map.insert(first, first);
                    }
                    2 => prop_assert_eq!(waiters.pop_first().map(|(_, one)| one.task), map.pop_first().map(|(_, task)| task)),
                    _ => prop_assert_eq!(waiters.remove(id).map(|one| one.task), map.remove(&number)),
                }
                prop_assert_eq!(waiters.get(id).map(|one| one.task), map.get(&number).copied());
                prop_assert_eq!(waiters.get_mut(id).is_some(), map.contains_key(&number));
                prop_assert_eq!(waiters.before(id), map.range(..number).count());
                prop_assert_eq!(waiters.len(), map.len());
                prop_assert_eq!(waiters.is_empty(), map.is_empty());
                prop_assert_eq!(waiters.first().map(|(_, one)| one.task), map.values().next().copied());
                prop_assert!(waiters.iter().map(|(_, one)| one.task).eq(map.values().copied()));
                prop_assert!(waiters.entries.len() <= 2 * waiters.len() + SLACK, "empty places are bounded");
            }
        }
    }
}
