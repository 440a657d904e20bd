//! Faults of servers, and of their networks and clocks.

use super::{Nemesis, POLLS, SLICE, reply, slices};
use crate::Failure;
use crate::fault::Fault;
use crate::nodes::Node;
use crate::plan::ScheduledFault;
use crate::recorder::{Recorder, micros, now};
use fencelock_testkit::{Proxy, Then};
use std::time::Duration;

/// Faults of a network.
pub(crate) fn disturb(proxy: &Proxy, step: &ScheduledFault) -> Result<(), Failure> {
    match step.fault {
        Fault::Slow => proxy.delay(Duration::from_millis(30), Duration::from_millis(60)),
        Fault::Cut => proxy.cut(),
        Fault::BlackHole => proxy.black_hole(),
        Fault::Stall => proxy.hold(),
        other => return Err(format!("{} is not a fault of this topology", other.name()).into()),
    }
    std::thread::sleep(step.lasts);
    if step.fault == Fault::Slow {
        proxy.delay(Duration::ZERO, Duration::ZERO);
    } else {
        proxy.forward();
    }
    Ok(())
}

/// After every second lost reply, this happens to its connection, which is closed after the others.
pub(crate) fn lose_replies(proxy: &Proxy, recorder: &Recorder, lasts: Duration, then: Then) {
    let before = proxy.dropped_replies();
    for turn in 0..slices(lasts) {
        proxy.drop_next_reply(if turn % 2 == 0 { Then::Close } else { then });
        std::thread::sleep(SLICE);
    }
    // A pending loss takes effect at the next request, after the fault.
    if proxy.dropped_replies() > before {
        recorder.seen("a reply that was lost");
    }
}

/// Repeats requests that contain these words.
pub(crate) fn repeat(proxy: &Proxy, recorder: &Recorder, lasts: Duration, words: &str) {
    let before = proxy.repeated();
    for turn in 0..slices(lasts) * 4 {
        // Early enough to overlap with its own attempt, or late enough to follow it.
        proxy.repeat_last(words, Duration::from_millis(if turn % 2 == 0 { 1 } else { 120 }));
        std::thread::sleep(SLICE / 4);
    }
    if proxy.repeated() > before {
        recorder.seen("a request that was repeated");
    }
}

impl Nemesis {
    pub(super) fn restart(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        let quarantine = self.quarantine();
        let node = &mut self.nodes.all[step.victim];
        // No other program writes this key, so it shows whether the server has lost data.
        node.server().command(&["SET", "chaos:memory", "1"]);
        if step.fault == Fault::RestartEmpty {
            node.forget(quarantine, |node| Ok(node.machine.server.restart_empty()?))?;
        } else {
            node.machine.server.restart()?;
        }
        let kept = node.server().command(&["EXISTS", "chaos:memory"]) == reply(1);
        node.server().command(&["DEL", "chaos:memory"]);
        self.clients.recorder.seen(if kept { "data that was kept" } else { "data that was lost" });
        self.watch_quarantine(step);
        Ok(())
    }

    /// Clients reconnect immediately, and the first of them starts the quarantine.
    fn watch_quarantine(&mut self, step: &ScheduledFault) {
        if !self.clients.topology.has_quarantine() {
            return;
        }
        for _ in 0..slices(Duration::from_secs(2)) {
            if self.nodes.all[step.victim].is_in_quarantine() {
                self.clients.recorder.seen("quarantine hit");
                break;
            }
            std::thread::sleep(SLICE);
        }
        self.whole_at_us = now() + micros(self.quarantine());
    }

    pub(super) fn with_node(&self, step: &ScheduledFault) -> Result<(), Failure> {
        let node = &self.nodes.all[step.victim];
        let wait = || std::thread::sleep(step.lasts);
        match step.fault {
            Fault::FreezeServer => {
                node.server().freeze();
                wait();
                node.server().thaw();
            }
            Fault::PauseServer => {
                let millis = step.lasts.as_millis().to_string();
                node.server().command(&["CLIENT", "PA", &millis, "WRITE"]);
                wait();
                node.server().command(&["CLIENT", "UNPA"]);
            }
            Fault::Demote => self.demote(node, step.lasts),
            Fault::LoseReplies => lose_replies(&node.proxy, &self.clients.recorder, step.lasts, Then::StaySilent),
            Fault::Repeat => repeat(&node.proxy, &self.clients.recorder, step.lasts, "EVALSHA"),
            Fault::FlushScripts => self.flush(node, step.lasts),
            Fault::OutOfMemory => self.fill(node, step.lasts),
            _ => disturb(&node.proxy, step)?,
        }
        Ok(())
    }

    fn flush(&self, node: &Node, lasts: Duration) {
        node.server().command(&["CONFIG", "RESETSTAT"]);
        for _ in 0..slices(lasts) {
            node.server().command(&["SCRIPT", "FLUSH"]);
            std::thread::sleep(SLICE);
        }
        if node.machine.errors("NOSCRIPT") > 0 {
            self.clients.recorder.seen("NOSCRIPT");
        }
    }

    fn fill(&self, node: &Node, lasts: Duration) {
        node.server().command(&["CONFIG", "RESETSTAT"]);
        node.server().command(&["CONFIG", "SET", "maxmemory", "1"]);
        std::thread::sleep(lasts);
        node.server().command(&["CONFIG", "SET", "maxmemory", "0"]);
        if node.machine.errors("OOM") > 0 {
            self.clients.recorder.seen("OOM");
        }
    }

    fn demote(&self, node: &Node, lasts: Duration) {
        node.server().command(&["CONFIG", "RESETSTAT"]);
        node.make_read_only();
        std::thread::sleep(lasts);
        if node.machine.errors("READONLY") > 0 {
            self.clients.recorder.seen("READONLY");
        }
        node.server().command(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Kills a master while a lock is held that its replica does not have.
    pub(super) fn fail_over(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        let quarantine = self.quarantine();
        let node = &mut self.nodes.all[step.victim];
        let standby = node.standby.as_ref().ok_or("there is no replica")?;
        standby.until_linked()?;
        standby.lag();
        let is_unknown = |key: &String| {
            let held = node.server().command(&["GET", key]);
            held.text().is_some_and(|value| !standby.has(key, value))
        };
        if (0..POLLS).any(|_| self.clients.keys.iter().any(is_unknown)) {
            self.clients.recorder.seen("a promotion that lost a lock");
        }
        node.forget(quarantine, Node::fail_over)?;
        self.watch_quarantine(step);
        Ok(())
    }

    /// The clients must detect the change by the errors of the server.
    pub(super) fn switch_over(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        let quarantine = self.quarantine();
        let node = &mut self.nodes.all[step.victim];
        node.server().command(&["CONFIG", "RESETSTAT"]);
        node.forget(quarantine, Node::switch_over)?;
        let refused = || node.standby.as_ref().is_some_and(|standby| standby.errors("READONLY") > 0);
        for _ in 0..slices(Duration::from_secs(2)) {
            if refused() {
                self.clients.recorder.seen("a client that stayed with a replica");
                break;
            }
            std::thread::sleep(SLICE);
        }
        self.watch_quarantine(step);
        Ok(())
    }
}
