use super::answer::{Done, ScriptError};
use super::key::{Fence, KeyModel, Lock};
use super::queue::{Entry, Name};
use super::server::Server;
use super::value::{Kind, Value};

/// Commands of other programs.
impl KeyModel {
    /// `SET key value [NX] [PX ttl]`; returns whether the key was set.
    pub fn foreign_set(
        &mut self,
        server: &Server,
        value: Value,
        ttl_ms: Option<u64>,
        only_if_free: OnlyIfFree,
    ) -> Result<Done, ScriptError> {
        self.expire(server);
        if server.full {
            return Err(ScriptError::Full);
        }
        if only_if_free == OnlyIfFree::Yes && self.lock.is_some() {
            return Ok(Done::No);
        }
        self.lock = Some(Lock { value, expires_ms: ttl_ms.map(|ttl| server.now_ms() + ttl) });
        Ok(Done::Yes)
    }

    /// `DEL key`.
    pub fn foreign_delete(&mut self, server: &Server) -> Done {
        self.expire(server);
        if self.lock.take().is_some() { Done::Yes } else { Done::No }
    }

    /// The release of other libraries: deletes the key if it holds this string.
    pub fn foreign_compare_and_delete(&mut self, server: &Server, value: &Value) -> Done {
        self.expire(server);
        if self.lock.as_ref().is_some_and(|lock| lock.value == *value) { self.foreign_delete(server) } else { Done::No }
    }

    /// `PERSIST key`: removes the TTL.
    pub fn foreign_persist(&mut self, server: &Server) -> Done {
        self.expire(server);
        match self.lock.as_mut().and_then(|lock| lock.expires_ms.take()) {
            Some(_) => Done::Yes,
            None => Done::No,
        }
    }

    /// Adds an element to a hash, list, ... under the key; fails if the key has another type.
    pub fn foreign_put(&mut self, server: &Server, kind: Kind) -> Result<Done, ScriptError> {
        self.expire(server);
        if server.full {
            return Err(ScriptError::Full);
        }
        match &self.lock {
            Some(lock) if lock.value != Value::Other(kind) => Ok(Done::No),
            Some(_) => Ok(Done::Yes),
            None => {
                self.lock = Some(Lock { value: Value::Other(kind), expires_ms: None });
                Ok(Done::Yes)
            }
        }
    }

    /// `SET fence token PX ttl`: for tests near the maximum.
    pub fn put_fence(&mut self, server: &Server, token: u64, ttl_ms: u64) -> Result<(), ScriptError> {
        self.expire(server);
        if server.full {
            return Err(ScriptError::Full);
        }
        self.fence = Some(Fence { token, expires_ms: server.now_ms() + ttl_ms });
        Ok(())
    }

    /// `ZADD line ticket name`.
    pub fn put_in_queue(&mut self, server: &Server, ticket: u64, name: Name) -> Result<(), ScriptError> {
        self.expire(server);
        if server.full {
            return Err(ScriptError::Full);
        }
        if let Some(rank) = self.queue.rank(&name) {
            self.queue.members.remove(rank);
        }
        self.queue.members.push((ticket, name));
        self.queue.members.sort();
        Ok(())
    }

    /// `HSET waiters name entry`.
    pub fn put_entry(&mut self, server: &Server, name: Name, entry: Entry) -> Result<(), ScriptError> {
        self.expire(server);
        if server.full {
            return Err(ScriptError::Full);
        }
        self.waiters.entries.insert(name, entry);
        Ok(())
    }

    /// The entry of a waiter of any version.
    pub fn put_waiter(
        &mut self,
        server: &Server,
        ticket: u64,
        name: &Name,
        alive_until_ms: u64,
        entry: Entry,
    ) -> Result<(), ScriptError> {
        self.put_in_queue(server, ticket, name.clone())?;
        self.deadlines.until_ms.insert(name.clone(), alive_until_ms);
        self.put_entry(server, name.clone(), entry)
    }

    /// `DEL held` or `DEL holds`.
    pub fn drop_holds(&mut self, server: &Server, held: bool) -> Done {
        self.expire(server);
        let was_there = if held {
            let held = std::mem::take(&mut self.held);
            !held.entries.is_empty() || held.used.is_some()
        } else {
            !std::mem::take(&mut self.holds).ends_ms.is_empty()
        };
        if was_there { Done::Yes } else { Done::No }
    }

    /// `HDEL waiters name`.
    pub fn drop_entry(&mut self, server: &Server, name: &Name) {
        self.expire(server);
        self.waiters.remove(name);
    }
}

/// The option `NX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnlyIfFree {
    /// Keep an existing value.
    Yes,
    /// Replace an existing value.
    No,
}
