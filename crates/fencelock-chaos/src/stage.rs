//! Doing a fault, and undoing it.

use crate::Failure;
use crate::crew::Crew;
use crate::fault::Fault;
use crate::history::{Line, Op};
use crate::nodes::{Node, Nodes};
use crate::plan::Step;
use crate::recorder::{Recorder, now};
use crate::wall_clock::Shift;
use fencelock_conformance::Then;
use std::sync::Arc;
use std::time::Duration;

/// How often a victim is looked at until it is in the right moment.
const LOOKS: u32 = 2000;
/// How often a client is stopped again until it has lost a lock by that.
const REPEATS: u32 = 5;
/// Between two of many small faults.
const SLICE: Duration = Duration::from_millis(100);

/// Everything that can be broken.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) nodes: Nodes,
    pub(crate) crew: Crew,
    pub(crate) keys: Vec<String>,
    pub(crate) ttl: Duration,
    pub(crate) recorder: Arc<Recorder>,
}

impl Stage {
    /// By how much clocks are set wrong: over the end of every lease.
    pub(crate) fn jump(&self) -> Duration {
        self.ttl * 3 / 2
    }

    /// Breaks something for a while. When it returns, all is whole.
    pub(crate) fn play(&mut self, step: &Step) -> Result<(), Failure> {
        let began = now();
        let outcome = match step.fault {
            Fault::FreezeClient | Fault::KillClient => self.with_client(step),
            Fault::ClockForward => self.with_clock(step, Shift::Forward(self.jump())),
            Fault::ClockBack => self.with_clock(step, Shift::Back(self.jump())),
            Fault::ForeignDelete => {
                self.delete();
                Ok(())
            }
            Fault::RestartEmpty | Fault::RestartFromDisk => self.restart(step),
            _ => self.with_node(step),
        };
        let excuses = step.fault.excuses(self.nodes.all.len());
        let mut line = Line::new(&self.victim(step), "", Op::Fault, began, now()).what(step.fault.name());
        line.excuses = excuses.iter().map(|check| (*check).to_owned()).collect();
        self.recorder.note(&line);
        outcome
    }

    fn victim(&self, step: &Step) -> String {
        match step.fault {
            Fault::FreezeClient => format!("process {}", self.crew.pid(step.victim)),
            Fault::KillClient => format!("worker {}", step.victim),
            Fault::ForeignDelete => "all nodes".to_owned(),
            _ => format!("node {}", step.victim),
        }
    }

    fn with_client(&mut self, step: &Step) -> Result<(), Failure> {
        let holds = self.until_it_holds(step.victim)?;
        if step.fault == Fault::KillClient {
            self.crew.replace(step.victim)?;
            if holds {
                self.recorder.seen("a holder that was killed");
            }
            return Ok(());
        }
        std::thread::sleep(self.ttl + step.lasts);
        self.crew.thaw(step.victim)?;
        // What it had may have been a hold that it had left to its lease, and then it loses nothing.
        for _ in 0..REPEATS {
            std::thread::sleep(SLICE);
            // Once is enough for a run, and reading all histories takes long in a long one.
            if self.recorder.knows("lost by expiry") || self.crew.has_seen("lost by expiry")? {
                self.recorder.seen("lost by expiry");
                break;
            }
            self.until_it_holds(step.victim)?;
            std::thread::sleep(self.ttl + step.lasts);
            self.crew.thaw(step.victim)?;
        }
        Ok(())
    }

    /// Stops the process at a moment when it has a lock; says whether there was one.
    fn until_it_holds(&self, worker: usize) -> Result<bool, Failure> {
        let mark = format!(":{} ", self.crew.pid(worker));
        for _ in 0..LOOKS {
            self.crew.freeze(worker)?;
            let is_its = |(value, left): &(String, i64)| value.contains(&mark) && *left > 100;
            if self.keys.iter().any(|key| self.nodes.look(key).iter().any(is_its)) {
                return Ok(true);
            }
            self.crew.thaw(worker)?;
            std::thread::sleep(Duration::from_millis(3));
        }
        self.crew.freeze(worker)?;
        Ok(false)
    }

    fn with_clock(&self, step: &Step, shift: Shift) -> Result<(), Failure> {
        let clock = &self.nodes.all[step.victim].clock;
        clock.set(shift)?;
        std::thread::sleep(step.lasts);
        clock.set(Shift::None)
    }

    fn delete(&self) {
        for _ in 0..LOOKS {
            let held = self.keys.iter().find(|key| self.nodes.look(key).len() >= self.nodes.quorum());
            if let Some(key) = held {
                let gone = self.nodes.all.iter().filter(|node| node.server.command(&["DEL", key]) == reply(1)).count();
                if gone >= self.nodes.quorum() {
                    self.recorder.seen("a held key that was deleted");
                    break;
                }
            }
        }
    }

    fn restart(&mut self, step: &Step) -> Result<(), Failure> {
        let node = &mut self.nodes.all[step.victim];
        let empty = step.fault == Fault::RestartEmpty;
        // Written by nobody else, so that it tells about the memory and not about the clients.
        node.server.command(&["SET", "chaos:memory", "1"]);
        if empty {
            node.server.restart_empty()?;
        } else {
            node.server.restart()?;
        }
        let kept = node.server.command(&["EXISTS", "chaos:memory"]) == reply(1);
        node.server.command(&["DEL", "chaos:memory"]);
        self.recorder.seen(if kept { "a memory that was kept" } else { "a memory that was lost" });
        Ok(())
    }

    fn with_node(&mut self, step: &Step) -> Result<(), Failure> {
        let node = &self.nodes.all[step.victim];
        let wait = || std::thread::sleep(step.lasts);
        match step.fault {
            Fault::FreezeServer => {
                node.server.freeze();
                wait();
                node.server.thaw();
            }
            Fault::Slow => {
                node.proxy.delay(Duration::from_millis(30), Duration::from_millis(60));
                wait();
                node.proxy.delay(Duration::ZERO, Duration::ZERO);
            }
            Fault::Cut => node.proxy.cut(),
            Fault::BlackHole => node.proxy.black_hole(),
            Fault::Stall => node.proxy.hold(),
            Fault::SwallowReplies => self.swallow(node, step.lasts),
            Fault::FlushScripts => self.flush(node, step.lasts),
            Fault::OutOfMemory => self.fill(node, step.lasts),
            other => return Err(format!("{} is not done to a node", other.name()).into()),
        }
        if matches!(step.fault, Fault::Cut | Fault::BlackHole | Fault::Stall) {
            wait();
            node.proxy.forward();
        }
        Ok(())
    }

    fn swallow(&self, node: &Node, lasts: Duration) {
        let before = node.proxy.swallowed();
        for turn in 0..slices(lasts) {
            node.proxy.swallow_next_reply(if turn % 2 == 0 { Then::Close } else { Then::StaySilent });
            std::thread::sleep(SLICE);
        }
        // What is armed and did not spring yet springs at the next request, in peace.
        if node.proxy.swallowed() > before {
            self.recorder.seen("a reply that was swallowed");
        }
    }

    fn flush(&self, node: &Node, lasts: Duration) {
        node.server.command(&["CONFIG", "RESETSTAT"]);
        for _ in 0..slices(lasts) {
            node.server.command(&["SCRIPT", "FLUSH"]);
            std::thread::sleep(SLICE);
        }
        if node.errors("NOSCRIPT") > 0 {
            self.recorder.seen("NOSCRIPT");
        }
    }

    fn fill(&self, node: &Node, lasts: Duration) {
        node.server.command(&["CONFIG", "RESETSTAT"]);
        node.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        std::thread::sleep(lasts);
        node.server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        if node.errors("OOM") > 0 {
            self.recorder.seen("OOM");
        }
    }
}

fn slices(lasts: Duration) -> u128 {
    lasts.as_millis().div_ceil(SLICE.as_millis())
}

const fn reply(number: i64) -> fencelock_conformance::Reply {
    fencelock_conformance::Reply::Int(number)
}
