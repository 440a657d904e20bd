use super::waiter::WaiterId;
use crate::engine::TaskStep;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Tasks that have left the queue and have not read their last step yet.
///
/// A hand-off adds one, and the next poll of that task removes it, so there is usually at most one. It is stored
/// inline, because a map would allocate for each hand-off.
#[derive(Debug, Clone)]
pub(super) struct Served {
    one: Option<(WaiterId, TaskStep)>,
    /// The others; empty for most keys.
    #[allow(clippy::box_collection, reason = "there may be very many keys")]
    others: Option<Box<BTreeMap<WaiterId, TaskStep>>>,
}

impl Served {
    pub(super) const fn new() -> Self {
        Self { one: None, others: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.one.is_none() && self.others.as_ref().is_none_or(|others| others.is_empty())
    }

    pub(super) fn insert(&mut self, id: WaiterId, step: TaskStep) {
        match &self.one {
            None => self.one = Some((id, step)),
            Some(_) => _ = self.others.get_or_insert_default().insert(id, step),
        }
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&TaskStep> {
        match &self.one {
            Some((one, step)) if *one == id => Some(step),
            _ => self.others.as_ref()?.get(&id),
        }
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<TaskStep> {
        if self.one.as_ref().is_some_and(|(one, _)| *one == id) {
            return self.one.take().map(|(_, step)| step);
        }
        self.others.as_mut()?.remove(&id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = WaiterId> {
        self.one.iter().map(|(id, _)| *id).chain(self.others.iter().flat_map(|others| others.keys().copied()))
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &TaskStep> {
        self.one.iter().map(|(_, step)| step).chain(self.others.iter().flat_map(|others| others.values()))
    }
}

/// Equality does not depend on which step is stored inline.
impl Hash for Served {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut all: BTreeMap<_, _> = self.others.iter().flat_map(|others| others.iter()).collect();
        all.extend(self.one.as_ref().map(|(id, step)| (id, step)));
        all.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_reads_its_own_step_once() {
        let mut served = Served::new();
        let ids = [7, -3, 9].map(WaiterId);
        for id in ids {
            served.insert(
                id,
                TaskStep::Sleep { until: crate::Moment::from_micros(id.0.unsigned_abs()), wakes: id.0 > 0 },
            );
        }
        assert!(served.steps().count() == 3 && served.get(WaiterId(8)).is_none());
        for id in [9, 7, -3].map(WaiterId) {
            assert!(matches!(served.get(id), Some(TaskStep::Sleep { wakes, .. }) if *wakes == (id.0 > 0)));
            assert!(matches!(served.remove(id), Some(TaskStep::Sleep { wakes, .. }) if wakes == (id.0 > 0)));
            assert!(served.remove(id).is_none() && served.get(id).is_none());
        }
        assert!(served.is_empty());
    }
}
