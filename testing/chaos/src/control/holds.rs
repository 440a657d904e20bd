//! The holds of the controls, and what they write.

use crate::Failure;
use crate::connect::connect;
use crate::history::{HistoryLine, Op, Outcome};
use crate::recorder::{Recorder, micros, now};
use crate::resource::{UNGUARDED, Writer, Written};
use fencelock::FencingToken;
use fencelock::blocking::{Client, OncePerWindow, OnceStart};
use std::time::Duration;

/// Long enough for a restart on a busy machine.
pub(crate) const LEASE: Duration = Duration::from_secs(20);
/// A lease that ends within the run.
pub(super) const SHORT_LEASE: Duration = Duration::from_millis(400);

/// It does not end within the run, except once in a year.
const LONG_WINDOW: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The clients of the controls.
pub(crate) struct ControlHolds<'a> {
    pub(crate) url: &'a str,
    pub(crate) recorder: &'a Recorder,
    pub(crate) resource: u16,
}

/// A hold that is neither renewed nor released, like that of a paused process.
pub(super) struct Suspended {
    holder: String,
    fence: FencingToken,
}

impl ControlHolds<'_> {
    /// The checker must flag this key by this check.
    pub(super) fn announce(&self, key: &str, check: &str) {
        let at = now();
        self.recorder.note(&HistoryLine::new("control", key, Op::Control, at, at).what(check));
    }

    /// A held lock is ended by another program, or by a clock.
    pub(crate) fn ended(&self, key: &str, end: impl FnOnce(&str) -> Result<(), Failure>) -> Result<(), Failure> {
        self.announce(key, "C3");
        self.take(&connect(self.url)?, "sleeper", key, LEASE)?;
        end(key)?;
        self.take(&connect(self.url)?, "successor", key, SHORT_LEASE).map(drop)
    }

    /// The controls of all topologies. They change no server.
    pub(crate) fn common(&self) -> Result<(), Failure> {
        self.unguarded()?;
        self.cleared()?;
        self.observed()
    }

    /// A late writer uses a resource that checks no token, and one that does.
    fn unguarded(&self) -> Result<(), Failure> {
        self.announce(UNGUARDED, "C5");
        self.write_late(UNGUARDED)?;
        let refused = self.write_late("control-guarded")?;
        if matches!(refused, Written::Refused(_)) {
            self.recorder.seen("a late write was refused");
        }
        Ok(())
    }

    /// The record of work is removed, so it succeeds again in the same window, or starts again after it has failed.
    fn cleared(&self) -> Result<(), Failure> {
        let client = connect(self.url)?;
        let once = |key| client.once(key, LONG_WINDOW).wait(3 * LEASE);
        self.run_twice("control-cleared", Op::Succeed, &once("control-cleared"))?;
        self.run_twice("control-restarted", Op::Start, &once("control-restarted").even_if_failed())
    }

    fn run_twice(&self, key: &str, op: Op, once: &OncePerWindow) -> Result<(), Failure> {
        self.announce(key, "C12");
        for name in ["first", "second"] {
            let invoke_us = now();
            let OnceStart::Started(run) = once.clone().begin()? else {
                return Err("the record of work was not removed".into());
            };
            let mut line = HistoryLine::new(name, key, op, invoke_us, now());
            line.fence = Some(run.fencing_token().get());
            if op == Op::Succeed {
                run.succeed()?;
                line.return_us = now();
            } else {
                run.give_back();
            }
            self.recorder.note(&line);
            let done = once.done()?.ok_or("work that was recorded is not done")?;
            self.recorder.note_done(name, invoke_us, &done);
            once.clear(&done)?;
        }
        Ok(())
    }

    fn write_late(&self, key: &str) -> Result<Written, Failure> {
        let client = connect(self.url)?;
        let sleeper = self.take(&client, "sleeper", key, SHORT_LEASE)?;
        let successor = self.take(&client, "successor", key, SHORT_LEASE)?;
        self.write("successor", key, &successor)?;
        self.write("sleeper", key, &sleeper)
    }

    /// Takes a lock that is neither renewed nor released.
    pub(super) fn take(&self, client: &Client, name: &str, key: &str, ttl: Duration) -> Result<Suspended, Failure> {
        let invoke_us = now();
        let ttl = client.capabilities().shortest_ttl.map_or(ttl, |shortest| ttl.max(shortest));
        let guard = client.lock(key).ttl(ttl).wait(3 * LEASE).acquire()?;
        let at = now();
        let until_us = at.saturating_add(micros(guard.remaining()));
        let fence = guard.fencing_token();
        // From here on, the hold is neither renewed nor released.
        let holder = guard.into_holder().to_string();
        let mut line = HistoryLine::new(name, key, Op::Acquire, invoke_us, at).hold(&holder, Some(fence.get()));
        line.valid_until_us = Some(until_us);
        self.recorder.note(&line);
        Ok(Suspended { holder, fence })
    }

    fn write(&self, name: &str, key: &str, hold: &Suspended) -> Result<Written, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let invoke_us = now();
        let written = runtime.block_on(async { Writer::connect(self.resource).await?.write(key, hold.fence).await })?;
        let mut line =
            HistoryLine::new(name, key, Op::Write, invoke_us, now()).hold(&hold.holder, Some(hold.fence.get()));
        match written {
            Written::Taken(seq) => line.seq = Some(seq),
            Written::Refused(_) => line.result = Outcome::Fail,
        }
        self.recorder.note(&line);
        Ok(written)
    }
}
