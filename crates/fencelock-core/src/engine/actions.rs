use super::action::Action;
use std::array;
use std::iter::{Chain, Flatten};
use std::vec;

/// Most calls have no more actions.
const INLINE: usize = 4;

/// The actions of one call, in order. It allocates only for more than four of them.
#[derive(Debug, Clone)]
pub struct Actions<W, L> {
    first: [Option<Action<W, L>>; INLINE],
    len: usize,
    rest: Vec<Action<W, L>>,
}

impl<W, L> Actions<W, L> {
    /// None yet.
    pub const fn new() -> Self {
        Self { first: [const { None }; INLINE], len: 0, rest: Vec::new() }
    }

    /// Adds one.
    pub fn push(&mut self, action: Action<W, L>) {
        match self.first.get_mut(self.len) {
            Some(slot) => {
                *slot = Some(action);
                self.len += 1;
            }
            None => self.rest.push(action),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Action<W, L>> {
        self.first.iter().flatten().chain(&self.rest)
    }
}

impl<W, L> Default for Actions<W, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W, L> IntoIterator for Actions<W, L> {
    type Item = Action<W, L>;
    type IntoIter = Chain<Flatten<array::IntoIter<Option<Action<W, L>>, INLINE>>, vec::IntoIter<Action<W, L>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().flatten().chain(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_come_out_in_the_order_in_which_they_went_in() {
        let mut actions = Actions::<usize, ()>::new();
        (0..10).for_each(|waker| actions.push(Action::Wake(waker)));
        let number = |action: &Action<usize, ()>| if let Action::Wake(waker) = action { *waker } else { usize::MAX };
        assert!(actions.iter().map(number).eq(0..10));
        assert!(actions.into_iter().map(|action| number(&action)).eq(0..10));
    }
}
