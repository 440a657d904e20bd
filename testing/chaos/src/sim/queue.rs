use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events by time in microseconds; equal times keep insertion order.
#[derive(Debug)]
pub(super) struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    numbered: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> Queue<E> {
    pub(super) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), numbered: 0 }
    }

    pub(super) fn put(&mut self, at: u64, event: E) {
        self.numbered += 1;
        self.heap.push(Entry { at, number: self.numbered, event });
    }

    pub(super) fn next(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

/// The heap returns the greatest item first, so the order is reversed.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_equals_keep_their_order() {
        let mut queue = Queue::new();
        for (at, event) in [(5, 'b'), (3, 'a'), (5, 'c'), (5, 'd')] {
            queue.put(at, event);
        }
        let order: String = std::iter::from_fn(|| queue.next()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
    }
}
