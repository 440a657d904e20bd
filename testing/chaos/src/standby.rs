//! A replica that lags behind its master because of the link between them.

use crate::Failure;
use crate::machine::Machine;
use fencelock_testkit::{Proxy, RedisServer};
use std::time::Duration;

/// Enough for a full copy of a small server on a busy machine.
const TRIES: u32 = 2000;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Standby {
    machine: Machine,
    /// The link to the master.
    link: Proxy,
}

impl Standby {
    pub(crate) fn of(master: &RedisServer, machine: Machine) -> Result<Self, Failure> {
        let standby = Self { machine, link: Proxy::to(master.port())? };
        standby.follow(master)?;
        Ok(standby)
    }

    /// Follows this master, and waits for the initial copy.
    pub(crate) fn follow(&self, master: &RedisServer) -> Result<(), Failure> {
        self.link.forward_to(master.port());
        self.link.forward();
        let port = self.link.port().to_string();
        self.machine.server.command(&["REPLICAOF", "127.0.0.1", &port]);
        self.until_linked()
    }

    /// Waits until the link to the master is up.
    pub(crate) fn until_linked(&self) -> Result<(), Failure> {
        for _ in 0..TRIES {
            let info = self.machine.server.command(&["INFO", "replication"]);
            if info.text().is_some_and(|text| text.contains("master_link_status:up")) {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err("the replica cannot connect to its master".into())
    }

    /// Stops the replication without closing the link.
    pub(crate) fn lag(&self) {
        self.link.hold();
    }

    /// Whether the replica has this value at this key.
    pub(crate) fn has(&self, key: &str, value: &str) -> bool {
        self.machine.server.command(&["GET", key]).text() == Some(value)
    }

    /// Promotes the replica, and swaps it with the master.
    pub(crate) fn promote(&mut self, master: &mut Machine) {
        self.link.cut();
        self.machine.server.command(&["REPLICAOF", "NO", "ONE"]);
        std::mem::swap(&mut self.machine, master);
    }

    /// Restarts without data.
    pub(crate) fn restart_empty(&mut self) -> Result<(), Failure> {
        Ok(self.machine.server.restart_empty()?)
    }

    /// How often the replica has returned this error since its statistics were reset.
    pub(crate) fn errors(&self, name: &str) -> u64 {
        self.machine.errors(name)
    }
}
