//! The search of a scheme.

use crate::fault::Faults;
use crate::model::LockModel;
use crate::model::state::{Action, State};
use crate::property::Property;
use crate::scheme::LockScheme;
use fencelock_search::System;

/// The result of a search.
#[derive(Debug, Clone)]
pub(crate) struct Explored {
    /// The number of distinct states.
    pub(crate) states: usize,
    /// The shortest way to each violated property.
    pub(crate) broken: Vec<(Property, Vec<Action>)>,
}

impl Explored {
    pub(crate) fn way(&self, property: Property) -> Option<&[Action]> {
        self.broken.iter().find(|(broken, _)| *broken == property).map(|(_, way)| way.as_slice())
    }
}

impl System for LockModel<'_> {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State::default()
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        self.actions(state, into);
    }

    /// The landmarks are the violated properties.
    fn step(&self, state: &State, action: Action) -> (State, u32) {
        let step = self.step(state, action);
        (step.after, step.broken.into())
    }
}

/// Visits every reachable state with these faults, in breadth-first order.
pub(crate) fn explore(scheme: &LockScheme, faults: Faults) -> Explored {
    let found = fencelock_search::explore(&LockModel { scheme, faults }, usize::MAX, |_| false);
    let broken = found.ways.into_iter().flat_map(|(bits, way)| {
        let violated = Property::ALL.into_iter().filter(move |property| bits & u32::from(property.bit()) != 0);
        violated.map(move |property| (property, way.clone()))
    });
    Explored { states: found.states, broken: broken.collect() }
}
