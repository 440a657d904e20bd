use super::{Entry, Fence, KeyModel, Kind, Lock, Name, Refused, Server, Value};

/// What other programs do with the key, by plain commands.
impl KeyModel {
    /// `SET key value [NX] [PX ttl]`; says whether it was set.
    pub fn foreign_set(
        &mut self,
        server: &Server,
        value: Value,
        ttl_ms: Option<u64>,
        only_if_free: OnlyIfFree,
    ) -> Result<Done, Refused> {
        self.expire(server);
        if server.full {
            return Err(Refused::Full);
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

    /// How other libraries release: delete if the value is still this string.
    pub fn foreign_compare_and_delete(&mut self, server: &Server, value: &Value) -> Done {
        self.expire(server);
        if self.lock.as_ref().is_some_and(|lock| lock.value == *value) { self.foreign_delete(server) } else { Done::No }
    }

    /// `PERSIST key`: it stays for ever.
    pub fn foreign_persist(&mut self, server: &Server) -> Done {
        self.expire(server);
        match self.lock.as_mut().and_then(|lock| lock.expires_ms.take()) {
            Some(_) => Done::Yes,
            None => Done::No,
        }
    }

    /// Adds something to a hash, list, ... under the key; it fails if there is something of another type.
    pub fn foreign_put(&mut self, server: &Server, kind: Kind) -> Result<Done, Refused> {
        self.expire(server);
        if server.full {
            return Err(Refused::Full);
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

    /// `SET fence token PX ttl`: for tests near the end of the numbers.
    pub fn put_fence(&mut self, server: &Server, token: u64, ttl_ms: u64) -> Result<(), Refused> {
        self.expire(server);
        if server.full {
            return Err(Refused::Full);
        }
        self.fence = Some(Fence { token, expires_ms: server.now_ms() + ttl_ms });
        Ok(())
    }

    /// `ZADD line ticket name`.
    pub fn put_in_line(&mut self, server: &Server, ticket: u64, name: Name) -> Result<(), Refused> {
        self.expire(server);
        if server.full {
            return Err(Refused::Full);
        }
        if let Some(rank) = self.line.rank(&name) {
            self.line.members.remove(rank);
        }
        self.line.members.push((ticket, name));
        self.line.members.sort();
        Ok(())
    }

    /// `HSET waiters name entry`.
    pub fn put_entry(&mut self, server: &Server, name: Name, entry: Entry) -> Result<(), Refused> {
        self.expire(server);
        if server.full {
            return Err(Refused::Full);
        }
        self.waiters.entries.insert(name, entry);
        Ok(())
    }

    /// What a client of any version writes to stand in line.
    pub fn put_waiter(
        &mut self,
        server: &Server,
        ticket: u64,
        name: &Name,
        alive_until_ms: u64,
        entry: Entry,
    ) -> Result<(), Refused> {
        self.put_in_line(server, ticket, name.clone())?;
        self.lives.until_ms.insert(name.clone(), alive_until_ms);
        self.put_entry(server, name.clone(), entry)
    }

    /// `HDEL waiters name`.
    pub fn drop_entry(&mut self, server: &Server, name: &Name) {
        self.expire(server);
        self.waiters.remove(name);
    }
}

/// Whether a foreign command did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Done {
    /// It did.
    Yes,
    /// It found something else there.
    No,
}

/// `NX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnlyIfFree {
    /// Leave alone what is there.
    Yes,
    /// Overwrite.
    No,
}
