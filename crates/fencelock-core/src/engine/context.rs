use super::action::Action;
use super::actions::Actions;
use crate::{Key, Moment};

#[allow(missing_debug_implementations, reason = "a bundle of arguments")]
/// The input of every call of the engine, besides the event itself.
pub struct Context<'a, W, L> {
    /// The key of the engine.
    pub key: &'a Key,
    /// The configuration of the client.
    pub config: &'a super::Config,
    /// The current time. It never decreases from one call of an engine to the next.
    pub now: Moment,
    /// The source of random numbers.
    pub rng: &'a mut dyn super::Rng,
    /// The list that receives the actions.
    pub out: &'a mut Actions<W, L>,
}

impl<W, L> Context<'_, W, L> {
    pub(super) fn act(&mut self, action: Action<W, L>) {
        self.out.push(action);
    }
}
