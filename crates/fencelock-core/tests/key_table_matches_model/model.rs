//! What the model says.

use crate::{HAND_OFF_MS, HOLDERS, Op, Pair, Said, sorted};
use fencelock_model::{
    Acquire, Channel, Claim, Delivery, Downgrade, Evict, Gate, HandOff, HoldKind, Inspect, Intent, Listed, Occupied,
    Raise, Release, Renew, Resize, Server, Value,
};

impl Pair {
    pub(crate) fn of_model(
        &mut self,
        step: &Op,
        server: &Server,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Said {
        let (now, open) = (server.now_us, &Gate::Open);
        match step {
            Op::Claim(holder, intent) => self.claim_of_model(*holder, *intent, server, publish),
            Op::Renew(holder, ttl_ms) => match self.model.renew(server, *holder as u128, *ttl_ms, 1_000_000).unwrap() {
                Renew::Renewed { waiters } => Said::Renewed(waiters),
                Renew::Absent => Said::Nobody,
                Renew::Taken(by) => Said::Taken(one(&by)),
                Renew::Shared(listed) => Said::Taken(ids(&listed)),
            },
            Op::Release(holder) => {
                match self.model.release(server, *holder as u128, now, HAND_OFF_MS, open, publish).unwrap() {
                    Release::Released(_) => Said::Yes,
                    Release::Absent(_) => Said::Nobody,
                    Release::Taken(by) => Said::Taken(one(&by)),
                    Release::Shared(listed, _) => Said::Taken(ids(&listed)),
                }
            }
            Op::Downgrade(holder) => {
                let me = *holder as u128;
                let claim = Claim { proposed: false, ..Claim::try_for(me, HOLDERS[*holder].0, now) };
                match self.model.downgrade(server, &claim, open, publish).unwrap() {
                    Downgrade::Downgraded { fence, .. } => Said::Downgraded(fence),
                    Downgrade::Absent => Said::Nobody,
                    Downgrade::Taken(by) => Said::Taken(one(&by)),
                    Downgrade::Shared(listed) => Said::Taken(ids(&listed)),
                    other => panic!("{other:?}"),
                }
            }
            Op::Resize(limit) => {
                match self.model.resize(server, *limit, None, now, HAND_OFF_MS, open, publish).unwrap() {
                    Resize::Resized { before, used, held: holders, .. } => {
                        Said::Resized { before, limit: (*limit).into(), used, holders }
                    }
                    Resize::Absent(_) => Said::Nobody,
                    Resize::Taken(by) => Said::Taken(one(&by)),
                    Resize::Shared(listed) => Said::Taken(ids(&listed)),
                    other => panic!("{other:?}"),
                }
            }
            Op::Raise(holder, _) => {
                let raised = self.model.raise(server, *holder as u128, self.to, open).unwrap();
                if raised == Raise::Acked { Said::Yes } else { Said::No }
            }
            Op::Inspect => self
                .model
                .inspect(server)
                .map_or(Said::Nobody, |seen| Said::Held { by: holds(&seen), waiters: seen.waiters }),
            Op::Evict(which) => self.evict_of_model(*which, server, publish),
            Op::Wait(_) => Said::Yes,
        }
    }

    fn evict_of_model(
        &mut self,
        which: Option<usize>,
        server: &Server,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Said {
        let Some(seen) = self.model.inspect(server) else { return Said::Nobody };
        let mut listed = holds(&seen);
        listed.retain(|(id, ..)| which.is_none_or(|which| *id == which as u128));
        let listed: Vec<_> = listed.into_iter().map(|(id, _, token, _)| (id, token)).collect();
        if listed.is_empty() {
            return Said::Nobody;
        }
        let evicted = if seen.listed.is_some() {
            self.model.evict_holds(server, &listed, server.now_us, HAND_OFF_MS, &Gate::Open, publish)
        } else {
            self.model.evict(server, (&seen.by, HoldKind::Ours), server.now_us, HAND_OFF_MS, &Gate::Open, publish)
        };
        if evicted.unwrap() == Evict::AnotherByNow { Said::No } else { Said::Yes }
    }

    fn claim_of_model(
        &mut self,
        holder: usize,
        intent: fencelock_core::Intent,
        server: &Server,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Said {
        let (ttl_ms, wanted) = HOLDERS[holder];
        let mut claim = Claim::try_for(holder as u128, ttl_ms, server.now_us);
        (claim.proposed, claim.wanted, claim.channel) = (false, wanted.into(), Some(Channel(0)));
        claim.mode = self.modes[holder];
        claim.intent = match intent {
            fencelock_core::Intent::Try => Intent::Try,
            fencelock_core::Intent::Enqueue => Intent::Enqueue,
            fencelock_core::Intent::Poll => Intent::Poll,
        };
        let mut answer = self.model.acquire(server, &claim, &Gate::Open, publish).unwrap();
        if answer == Acquire::Yours {
            // As production does, for the full lease.
            claim.intent = Intent::Poll;
            answer = self.model.acquire(server, &claim, &Gate::Open, publish).unwrap();
        }
        match answer {
            Acquire::Granted { fence, count, .. } => Said::Granted { last: fence, count },
            Acquire::Queued { ahead, occupied, .. } => {
                let (by, ttl_ms) = occupier(&occupied);
                Said::Queued { ahead, last_fence: occupied.last_fence, by, ttl_ms }
            }
            Acquire::Busy(occupied) => {
                let (by, ttl_ms) = occupier(&occupied);
                Said::Busy { by, ttl_ms }
            }
            Acquire::Conflict(mode, _) => Said::Conflict(mode.limit()),
            Acquire::Gone(_) => Said::Nobody,
            other => panic!("{other:?}"),
        }
    }
}

fn one(value: &Value) -> Vec<u128> {
    vec![value.holder().unwrap()]
}

fn ids(listed: &Listed) -> Vec<u128> {
    sorted(listed.holds.iter().map(|hold| hold.holder))
}

fn limit(listed: &Listed) -> Option<u32> {
    let Value::Shared { limit, .. } = listed.value else { panic!("{listed:?}") };
    limit
}

fn occupier(occupied: &Occupied) -> (Vec<u128>, u64) {
    (occupied.listed.as_ref().map_or_else(|| one(&occupied.by), ids), occupied.ttl_ms.unwrap())
}

/// The holders, each with its rest, token and permits.
fn holds(seen: &Inspect) -> Vec<(u128, u64, u64, u32)> {
    let Some(listed) = &seen.listed else {
        return vec![(seen.by.holder().unwrap(), seen.ttl_ms.unwrap(), seen.fence.unwrap(), 0)];
    };
    sorted(listed.holds.iter().map(|hold| {
        let entry = hold.entry.as_ref().unwrap();
        (hold.holder, hold.rest_ms, entry.token, limit(listed).map_or(0, |_| entry.weight))
    }))
}
