use super::answer::{Acquire, Occupied, ScriptError};
use super::key::{Advance, Claim, Intent, KeyModel, Lock, Wrote};
use super::marker::Gate;
use super::queue::{Delivery, HandOff, Name, Unread};
use super::server::Server;
use super::shared::NewHold;
use super::waiting::Offer;
use fencelock_core::Mode;

/// `acquire.lua`.
impl KeyModel {
    /// Acquires the lock, enters the queue, or reads the state of either.
    ///
    /// A repeated claim finds itself as the holder, and changes nothing: only a poll extends the lease. Room for a hold is
    /// offered to the queue first; the claim gets it if no live waiter is in front.
    pub fn acquire(
        &mut self,
        server: &Server,
        claim: &Claim,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Acquire, ScriptError> {
        self.expire(server);
        if let Some(refusal) = gate.refusal()? {
            return Ok(Acquire::Refused(refusal.clone()));
        }
        let claim = &self.by_entry(claim);
        let mut wrote = Wrote::Nothing;
        if self.lock_of(claim.holder).is_some() {
            return self.repeated(server, claim, &mut wrote);
        }
        if server.time_refused && claim.mode != Mode::Exclusive {
            return Ok(Acquire::NoClock);
        }
        // Without the time, an exclusive claim sees a shared lock as the value of another program.
        let is_shared = self.shared().is_some() && !server.time_refused;
        if is_shared {
            if self.rest(server, claim.holder).is_some() {
                return self.repeated(server, claim, &mut wrote);
            }
            if self.bury(server, &mut wrote) {
                return Ok(Acquire::More(None));
            }
        }
        let mut unread = None;
        if self.lock.is_none() || is_shared {
            let answer;
            (answer, unread) = self.enter(server, claim, &mut wrote, publish)?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        if claim.mode != Mode::Exclusive
            && claim.intent != Intent::Poll
            && self.queue.rank(&Name::Holder(claim.holder)).is_none()
            && let Some(other) = self.last_mode(server).filter(|other| claim.mode.conflicts(*other))
        {
            return Ok(Acquire::Conflict(other, unread));
        }
        if claim.intent == Intent::Try {
            return Ok(Acquire::Busy(Occupied { unread, ..self.occupied(server) }));
        }
        self.wait(server, claim, wrote, unread)
    }

    /// A claim of a holder.
    fn repeated(&mut self, server: &Server, claim: &Claim, wrote: &mut Wrote) -> Result<Acquire, ScriptError> {
        if claim.intent != Intent::Poll {
            return Ok(Acquire::Yours);
        }
        let fence = if let Some(lock) = self.lock_of(claim.holder) {
            *wrote = lock.prolong(server, claim.ttl_ms);
            match &self.fence {
                Some(fence) => fence.token,
                None => self.draw(server, &claim.tokens(1), wrote)?.0,
            }
        } else {
            if self.rest(server, claim.holder).is_some_and(|rest| rest < claim.ttl_ms) {
                *wrote = Wrote::Something;
                self.prolong_hold(server, claim.holder, claim.ttl_ms);
            }
            self.token_of(server, claim, wrote)?
        };
        Ok(Acquire::Granted { fence, count: 1, unread: None })
    }

    /// Serves the queue, then the claim. `None` if it was not granted.
    fn enter(
        &mut self,
        server: &Server,
        claim: &Claim,
        wrote: &mut Wrote,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<(Option<Acquire>, Option<Unread>), ScriptError> {
        let me = Name::Holder(claim.holder);
        let mut offer = Offer::by(server, claim);
        let (turn, mut unread) = self.advance(server, Some((&me, claim.mode)), &mut offer, wrote, publish)?;
        if let Some(present) = self.shared().filter(|present| claim.mode.conflicts(*present)) {
            if self.queue.rank(&me).is_some() {
                self.forget(&me);
                *wrote = Wrote::Something;
            }
            if turn == Advance::Blocked {
                self.advance(server, None, &mut offer, wrote, publish)?;
            }
            return Ok((Some(Acquire::Conflict(present, unread.clone())), unread));
        }
        match turn {
            Advance::More => return Ok((Some(Acquire::More(unread.clone())), unread)),
            Advance::Unreadable => return Ok((Some(Acquire::Unreadable(unread.clone())), unread)),
            Advance::HandedOver | Advance::Blocked => return Ok((None, unread)),
            Advance::Mine | Advance::NoWaiter => {}
        }
        if !self.fits(claim.mode) {
            return Ok((None, unread));
        }
        if turn != Advance::Mine && claim.intent == Intent::Poll {
            return Ok((Some(Acquire::Gone(unread.clone())), unread));
        }
        let (fence, count) = self.draw(server, &claim.tokens(claim.wanted), wrote)?;
        if claim.mode == Mode::Exclusive {
            self.lock = Some(Lock { value: claim.value(), expires_ms: Some(server.now_ms() + claim.ttl_ms) });
        } else {
            let owner = claim.owner.clone().unwrap_or_default();
            let (holder, mode, token, lease_ms) = (claim.holder, claim.mode, fence, claim.ttl_ms);
            self.add_hold(server, NewHold { holder, owner, mode, token, lease_ms });
            if turn == Advance::Mine {
                let (_, found) = self.advance(server, None, &mut offer, wrote, publish)?;
                unread = unread.or(found);
            }
        }
        Ok((Some(Acquire::Granted { fence, count, unread: unread.clone() }), unread))
    }

    /// What the last waiter requests, if it is alive and readable.
    fn last_mode(&self, server: &Server) -> Option<Mode> {
        let (_, name) = self.queue.members.last()?;
        let until_ms = self.deadlines.until_ms.get(name)?;
        let waiter = self.waiters.read(name).filter(|_| until_ms * 1000 > server.now_us)?;
        Some(waiter.mode())
    }
}
