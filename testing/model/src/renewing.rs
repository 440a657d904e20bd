use super::answer::{Raise, Renew, ScriptError};
use super::key::{KeyModel, Lock, Wrote, take_memory};
use super::marker::Gate;
use super::server::{FENCE_TTL_MS, Server};

/// A holder continues, or gets another token.
impl KeyModel {
    /// `raise.lua`: raises the fence of a hold to this token, unless it was granted with a greater one. The fence of the key is at
    /// least this token then.
    pub fn raise(&mut self, server: &Server, holder: u128, to: u64, gate: &Gate) -> Result<Raise, ScriptError> {
        self.expire(server);
        if gate.refusal()?.is_some() {
            return Ok(Raise::Refused);
        }
        let fence = self.fence.map_or(0, |fence| fence.token);
        let granted = if self.lock_of(holder).is_some() {
            Some(fence)
        } else if self.shared().is_some() && server.time_refused {
            return Err(ScriptError::Time);
        } else {
            let is_held = self.shared().is_some() && self.rest(server, holder).is_some();
            self.held.entries.get(&holder).filter(|_| is_held).map(|entry| entry.token)
        };
        if granted.is_none_or(|granted| granted > to) {
            return Ok(Raise::Refused);
        }
        take_memory(server, &mut Wrote::Nothing)?;
        self.set_fence(server, fence.max(to));
        if self.shared().is_some()
            && let Some(entry) = self.held.entries.get_mut(&holder)
        {
            entry.token = to;
        }
        Ok(Raise::Acked)
    }

    /// `renew.lua`: a held lock has at least this TTL from now, and never less than its holder knows. It creates no lock.
    pub fn renew(&mut self, server: &Server, holder: u128, ttl_ms: u64, known_ms: u64) -> Result<Renew, ScriptError> {
        self.expire(server);
        let waiters = self.living(server);
        if self.shared().is_some() {
            if server.time_refused {
                return Err(ScriptError::Time);
            }
            let Some(left) = self.rest(server, holder) else {
                return Ok(self.listed(server).map_or(Renew::Absent, Renew::Shared));
            };
            self.prolong_hold(server, holder, Lock::renewed(left, ttl_ms, known_ms));
        } else if let Some(lock) = self.lock_of(holder) {
            lock.renew(server, ttl_ms, known_ms);
        } else {
            return Ok(self.lock.as_ref().map_or(Renew::Absent, |lock| Renew::Taken(lock.value.clone())));
        }
        if let Some(fence) = &mut self.fence {
            fence.expires_ms = server.now_ms() + FENCE_TTL_MS;
        }
        Ok(Renew::Renewed { waiters })
    }
}
