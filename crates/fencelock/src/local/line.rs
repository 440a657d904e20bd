//! A line whose places are found, left and served in constant time.

/// Nobody.
const NONE: usize = usize::MAX;

/// First come, first served. Whoever was served keeps its place number until it is taken out.
#[derive(Debug)]
pub(crate) struct Line<T> {
    places: Vec<Place<T>>,
    /// The first of the places without anybody, each of which names the next as the one behind it.
    empty: usize,
    /// How many have a place, waiting or served.
    seated: usize,
    first: usize,
    last: usize,
}

#[derive(Debug)]
struct Place<T> {
    who: Option<T>,
    before: usize,
    behind: usize,
    waits: bool,
}

impl<T> Line<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), empty: NONE, seated: 0, first: NONE, last: NONE }
    }

    /// Whether nobody waits.
    pub(crate) const fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// The place of whoever is next.
    pub(crate) const fn front(&self) -> Option<usize> {
        if self.is_empty() { None } else { Some(self.first) }
    }

    /// Lines up.
    pub(crate) fn push(&mut self, who: T) -> usize {
        let number = self.place_for(who);
        let last = std::mem::replace(&mut self.last, number);
        self.places[number].before = last;
        match self.places.get_mut(last) {
            Some(place) => place.behind = number,
            None => self.first = number,
        }
        number
    }

    /// Comes before all others: whoever was served in vain.
    pub(crate) fn push_front(&mut self, who: T) -> usize {
        let number = self.place_for(who);
        let first = std::mem::replace(&mut self.first, number);
        self.places[number].behind = first;
        match self.places.get_mut(first) {
            Some(place) => place.before = number,
            None => self.last = number,
        }
        number
    }

    /// Whoever has the place, waiting or served.
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.places.get_mut(number)?.who.as_mut()
    }

    /// Serves a place: it waits no more.
    pub(crate) fn serve(&mut self, number: usize) -> Option<&mut T> {
        let place = self.places.get_mut(number)?;
        if std::mem::take(&mut place.waits) {
            let (before, behind) = (place.before, place.behind);
            match self.places.get_mut(before) {
                Some(place) => place.behind = behind,
                None => self.first = behind,
            }
            match self.places.get_mut(behind) {
                Some(place) => place.before = before,
                None => self.last = before,
            }
        }
        self.get_mut(number)
    }

    /// Goes away, served or not.
    pub(crate) fn take(&mut self, number: usize) -> Option<T> {
        self.serve(number)?;
        let who = self.places[number].who.take();
        self.places[number].behind = std::mem::replace(&mut self.empty, number);
        self.seated -= 1;
        who
    }

    /// Gives the memory back if nobody has a place, waiting or served.
    pub(crate) fn rest(&mut self) {
        if self.seated == 0 {
            *self = Self::new();
        }
    }

    /// Those who wait, in order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let place = self.places.get(next)?;
            Some(std::mem::replace(&mut next, place.behind))
        })
    }

    fn place_for(&mut self, who: T) -> usize {
        let place = Place { who: Some(who), before: NONE, behind: NONE, waits: true };
        self.seated += 1;
        if let Some(empty) = self.places.get(self.empty) {
            let number = std::mem::replace(&mut self.empty, empty.behind);
            self.places[number] = place;
            return number;
        }
        if self.places.is_empty() {
            // Most lines are of one.
            self.places.reserve_exact(1);
        }
        self.places.push(place);
        self.places.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn order(line: &mut Line<char>) -> String {
        let waiting: Vec<_> = line.waiting().collect();
        waiting.into_iter().filter_map(|number| line.get_mut(number).copied()).collect()
    }

    #[test]
    fn whoever_comes_first_is_first_and_anybody_may_leave() {
        let mut line = Line::new();
        let [a, b, c] = ['a', 'b', 'c'].map(|who| line.push(who));
        line.push_front('z');
        assert_eq!(order(&mut line), "zabc");
        assert_eq!((line.take(b), line.take(b)), (Some('b'), None));
        assert_eq!(order(&mut line), "zac");
        assert_eq!((line.serve(a).copied(), line.serve(a).copied()), (Some('a'), Some('a')), "served, and still there");
        assert_eq!(order(&mut line), "zc");
        let d = line.push('d');
        assert_eq!((d, line.take(a), line.take(c)), (b, Some('a'), Some('c')), "a place is used again");
        assert_eq!(order(&mut line), "zd");
        line.take(d);
        let front = line.front().unwrap();
        line.rest();
        assert_eq!(order(&mut line), "z", "as long as somebody has a place, all are kept");
        line.take(front);
        line.rest();
        assert!(line.is_empty() && line.front().is_none() && line.places.capacity() == 0);
        assert_eq!((line.push('e'), line.push('f')), (0, 1));
        assert_eq!(order(&mut line), "ef");
    }

    #[test]
    fn a_long_day_goes_as_with_a_queue_that_is_searched() {
        let (mut line, mut queue, mut turn) = (Line::new(), VecDeque::new(), 7u64);
        let mut served = Vec::new();
        for step in 0..20_000u32 {
            turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = usize::try_from(turn >> 40).unwrap();
            match turn >> 61 {
                0..=3 if queue.len() < 50 => queue.push_back((line.push(step), step)),
                4 => queue.push_front((line.push_front(step), step)),
                5 if !queue.is_empty() => {
                    let (number, who) = queue.remove(pick % queue.len()).unwrap();
                    assert_eq!(line.take(number), Some(who));
                }
                _ => {
                    let front = queue.pop_front();
                    assert_eq!(line.front(), front.map(|(number, _)| number));
                    if let Some((number, who)) = front {
                        assert_eq!(line.serve(number).copied(), Some(who));
                        served.push((number, who));
                    }
                }
            }
            if let Some((number, who)) = served.pop() {
                assert_eq!(line.take(number), Some(who));
            }
        }
        assert!(line.waiting().eq(queue.iter().map(|(number, _)| *number)));
        assert!(line.places.len() < 200, "places are used again");
    }
}
