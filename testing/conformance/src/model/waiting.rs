use super::answer::{Acquire, Occupied, Refused};
use super::key::{Claim, Intent, KeyModel, Lock, Turn, Wrote, take_memory};
use super::queue::{Entry, HandOff, Heard, Name, Unread, Waiter};
use super::server::{LINE_TTL_MS, Server, VERSION};
use super::tokens::Tokens;

/// What the scripts do to the line of waiters.
impl KeyModel {
    /// Enqueues the waiter if it is not in the queue, and extends its life. A poll does not enqueue. Removes dead waiters.
    pub(super) fn wait(
        &mut self,
        server: &Server,
        claim: &Claim,
        mut wrote: Wrote,
        unread: Option<Unread>,
    ) -> Result<Acquire, Refused> {
        let me = Name::Holder(claim.holder);
        if self.line.rank(&me).is_none() && claim.intent == Intent::Poll {
            return Ok(Acquire::Gone);
        }
        let clock_ms = server.clock_us(claim.proposal) / 1000;
        self.purge(&me, clock_ms, server.cap, &mut wrote);
        let ahead = if let Some(ahead) = self.line.rank(&me) {
            ahead
        } else {
            take_memory(server, &mut wrote)?;
            self.line.append(me.clone())
        };
        take_memory(server, &mut wrote)?;
        self.lives.until_ms.insert(me.clone(), clock_ms + claim.life_ms);
        let (ttl_ms, wanted, channel) = (claim.ttl_ms, claim.wanted, claim.channel);
        let waiter = Waiter { ttl_ms, wanted, channel, value: claim.value(), version: Some(VERSION.into()) };
        self.waiters.entries.insert(me, Entry::Waiter(waiter));
        // It is enough that the first keeps the line alive: it polls as long as there is a line.
        if ahead == 0 {
            let end = Some(server.now_ms() + LINE_TTL_MS);
            (self.line.expires_ms, self.waiters.expires_ms, self.lives.expires_ms) = (end, end, end);
        }
        let now_us = (!server.time_refused).then_some(server.now_us);
        let occupied = Occupied { unread, ..self.occupied(server) };
        Ok(Acquire::Queued { ahead: ahead as u64, now_us, occupied })
    }

    fn purge(&mut self, me: &Name, now_ms: u64, cap: usize, wrote: &mut Wrote) {
        for name in self.lives.over(now_ms, cap).iter().filter(|name| *name != me) {
            *wrote = Wrote::Something;
            self.forget(name);
        }
    }

    /// Out of the line, and all that is known with it.
    pub(super) fn forget(&mut self, name: &Name) {
        if let Some(rank) = self.line.rank(name) {
            self.line.remove(rank);
        }
        self.waiters.remove(name);
        self.lives.remove(name);
    }

    /// How many wait and are alive.
    pub(super) fn living(&self, server: &Server) -> u64 {
        let waiting = self.line.members.len() as u64;
        if waiting == 0 || server.time_refused { waiting } else { self.lives.count(server.now_ms()) }
    }

    /// A free lock goes to the first waiter that is alive and whose process listens, under a short lease until it
    /// confirms; those passed over are out of the line. It ends before `me`, who is out of the line too. Who is alive and
    /// has an entry that cannot be read is not served, and keeps its position.
    pub(super) fn advance(
        &mut self,
        server: &Server,
        me: Option<&Name>,
        proposal: u64,
        hand_off_ms: u64,
        wrote: &mut Wrote,
        publish: &mut impl FnMut(HandOff) -> Heard,
    ) -> Result<(Turn, Option<Unread>), Refused> {
        let (mut kept, mut unread) = (0, None);
        for _ in 0..server.cap {
            let Some(name) = self.line.at(kept).cloned() else { return Ok((Turn::Nobody, unread)) };
            let is_alive = self.lives.until_ms.get(&name).is_some_and(|until| until * 1000 > server.clock_us(proposal));
            let waiter = self.waiters.read(&name).cloned();
            if is_alive && waiter.is_none() && me != Some(&name) {
                kept += 1;
                unread = unread.or_else(|| Some(self.waiters.unread(&name)));
                continue;
            }
            *wrote = Wrote::Something;
            self.forget(&name);
            if me == Some(&name) {
                return Ok((Turn::Mine, unread));
            }
            let Some(waiter) = waiter.filter(|_| is_alive) else { continue };
            // Before the message, which carries it. If nobody hears that, a fence is skipped, which does no harm.
            let tokens = Tokens { client_us: proposal, proposed: false, wanted: waiter.wanted };
            let (fence, count) = self.draw(server, &tokens, wrote)?;
            let lease_ms = waiter.ttl_ms.min(hand_off_ms);
            let told = waiter.channel.map(|channel| publish(HandOff { channel, to: name, fence, count, lease_ms }));
            if told != Some(Heard::ByNone) {
                self.lock = Some(Lock { value: waiter.value, expires_ms: Some(server.now_ms() + lease_ms) });
                return Ok((Turn::Given, unread));
            }
        }
        Ok(match () {
            () if kept == server.cap => (Turn::Unreadable, unread),
            () if self.line.members.len() > kept => (Turn::More, unread),
            () => (Turn::Nobody, unread),
        })
    }
}
