use super::action::Action;

/// Most calls have no more actions.
const INLINE: usize = 4;

/// The actions of one call, in order. More than four of them need an allocation.
#[derive(Debug, Clone)]
pub struct Actions<W, L> {
    first: [Option<Action<W, L>>; INLINE],
    len: usize,
    rest: Vec<Action<W, L>>,
}

impl<W, L> Actions<W, L> {
    /// An empty list.
    pub const fn new() -> Self {
        Self { first: [const { None }; INLINE], len: 0, rest: Vec::new() }
    }

    /// Adds an action.
    pub fn push(&mut self, action: Action<W, L>) {
        match self.first.get_mut(self.len) {
            Some(slot) => {
                *slot = Some(action);
                self.len += 1;
            }
            None => self.rest.push(action),
        }
    }

    /// Removes and returns all actions.
    pub fn drain(&mut self) -> impl Iterator<Item = Action<W, L>> {
        let len = std::mem::take(&mut self.len);
        self.first.iter_mut().take(len).filter_map(Option::take).chain(self.rest.drain(..))
    }

    /// All actions.
    pub fn iter(&self) -> impl Iterator<Item = &Action<W, L>> {
        self.first.iter().take(self.len).flatten().chain(&self.rest)
    }
}

impl<W, L> Default for Actions<W, L> {
    fn default() -> Self {
        Self::new()
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
        assert!(actions.drain().map(|action| number(&action)).eq(0..10));
        assert!(actions.iter().next().is_none(), "they are taken out");
    }
}
