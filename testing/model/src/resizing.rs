use super::answer::{QueueScan, Resize, ScriptError};
use super::key::{Claim, KeyModel, Wrote, take_memory};
use super::marker::Gate;
use super::queue::{Delivery, Entry, HandOff, Name};
use super::server::{Server, VERSION};
use super::value::Value;
use super::waiting::Offer;

/// What an earlier call of the same change has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Continued {
    /// The limit before it.
    pub before: u32,
    /// The ticket of the last waiter that it examined.
    pub ticket: u64,
}

/// The limit of a semaphore that is in use.
impl KeyModel {
    /// `resize.lua`: changes the limit. Holders stay, waiters wait for permits of the new limit, or leave if they want more than there
    /// are, and those that fit now are granted.
    #[allow(clippy::too_many_arguments, reason = "the arguments of the script")]
    pub fn resize(
        &mut self,
        server: &Server,
        limit: u32,
        continued: Option<Continued>,
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Resize, ScriptError> {
        self.expire(server);
        if let Some(refusal) = gate.refusal()? {
            return Ok(Resize::Refused(refusal.clone()));
        }
        let Some(lock) = &self.lock else { return Ok(Resize::Absent(None)) };
        let Some(present) = self.shared() else { return Ok(Resize::Taken(lock.value.clone())) };
        if server.time_refused {
            return Ok(Resize::NoClock);
        }
        let Some(now) = present.limit().filter(|now| continued.is_none() || *now == limit) else {
            return Ok(self.listed(server).map_or(Resize::Absent(None), Resize::Shared));
        };
        let (mut wrote, mut offer) = (Wrote::Nothing, Offer::new(server, proposal, hand_off_ms));
        let mut more = self.bury(server, &mut wrote);
        if self.lock.is_none() {
            let (_, unread) = self.advance(server, None, &mut offer, &mut wrote, publish)?;
            return Ok(Resize::Absent(unread));
        }
        let Continued { before, mut ticket } = continued.unwrap_or(Continued { before: now, ticket: 0 });
        if now != limit {
            take_memory(server, &mut wrote)?;
            self.rename(limit);
        }
        if before != limit {
            let waiting = self.queue.members.iter().filter(|(at, _)| *at > ticket).take(server.cap).cloned();
            let waiting: Vec<_> = waiting.collect();
            for (at, name) in &waiting {
                self.take_over(server, name, before, limit, &mut wrote)?;
                ticket = *at;
            }
            more |= waiting.len() == server.cap;
        }
        let scan: QueueScan = self.advance(server, None, &mut offer, &mut wrote, publish)?.into();
        let held = self.listed(server).map_or(0, |listed| listed.count);
        let used = self.held.used.unwrap_or(limit.into());
        Ok(Resize::Resized { before, used, held, ticket, scan: QueueScan { more: more || scan.more, ..scan } })
    }

    /// The value of the lock names the limit.
    fn rename(&mut self, limit: u32) {
        if let Some(lock) = &mut self.lock
            && let Value::Shared { limit: present, .. } = &mut lock.value
        {
            *present = Some(limit);
        }
    }

    /// Lets a waiter wait for permits of the new limit. One that can never fit leaves, because it would give a free key the limit
    /// before.
    fn take_over(
        &mut self,
        server: &Server,
        name: &Name,
        before: u32,
        limit: u32,
        wrote: &mut Wrote,
    ) -> Result<(), ScriptError> {
        let Some(Entry::Waiter(waiter)) = self.waiters.entries.get_mut(name) else { return Ok(()) };
        let is_readable = waiter.value.holder().map(Name::Holder).as_ref() == Some(name);
        let mode = waiter.mode();
        match mode.taken_over(before, limit) {
            _ if !is_readable => {}
            None => {
                *wrote = Wrote::Something;
                self.forget(name);
            }
            Some(resized) if resized != mode => {
                take_memory(server, wrote)?;
                waiter.version = format!("{VERSION} s {} {limit}", mode.weight()).into();
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// A waiter of a semaphore that was resized waits for permits of the new limit, although its client claims them by the old one.
    pub(super) fn by_entry(&self, claim: &Claim) -> Claim {
        let written = self.waiters.read(&Name::Holder(claim.holder)).and_then(|waiter| waiter.mode().limit());
        let limit = written.filter(|limit| claim.mode.weight() <= *limit);
        let mode = limit.map_or(claim.mode, |limit| claim.mode.resized(limit));
        Claim { mode, ..claim.clone() }
    }
}
