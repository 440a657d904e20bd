//! A replica, as far behind its master as the link between them.

use crate::Failure;
use crate::machine::Machine;
use fencelock_testkit::{Proxy, RedisServer};
use std::time::Duration;

/// A full copy of a small server, on a loaded machine.
const PATIENCE: u32 = 2000;
const NAP: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Standby {
    machine: Machine,
    /// What the master tells it goes through here.
    link: Proxy,
}

impl Standby {
    pub(crate) fn of(master: &RedisServer, machine: Machine) -> Result<Self, Failure> {
        let standby = Self { machine, link: Proxy::to(master.port())? };
        standby.follow(master)?;
        Ok(standby)
    }

    /// Makes it a replica of this master, and waits until it knows what the master knows.
    pub(crate) fn follow(&self, master: &RedisServer) -> Result<(), Failure> {
        self.link.forward_to(master.port());
        self.link.forward();
        let port = self.link.port().to_string();
        self.machine.server.command(&["REPLICAOF", "127.0.0.1", &port]);
        self.until_linked()
    }

    /// Until it hears its master.
    pub(crate) fn until_linked(&self) -> Result<(), Failure> {
        for _ in 0..PATIENCE {
            let info = self.machine.server.command(&["INFO", "replication"]);
            if info.text().is_some_and(|text| text.contains("master_link_status:up")) {
                return Ok(());
            }
            std::thread::sleep(NAP);
        }
        Err("the replica does not find its master".into())
    }

    /// From now on it hears nothing, and does not notice.
    pub(crate) fn lag(&self) {
        self.link.hold();
    }

    /// Whether it has this value under this key.
    pub(crate) fn has(&self, key: &str, value: &str) -> bool {
        self.machine.server.command(&["GET", key]).text() == Some(value)
    }

    /// Becomes a master and changes places with this one.
    pub(crate) fn promote(&mut self, master: &mut Machine) {
        self.link.cut();
        self.machine.server.command(&["REPLICAOF", "NO", "ONE"]);
        std::mem::swap(&mut self.machine, master);
    }

    /// Forgets all it heard.
    pub(crate) fn restart_empty(&mut self) -> Result<(), Failure> {
        Ok(self.machine.server.restart_empty()?)
    }

    /// How often it has answered with this error since its statistics were reset.
    pub(crate) fn errors(&self, name: &str) -> u64 {
        self.machine.errors(name)
    }
}
