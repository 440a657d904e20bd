//! The limit of the semaphore is changed.

use crate::checks;
use crate::world::Outbox;
use crate::world::{HAND_OFF_MS, Rule, World, holder};
use fencelock_core::Mode;
use fencelock_model::{Entry, Gate, KeyModel, Name, Resize, Server, Value, WaiterQueue, Waiters};

impl World {
    /// The limit of the semaphore that is in use.
    pub(crate) fn limit(&self) -> Option<u32> {
        match self.key.lock.as_ref()?.value {
            Value::Shared { limit, .. } => limit,
            _ => None,
        }
    }

    /// Makes this the limit of the semaphore that is in use, and returns the one before.
    pub(crate) fn replace_limit(&mut self, limit: Option<u32>) -> Option<u32> {
        match &mut self.key.lock.as_mut()?.value {
            Value::Shared { limit: Some(present), .. } => Some(std::mem::replace(present, limit?)),
            _ => None,
        }
    }

    pub(crate) fn resize(&mut self, limit: u32, server: &Server, rule: Rule) -> Result<(), String> {
        self.resizes -= 1;
        let KeyModel { queue, waiters: Waiters { entries, .. }, deadlines, .. } = self.key.clone();
        let used = self.key.held.used;
        if rule == Rule::ResizeLeavesWaiters {
            self.key.queue = WaiterQueue::default();
        }
        let mut sent = Outbox::default();
        let publish = &mut |message| sent.send(message);
        let answer = self.key.resize(server, limit, None, self.now_us, HAND_OFF_MS, &Gate::Open, publish).unwrap();
        self.deliver_later(sent);
        match rule {
            Rule::ResizeLeavesWaiters => self.key.queue = queue,
            Rule::ResizeKeepsEveryWaiter => {
                let left = queue.members.iter().filter(|member| !self.key.queue.members.contains(member));
                let left: Vec<_> = left.filter(|(_, name)| !self.holds(name)).cloned().collect();
                for (ticket, name) in left {
                    self.key.deadlines.until_ms.insert(name.clone(), deadlines.until_ms[&name]);
                    self.key.waiters.entries.insert(name.clone(), entries[&name].clone());
                    self.key.queue.members.insert(0, (ticket, name));
                }
            }
            Rule::ResizeForgetsThePermitsInUse => self.key.held.used = used.map(|_| 0),
            _ => {}
        }
        if let Resize::Resized { scan, .. } = answer
            && scan.more
        {
            return Err("few waiters need one call".to_owned());
        }
        if rule == Rule::Production { checks::first_waiter_has_no_room(&self.key, self.now_us) } else { Ok(()) }
    }

    fn holds(&self, name: &Name) -> bool {
        self.key.holds.ends_ms.keys().any(|holder| *name == Name::Holder(*holder))
    }

    /// The entry of a waiter, as its client would write it.
    pub(crate) fn restore_entry(&mut self, i: usize) {
        if let Some(Entry::Waiter(waiter)) = self.key.waiters.entries.get_mut(&Name::Holder(holder(i)))
            && let Mode::Permits { weight, limit, .. } = self.clients[i].kind.mode()
        {
            waiter.version = format!("1 s {weight} {limit}").into();
        }
    }
}
