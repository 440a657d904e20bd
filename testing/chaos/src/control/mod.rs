//! Positive controls: the checker must flag a run without a protection; otherwise a clean history proves nothing.
//!
//! Each control has its own key, which no worker uses.

mod cluster;
mod election;
mod holds;
mod sentinels;

pub(crate) use cluster::{held_by_a_master_alone, moved_without_its_keys, promoted_by_the_cluster};
pub(crate) use holds::{ControlHolds, LEASE};
pub(crate) use sentinels::promoted_by_sentinels;

use crate::Failure;
use crate::connect::connect;
use crate::nodes::{Node, Nodes};
use fencelock::{Finding, Level};
use fencelock_testkit::Shift;
use holds::SHORT_LEASE;
use std::time::Duration;

/// A third of this is enough to acquire the lock while its previous holder still assumes that it holds it: the successor claims at
/// least once a second.
const SKEWED_LEASE: Duration = Duration::from_secs(6);
/// How much too fast a clock runs, in millionths; more than the assumed drift.
const SKEW: i64 = 500_000;

/// The keys of all controls.
pub(crate) const KEYS: [&str; 12] = [
    "control-forgotten",
    "control-jumped",
    "control-skewed",
    "control-evicted",
    "control-promoted",
    "control-cut-off",
    "control-unguarded",
    "control-guarded",
    "control-cleared",
    "control-restarted",
    "control-observed",
    "control-mixed",
];

/// The controls of servers behind proxies.
pub(crate) struct Control<'a> {
    pub(crate) nodes: &'a mut Nodes,
    pub(crate) holds: ControlHolds<'a>,
}

impl Control<'_> {
    /// Runs all controls. They modify the servers, so no other client may use them.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        self.forgotten()?;
        self.jumped()?;
        self.skewed()?;
        self.evicted()?;
        self.promoted()?;
        self.holds.common()
    }

    /// The minimum number of servers that two majorities share lose a held lock.
    fn forgotten(&mut self) -> Result<(), Failure> {
        let key = "control-forgotten";
        self.holds.announce(key, "C3");
        self.take_sparely(key)?;
        for node in self.nodes.in_common() {
            node.machine.server.restart_empty()?;
        }
        self.nodes.outside().for_each(|node| node.proxy.forward());
        self.holds.take(&connect(self.holds.url)?, "successor", key, SHORT_LEASE)?;
        Ok(())
    }

    /// The same number of clocks jumps past the end of a lease.
    fn jumped(&mut self) -> Result<(), Failure> {
        let key = "control-jumped";
        self.holds.announce(key, "C3");
        self.take_sparely(key)?;
        for node in self.nodes.in_common() {
            node.machine.clock.set(Shift::Forward(2 * LEASE))?;
        }
        self.nodes.outside().for_each(|node| node.proxy.forward());
        let taken = connect(self.holds.url);
        let taken = taken.and_then(|client| self.holds.take(&client, "successor", key, SHORT_LEASE));
        self.shift(Shift::None)?;
        taken?;
        // After the jump back the same times come again, and with them the tokens of this key, so the key is not used
        // any more. Its hold would last as long.
        for node in &self.nodes.all {
            node.server().command(&["DEL", key]);
        }
        Ok(())
    }

    /// The clocks of all servers run faster than the assumed drift, and a lease is used until its end.
    fn skewed(&mut self) -> Result<(), Failure> {
        let key = "control-skewed";
        self.holds.announce(key, "C3");
        let client = connect(self.holds.url)?;
        self.shift(Shift::Rate(SKEW))?;
        let taken = self.holds.take(&client, "sleeper", key, SKEWED_LEASE);
        let taken = taken.and_then(|_| self.holds.take(&client, "successor", key, SHORT_LEASE));
        self.shift(Shift::None)?;
        taken.map(drop)
    }

    /// Servers that may evict keys run out of memory. `diagnose` must have warned of this.
    fn evicted(&mut self) -> Result<(), Failure> {
        let key = "control-evicted";
        self.holds.announce(key, "C3");
        for node in &self.nodes.all {
            node.may_evict()?;
        }
        let client = connect(self.holds.url)?;
        let names_it =
            |it: &Finding| it.subject == "eviction" && it.level >= Level::Warning && it.text.contains("allkeys-lru");
        if client.diagnose().findings.iter().any(names_it) {
            self.holds.recorder.seen("a doctor that warned of eviction");
        }
        self.holds.take(&client, "sleeper", key, LEASE)?;
        for node in &self.nodes.all {
            node.press_out(key)?;
        }
        self.holds.take(&client, "successor", key, SHORT_LEASE)?;
        for node in &self.nodes.all {
            node.may_not_evict()?;
        }
        Ok(())
    }

    /// A replica that lags is promoted.
    fn promoted(&mut self) -> Result<(), Failure> {
        let key = "control-promoted";
        if self.nodes.all.iter().all(|node| node.standby.is_none()) {
            return Ok(());
        }
        self.holds.announce(key, "C3");
        let client = connect(self.holds.url)?;
        for standby in self.nodes.all.iter().filter_map(|node| node.standby.as_ref()) {
            standby.until_linked()?;
            standby.lag();
        }
        self.holds.take(&client, "sleeper", key, LEASE)?;
        self.nodes.all.iter_mut().try_for_each(Node::fail_over)?;
        self.holds.take(&client, "successor", key, SHORT_LEASE)?;
        Ok(())
    }

    fn shift(&self, shift: Shift) -> Result<(), Failure> {
        self.nodes.all.iter().try_for_each(|node| Ok(node.machine.clock.set(shift)?))
    }

    /// A hold on the minimum number of nodes.
    fn take_sparely(&mut self, key: &str) -> Result<(), Failure> {
        self.nodes.outside().for_each(|node| node.proxy.cut());
        self.holds.take(&connect(self.holds.url)?, "sleeper", key, LEASE)?;
        Ok(())
    }
}
