//! Injects faults, and repairs them.

use super::client::{Memory as ClientMemory, Timer};
use super::coverage::Coverage;
use super::node::Memory;
use super::world::{Event, World};
use crate::history::{HistoryLine, Op};
use crate::rng_ext::RngExt as _;

impl World<'_> {
    /// Draws once for each kind of fault.
    pub(super) fn break_something(&mut self) {
        if self.now >= self.scenario.calm_us {
            return;
        }
        if self.scenario.pauses {
            self.maybe_pause();
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.scenario.crashes && self.rng.chance(30_000) && self.nodes[node].up {
            self.lose(node);
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.scenario.cuts && self.rng.chance(50_000) {
            let until = self.now + 50_000 + self.rng.upto(850_000);
            self.nodes[node].cut_until = until.min(self.scenario.calm_us);
            self.covered.saw(Coverage::Cut);
            self.trace(|| format!("n{node} is cut off until {until}"));
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.scenario.jump_us > 0 && self.rng.chance(40_000) {
            self.jump(node);
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.rng.chance(200_000) {
            self.nodes[node].save();
        }
        let pause = 20_000 + self.rng.upto(200_000);
        self.queue.put(self.now + pause, Event::Breakage);
    }

    fn maybe_pause(&mut self) {
        let client = self.rng.usize(..self.clients.len());
        if self.rng.chance(350_000) {
            let until = self.now + self.rng.upto(500_000);
            self.clients[client].paused_until = until;
            self.trace(|| format!("c{client} sleeps until {until}"));
        }
        let client = self.rng.usize(..self.clients.len());
        if self.rng.chance(30_000) {
            self.kill(client);
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.rng.chance(60_000) {
            let until = self.now + self.rng.upto(500_000);
            self.nodes[node].paused_until = until;
            self.trace(|| format!("n{node} stands still until {until}"));
        }
    }

    /// The client crashes without cleanup and restarts with empty state.
    fn kill(&mut self, client: usize) {
        self.trace(|| format!("c{client} dies"));
        self.covered.saw(Coverage::ClientDied);
        let dead = &mut self.clients[client];
        dead.life += 1;
        dead.memory = ClientMemory::new(self.nodes.len());
        let pause = 1000 + self.rng.upto(300_000);
        self.after(pause, client, Timer::Start);
    }

    fn lose(&mut self, node: usize) {
        let (memory, coverage) = match self.rng.usize(..10) {
            0..2 => (Memory::All, Coverage::Kept),
            2..5 => (Memory::Older, Coverage::FellBack),
            5..9 => (Memory::Nothing, Coverage::Forgot),
            _ => {
                self.trace(|| format!("n{node} is flushed"));
                self.covered.saw(Coverage::Forgot);
                self.nodes[node].flush();
                return;
            }
        };
        self.trace(|| format!("n{node} crashes"));
        self.covered.saw(coverage);
        self.nodes[node].crash();
        let down = 5000 + self.rng.upto(400_000);
        self.queue.put(self.now + down, Event::Restart { node, memory });
    }

    pub(super) fn restart(&mut self, node: usize, memory: Memory) {
        self.trace(|| format!("n{node} is back, with memory of: {memory:?}"));
        self.nodes[node].restart(memory);
    }

    /// A node whose clock jumps ahead ends leases early, so two clients may hold; tokens must still be ordered.
    fn jump(&mut self, node: usize) {
        let by_us = self.rng.around(self.scenario.jump_us);
        // Steps in both directions, within bounds: with data loss, clocks may be off by at most 1 s.
        let jumped = &mut self.nodes[node].jumped_us;
        let by_us = if (*jumped + by_us).unsigned_abs() > self.scenario.jump_us { -*jumped } else { by_us };
        *jumped += by_us;
        self.nodes[node].clock.jump(by_us);
        self.covered.saw(Coverage::Jump);
        self.trace(|| format!("the clock of n{node} is set by {by_us} us"));
        let mut line =
            HistoryLine::new("", "", Op::Fault, self.now, self.now).what(format!("clock of n{node} by {by_us} us"));
        if by_us > 0 {
            line.excuses = ["C3", "C4", "C6"].map(str::to_owned).to_vec();
        }
        self.lines.push(line);
    }

    /// Records a heal event once all faults are repaired.
    pub(super) fn heal(&mut self) {
        let now = self.now;
        let awake = self.clients.iter().all(|client| client.paused_until <= now);
        // Queries all nodes, without short-circuiting: the query makes a node detect that it may have lost data.
        let whole: Vec<bool> = self.nodes.iter_mut().map(|node| node.is_whole(now)).collect();
        if !awake || whole.contains(&false) {
            self.queue.put(now + 10_000, Event::Heal);
            return;
        }
        self.trace(|| "everything is whole".to_owned());
        let mut line = HistoryLine::new("", "", Op::Heal, now, now);
        // The bound covers a lock acquired just before, an orphan after it, and a clock that is set back during one of
        // them, from the largest positive to the largest negative offset.
        line.bound_us = Some(2 * self.scenario.ttl.as_millis() * 1000 + 1_000_000 + 2 * self.scenario.jump_us);
        self.lines.push(line);
    }
}
