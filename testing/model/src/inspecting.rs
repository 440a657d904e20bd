use super::answer::{Availability, Inspect, Listed, Occupied, ScriptError};
use super::key::KeyModel;
use super::marker::Gate;
use super::server::Server;

/// What a client receives about the holders.
impl KeyModel {
    /// `inspect.lua` with a quarantine check: a server that may have lost data never reports that a lock is free.
    pub fn checked_inspect(&mut self, server: &Server, gate: &Gate) -> Result<Availability, ScriptError> {
        self.expire(server);
        if self.shared().is_some() && server.time_refused {
            return Err(ScriptError::Time);
        }
        if let Some(seen) = self.inspect(server) {
            return Ok(Availability::Held(seen));
        }
        let free = || Availability::Free { waiters: self.living(server) };
        Ok(gate.refusal()?.map_or_else(free, |refusal| Availability::Refused(refusal.clone())))
    }

    /// `inspect.lua`: the holder; `None` if the lock is free.
    pub fn inspect(&mut self, server: &Server) -> Option<Inspect> {
        self.expire(server);
        let lock = self.lock.as_ref()?;
        let fence = self.fence.map(|fence| fence.token);
        let waiters = self.living(server);
        let (by, mut ttl_ms, mut listed) = (lock.value.clone(), lock.ttl_ms(server), None);
        if self.shared().is_some() {
            // The key has no holder any more.
            let holds = self.listed(server)?;
            (ttl_ms, listed) = (holds.first_rest_ms(), Some(holds));
        }
        Some(Inspect { by, ttl_ms, fence, waiters, listed })
    }

    pub(super) fn occupied(&self, server: &Server) -> Occupied {
        let lock = self.lock.as_ref().unwrap_or_else(|| unreachable!("only of a lock that is not free"));
        let last_fence = self.fence.map_or(0, |fence| fence.token);
        // Without the time, the holders are not listed.
        let listed = if server.time_refused { None } else { self.listed(server) };
        let ttl_ms = listed.as_ref().map_or_else(|| lock.ttl_ms(server), Listed::first_rest_ms);
        Occupied { last_fence, ttl_ms, by: lock.value.clone(), listed, unread: None }
    }
}
