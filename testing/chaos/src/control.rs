//! Positive controls: the checker must flag a run without a protection, or a clean history proves nothing.
//!
//! Each control has its own key, which no worker uses.

use crate::Failure;
use crate::history::{Line, Op, Outcome};
use crate::nodes::{Node, Nodes};
use crate::recorder::{Recorder, micros, now};
use crate::resource::{UNGUARDED, Writer, Written};
use fencelock::blocking::Client;
use fencelock::{FencingToken, Finding, Level};
use fencelock_testkit::Shift;
use std::time::Duration;

/// Long enough for a restart on a busy machine.
const LEASE: Duration = Duration::from_secs(20);
/// A lease that ends within the run.
const SHORT_LEASE: Duration = Duration::from_millis(400);
/// Half of it is long enough to acquire the lock while its previous holder assumes the whole lease.
const SKEWED_LEASE: Duration = Duration::from_secs(3);
/// By how many millionths a clock runs too fast, beyond the assumed drift.
const SKEW: i64 = 500_000;

/// The keys of all controls.
pub(crate) const KEYS: [&str; 7] = [
    "control-forgotten",
    "control-jumped",
    "control-skewed",
    "control-evicted",
    "control-promoted",
    "control-unguarded",
    "control-guarded",
];

/// The state of the controls.
pub(crate) struct Control<'a> {
    pub(crate) url: &'a str,
    pub(crate) nodes: &'a mut Nodes,
    pub(crate) recorder: &'a Recorder,
    pub(crate) resource: u16,
}

/// A hold that is neither renewed nor released, like that of a paused process.
struct Asleep {
    holder: String,
    fence: FencingToken,
}

impl Control<'_> {
    /// Runs all controls. They modify the servers, so no other client may use them.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        self.forgotten()?;
        self.jumped()?;
        self.skewed()?;
        self.evicted()?;
        self.promoted()?;
        self.unguarded()
    }

    /// The minimum number of servers that two majorities share lose a held lock.
    fn forgotten(&mut self) -> Result<(), Failure> {
        let key = "control-forgotten";
        self.announce(key, "C3");
        self.take_sparely(key)?;
        for node in self.nodes.in_common() {
            node.machine.server.restart_empty()?;
        }
        self.nodes.outside().for_each(|node| node.proxy.forward());
        self.take(&Client::connect(self.url)?, "successor", key, SHORT_LEASE)?;
        Ok(())
    }

    /// The same number of clocks jumps past the end of a lease.
    fn jumped(&mut self) -> Result<(), Failure> {
        let key = "control-jumped";
        self.announce(key, "C3");
        self.take_sparely(key)?;
        for node in self.nodes.in_common() {
            node.machine.clock.set(Shift::Forward(2 * LEASE))?;
        }
        self.nodes.outside().for_each(|node| node.proxy.forward());
        let taken = Client::connect(self.url).map_err(Failure::from);
        let taken = taken.and_then(|client| self.take(&client, "successor", key, SHORT_LEASE));
        self.shift(Shift::None)?;
        taken?;
        // The skipped time comes again, and with it the tokens of this key, so the key is not used any more. Its hold
        // would last as long.
        for node in &self.nodes.all {
            node.server().command(&["DEL", key]);
        }
        Ok(())
    }

    /// The clocks of all servers run faster than the assumed drift, and a lease is held to its end.
    fn skewed(&mut self) -> Result<(), Failure> {
        let key = "control-skewed";
        self.announce(key, "C3");
        let client = Client::connect(self.url)?;
        self.shift(Shift::Rate(SKEW))?;
        let taken = self.take(&client, "sleeper", key, SKEWED_LEASE);
        let taken = taken.and_then(|_| self.take(&client, "successor", key, SHORT_LEASE));
        self.shift(Shift::None)?;
        taken.map(drop)
    }

    /// Servers that may evict keys run out of memory. The doctor warns before.
    fn evicted(&mut self) -> Result<(), Failure> {
        let key = "control-evicted";
        self.announce(key, "C3");
        for node in &self.nodes.all {
            node.may_evict()?;
        }
        let client = Client::connect(self.url)?;
        let names_it =
            |it: &Finding| it.subject == "eviction" && it.level >= Level::Warning && it.text.contains("allkeys-lru");
        if client.diagnose().iter().any(names_it) {
            self.recorder.seen("a doctor that warned of eviction");
        }
        self.take(&client, "sleeper", key, LEASE)?;
        for node in &self.nodes.all {
            node.press_out(key)?;
        }
        self.take(&client, "successor", key, SHORT_LEASE)?;
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
        self.announce(key, "C3");
        let client = Client::connect(self.url)?;
        for standby in self.nodes.all.iter().filter_map(|node| node.standby.as_ref()) {
            standby.until_linked()?;
            standby.lag();
        }
        self.take(&client, "sleeper", key, LEASE)?;
        self.nodes.all.iter_mut().try_for_each(Node::fail_over)?;
        self.take(&client, "successor", key, SHORT_LEASE)?;
        Ok(())
    }

    /// A late writer uses a resource that checks no token, and one that does.
    fn unguarded(&mut self) -> Result<(), Failure> {
        self.announce(UNGUARDED, "C5");
        self.write_late(UNGUARDED)?;
        let refused = self.write_late("control-guarded")?;
        if matches!(refused, Written::Refused(_)) {
            self.recorder.seen("a late write was refused");
        }
        Ok(())
    }

    fn write_late(&mut self, key: &str) -> Result<Written, Failure> {
        let client = Client::connect(self.url)?;
        let sleeper = self.take(&client, "sleeper", key, SHORT_LEASE)?;
        let successor = self.take(&client, "successor", key, SHORT_LEASE)?;
        self.write("successor", key, &successor)?;
        self.write("sleeper", key, &sleeper)
    }

    fn announce(&self, key: &str, check: &str) {
        let at = now();
        self.recorder.note(&Line::new("control", key, Op::Control, at, at).what(check));
    }

    fn shift(&self, shift: Shift) -> Result<(), Failure> {
        self.nodes.all.iter().try_for_each(|node| Ok(node.machine.clock.set(shift)?))
    }

    /// A hold on the smallest possible number of nodes.
    fn take_sparely(&mut self, key: &str) -> Result<(), Failure> {
        self.nodes.outside().for_each(|node| node.proxy.cut());
        self.take(&Client::connect(self.url)?, "sleeper", key, LEASE)?;
        Ok(())
    }

    fn take(&self, client: &Client, name: &str, key: &str, ttl: Duration) -> Result<Asleep, Failure> {
        let invoke_us = now();
        let guard = client.lock(key).ttl(ttl).wait(3 * LEASE).acquire()?;
        let at = now();
        let until_us = at.saturating_add(micros(guard.remaining()));
        let fence = guard.fencing_token();
        // From here on, the hold is neither renewed nor released.
        let holder = guard.into_holder().to_string();
        let mut line = Line::new(name, key, Op::Acquire, invoke_us, at).hold(&holder, Some(fence.get()));
        line.valid_until_us = Some(until_us);
        self.recorder.note(&line);
        Ok(Asleep { holder, fence })
    }

    fn write(&self, name: &str, key: &str, hold: &Asleep) -> Result<Written, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let invoke_us = now();
        let written = runtime.block_on(async { Writer::connect(self.resource).await?.write(key, hold.fence).await })?;
        let mut line = Line::new(name, key, Op::Write, invoke_us, now()).hold(&hold.holder, Some(hold.fence.get()));
        match written {
            Written::Taken(seq) => line.seq = Some(seq),
            Written::Refused(_) => line.result = Outcome::Fail,
        }
        self.recorder.note(&line);
        Ok(written)
    }
}
