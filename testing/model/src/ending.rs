use super::answer::{Downgrade, Evict, QueueScan, Release, ScriptError};
use super::key::{Claim, HoldKind, KeyModel, Wrote};
use super::marker::Gate;
use super::queue::{Delivery, HandOff, Name};
use super::server::Server;
use super::shared::NewHold;
use super::value::Value;
use super::waiting::Offer;
use fencelock_core::Mode;

/// The scripts that end a hold, or the exclusive one.
impl KeyModel {
    /// `release.lua`: releases the hold, or leaves the queue. The queue is then served, if the server may grant.
    pub fn release(
        &mut self,
        server: &Server,
        holder: u128,
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Release, ScriptError> {
        self.expire(server);
        let (mut was_held, mut more) = (self.lock_of(holder).is_some(), false);
        let is_shared = self.shared().is_some() && !server.time_refused;
        if was_held {
            self.lock = None;
        } else if is_shared {
            was_held = self.rest(server, holder).is_some();
            if was_held {
                self.remove_holds(&[holder]);
            }
            more = self.bury(server, &mut Wrote::Something);
        } else if self.shared().is_some() && self.holds.ends_ms.contains_key(&holder) {
            return Err(ScriptError::Time);
        }
        let me = Name::Holder(holder);
        if !was_held && self.queue.rank(&me).is_some() {
            self.forget(&me);
        }
        if let Some(lock) = self.lock.as_ref().filter(|_| !is_shared) {
            return Ok(Release::Taken(lock.value.clone()));
        }
        let others = if was_held { None } else { self.listed(server) };
        // If no client waits, it does not matter whether the server may grant.
        let mut left = if self.queue.members.is_empty() {
            QueueScan::SKIPPED
        } else {
            self.serve(server, proposal, hand_off_ms, gate, publish)?
        };
        left.more |= more;
        Ok(match others {
            _ if was_held => Release::Released(left),
            Some(others) => Release::Shared(others, left),
            None => Release::Absent(left),
        })
    }

    /// Serves the queue, if the server may grant.
    fn serve(
        &mut self,
        server: &Server,
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<QueueScan, ScriptError> {
        if gate.refusal()?.is_some() {
            return Ok(QueueScan::SKIPPED);
        }
        let mut offer = Offer::new(server, proposal, hand_off_ms);
        Ok(self.advance(server, None, &mut offer, &mut Wrote::Something, publish)?.into())
    }

    /// `evict.lua`: ends a hold, if it is still the hold that was inspected and of the same kind.
    pub fn evict(
        &mut self,
        server: &Server,
        (seen, kind): (&Value, HoldKind),
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Evict, ScriptError> {
        self.expire(server);
        let Some(lock) = self.lock.as_ref().filter(|lock| lock.value == *seen) else { return Ok(Evict::AnotherByNow) };
        let is_shared = self.shared().is_some();
        let is_string = seen.kind().is_empty();
        let is_so = match kind {
            HoldKind::Ours => self.fence.is_some(),
            HoldKind::Foreign => lock.expires_ms.is_some(),
            HoldKind::Endless => lock.expires_ms.is_none(),
            HoldKind::Shared => is_shared,
        };
        if !is_string || !is_so || seen.is_later() || (is_shared && kind != HoldKind::Shared) {
            return Ok(Evict::AnotherByNow);
        }
        if is_shared {
            self.forget_holds();
        }
        self.lock = None;
        self.serve(server, proposal, hand_off_ms, gate, publish).map(Evict::Evicted)
    }

    /// `evict.lua`: ends some of several holds, those that still have these tokens.
    pub fn evict_holds(
        &mut self,
        server: &Server,
        seen: &[(u128, u64)],
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Evict, ScriptError> {
        self.expire(server);
        let is_same = |(id, token): &&(u128, u64)| self.held.entries.get(id).is_some_and(|entry| entry.token == *token);
        let found: Vec<_> = seen.iter().filter(is_same).map(|(id, _)| *id).collect();
        if self.shared().is_none() || found.is_empty() {
            return Ok(Evict::AnotherByNow);
        }
        if server.time_refused {
            return Err(ScriptError::Time);
        }
        self.remove_holds(&found);
        self.bury(server, &mut Wrote::Something);
        self.serve(server, proposal, hand_off_ms, gate, publish).map(Evict::Evicted)
    }

    /// `downgrade.lua`: an exclusive hold becomes the first hold of a shared lock, with a token of its own.
    pub fn downgrade(
        &mut self,
        server: &Server,
        claim: &Claim,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Downgrade, ScriptError> {
        self.expire(server);
        if let Some(refusal) = gate.refusal()? {
            return Ok(Downgrade::Refused(refusal.clone()));
        }
        let Some(lock) = &self.lock else { return Ok(Downgrade::Absent) };
        let (value, left_ms) = (lock.value.clone(), lock.ttl_ms(server).unwrap_or(0));
        let present = self.shared();
        if present.is_none() && value.holder() != Some(claim.holder) {
            return Ok(Downgrade::Taken(value));
        }
        if server.time_refused {
            return Ok(Downgrade::NoClock);
        }
        let mut wrote = Wrote::Nothing;
        let fence = if let Some(present) = present {
            let Some(rest) = self.rest(server, claim.holder).filter(|_| present == Mode::Shared) else {
                return Ok(self.listed(server).map_or(Downgrade::Absent, Downgrade::Shared));
            };
            if rest < claim.ttl_ms {
                wrote = Wrote::Something;
                self.prolong_hold(server, claim.holder, claim.ttl_ms);
            }
            let claim = Claim { owner: None, mode: Mode::Shared, ..claim.clone() };
            self.token_of(server, &claim, &mut wrote)?
        } else {
            let (token, _) = self.draw(server, &claim.tokens(1), &mut wrote)?;
            let Value::Ours { holder, owner } = value else { unreachable!("it was compared") };
            self.lock = None;
            let owner = owner.unwrap_or_default();
            let (mode, lease_ms) = (Mode::Shared, claim.ttl_ms.max(left_ms));
            self.add_hold(server, NewHold { holder, owner, mode, token, lease_ms });
            token
        };
        let mut offer = Offer::new(server, claim.proposal, claim.hand_off_ms);
        let scan = self.advance(server, None, &mut offer, &mut wrote, publish)?.into();
        Ok(Downgrade::Downgraded { fence, scan })
    }
}
