//! How a client of version 0 differs.

use crate::client::Kind;
use crate::world::{Rule, World, holder};
use fencelock_model::{Entry, Name, Value};

impl World {
    /// A client of version 0 takes what it cannot read for the value of another program.
    pub(crate) fn as_seen_by<T>(&mut self, i: usize, call: impl FnOnce(&mut Self) -> T) -> T {
        let shared = self.key.lock.as_ref().map(|lock| lock.value.clone());
        let hidden =
            shared.filter(|value| matches!(value, Value::Shared { .. }) && self.clients[i].kind == Kind::Before);
        if let (Some(value), Some(lock)) = (&hidden, &mut self.key.lock) {
            lock.value = Value::Foreign(value.to_string().into());
        }
        let done = call(self);
        if let (Some(value), Some(lock)) = (hidden, &mut self.key.lock)
            && lock.value == Value::Foreign(value.to_string().into())
        {
            lock.value = value;
        }
        done
    }

    /// It grants the whole lock to every waiter.
    pub(crate) fn served_by_version_0<T>(&mut self, i: usize, rule: Rule, call: impl FnOnce(&mut Self) -> T) -> T {
        if self.clients[i].kind != Kind::Before {
            return call(self);
        }
        let before = self.key.waiters.entries.clone();
        // It reads the entries when the lock is free, or becomes free.
        let reads = self.key.lock.as_ref().is_none_or(|lock| lock.value.holder() == Some(holder(i)));
        for (name, entry) in &mut self.key.waiters.entries {
            let Entry::Waiter(waiter) = entry else { continue };
            let unknown = waiter.version.take().is_some_and(|version| version.contains(' '));
            if unknown && reads && rule == Rule::DropsUnknownEntries {
                self.key.queue.members.retain(|(_, member)| member != name);
            }
        }
        let done = call(self);
        for (name, entry) in &mut self.key.waiters.entries {
            if let Some(as_before) = before.get(name).filter(|_| *name != Name::Holder(holder(i))) {
                *entry = as_before.clone();
            }
        }
        done
    }
}
