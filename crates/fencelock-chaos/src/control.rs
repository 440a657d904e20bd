//! Positive controls: what happens without a protection must be found, or a clean history proves nothing.
//!
//! Each has a key of its own, which no worker uses.

use crate::Failure;
use crate::history::{Line, Op, Outcome};
use crate::nodes::Nodes;
use crate::recorder::{Recorder, micros, now};
use crate::resource::{UNGUARDED, Writer, Written};
use crate::wall_clock::Shift;
use fencelock::FencingToken;
use fencelock::blocking::Client;
use std::time::Duration;

/// Long enough for a restart on a loaded machine.
const LEASE: Duration = Duration::from_secs(20);
/// Ends within the run.
const SHORT_LEASE: Duration = Duration::from_millis(400);

/// One who controls.
pub(crate) struct Control<'a> {
    pub(crate) url: &'a str,
    pub(crate) nodes: &'a mut Nodes,
    pub(crate) recorder: &'a Recorder,
    pub(crate) resource: u16,
}

/// A hold that nobody renews or gives back, like that of a process that sleeps.
struct Asleep {
    holder: String,
    fence: FencingToken,
}

impl Control<'_> {
    /// All of them. They take the servers apart, so nobody else may be there.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        self.forgotten()?;
        self.jumped()?;
        self.unguarded()
    }

    /// Every server forgets a lock that somebody holds.
    fn forgotten(&mut self) -> Result<(), Failure> {
        let key = "control-forgotten";
        self.announce(key, "C3");
        let client = Client::connect(self.url)?;
        self.take(&client, "sleeper", key, LEASE)?;
        for node in &mut self.nodes.all {
            node.server.restart_empty()?;
        }
        self.take(&Client::connect(self.url)?, "successor", key, SHORT_LEASE)?;
        Ok(())
    }

    /// The clocks of all servers jump over the end of a lease.
    fn jumped(&mut self) -> Result<(), Failure> {
        let key = "control-jumped";
        self.announce(key, "C3");
        let client = Client::connect(self.url)?;
        self.take(&client, "sleeper", key, LEASE)?;
        self.shift(Shift::Forward(2 * LEASE))?;
        let taken = self.take(&client, "successor", key, SHORT_LEASE);
        self.shift(Shift::None)?;
        taken?;
        // The time that was skipped comes again, and with it the tokens of this key: it is not used any more. Its hold
        // would last for as long.
        for node in &self.nodes.all {
            node.server.command(&["DEL", key]);
        }
        Ok(())
    }

    /// A late writer meets a resource that looks at no token, and one that does.
    fn unguarded(&mut self) -> Result<(), Failure> {
        let key = format!("{UNGUARDED}-control");
        self.announce(&key, "C5");
        self.write_late(&key)?;
        let refused = self.write_late("guarded-control")?;
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
        self.nodes.all.iter().try_for_each(|node| node.clock.set(shift))
    }

    fn take(&self, client: &Client, name: &str, key: &str, ttl: Duration) -> Result<Asleep, Failure> {
        let invoke_us = now();
        let guard = client.lock(key).ttl(ttl).wait(3 * LEASE).acquire()?;
        let at = now();
        let until_us = at.saturating_add(micros(guard.remaining()));
        let fence = guard.fencing_token();
        // From here on nobody renews it, and nobody gives it back.
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
