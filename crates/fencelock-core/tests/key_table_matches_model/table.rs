//! What the table says.

use crate::{HOLDERS, Op, Pair, Said, block, holder, id, ms, sorted};
use fencelock_core::{
    Acquire, Claim, Downgrade, Eviction, Expiry, FencingToken, Holder, HolderInfo, Holders, Holding, Intent, Occupant,
    Occupied, Owner, Raise, Release, Renew, Renewal, Resize, Ttl,
};
use std::num::NonZeroU32;
use std::time::Duration;

impl Pair {
    pub(crate) fn of_table(&mut self, step: &Op) -> Said {
        let name = self.key.clone();
        let renewal = |number: usize, ttl_ms: u64| Renewal::new(name.clone(), holder(number), ttl(ttl_ms));
        match step {
            Op::Claim(number, intent) => self.claim_of_table(*number, *intent),
            Op::Renew(number, ttl_ms) => match self.step(|key| key.renew(&renewal(*number, *ttl_ms))) {
                Renew::Renewed { waiters } => Said::Renewed(waiters.into()),
                Renew::Absent => Said::Nobody,
                Renew::TakenBy(by) => Said::Taken(ids(&by)),
            },
            Op::Release(number) => match self.step(|key| key.release(&holder(*number))).unwrap() {
                Release::Released => Said::Yes,
                Release::Absent => Said::Nobody,
                Release::TakenBy(by) => Said::Taken(ids(&by)),
            },
            Op::Downgrade(number) => {
                match self.step(|key| key.downgrade(&renewal(*number, HOLDERS[*number].0), None)).unwrap() {
                    Downgrade::Downgraded { token } => Said::Downgraded(token.get()),
                    Downgrade::Absent => Said::Nobody,
                    Downgrade::TakenBy(by) => Said::Taken(ids(&by)),
                }
            }
            Op::Resize(limit) => match self.step(|key| key.resize(*limit)).unwrap() {
                Resize::Resized(seen) => Said::Resized {
                    before: seen.before,
                    limit: seen.limit.into(),
                    used: seen.used,
                    holders: seen.holders.into(),
                },
                Resize::Free => Said::Nobody,
                Resize::OtherMode { holders, .. } => Said::Taken(ids(&holders)),
            },
            Op::Raise(number, _) => {
                let to = FencingToken::new(self.to).unwrap();
                if self.step(|key| key.raise(&holder(*number), to)) == Raise::Acked { Said::Yes } else { Said::No }
            }
            Op::Inspect => self.step(|key| key.inspect()).map_or(Said::Nobody, |held| Said::Held {
                by: sorted(held.holders.iter().map(hold)),
                waiters: held.waiters.into(),
            }),
            Op::Evict(which) => self.evict(*which),
            Op::Wait(span) => {
                self.now_us += span * 1000;
                // Whether a lease counts in the millisecond in which it ends is luck, on a server.
                while self.ends().any(|end| end == self.now_us / 1000) {
                    self.now_us += 1000;
                }
                Said::Yes
            }
        }
    }

    fn claim_of_table(&mut self, number: usize, intent: Intent) -> Said {
        let (ttl_ms, wanted) = HOLDERS[number];
        let owner = Owner::new("h", 1, None).unwrap();
        let claim = Claim::new(self.key.clone(), Holder { id: holder(number), owner }, ttl(ttl_ms), intent);
        let claim = claim.with_block(NonZeroU32::new(wanted).unwrap()).with_mode(self.modes[number]);
        match self.step(|key| key.claim(&claim, None)).unwrap() {
            Acquire::Granted { tokens } => {
                let (last, count) = block(tokens);
                Said::Granted { last, count }
            }
            Acquire::Queued { ahead, occupied, hand_off } => {
                let (by, ttl_ms) = occupier(&occupied);
                Said::Queued { ahead: ahead.into(), last_fence: hand_off.last_fence, by, ttl_ms }
            }
            Acquire::Busy(occupied) => {
                let (by, ttl_ms) = occupier(&occupied);
                Said::Busy { by, ttl_ms }
            }
            Acquire::Gone => Said::Nobody,
            Acquire::Conflict(mode) => Said::Conflict(mode.limit()),
        }
    }

    fn evict(&mut self, which: Option<usize>) -> Said {
        let held = self.step(|key| key.inspect());
        let holds = held.iter().flat_map(|held| held.holders.iter());
        let mut holds = holds.filter(|hold| which.is_none_or(|which| hold.holder_id() == Some(holder(which)))).cloned();
        let Some(first) = holds.next() else { return Said::Nobody };
        let seen = holds.fold(Holding::new(self.key.clone(), first), Holding::with_holder);
        if self.step(|key| key.evict(&seen)).unwrap() == Eviction::Evicted { Said::Yes } else { Said::No }
    }

    /// When the holds end, as the model has them.
    fn ends(&self) -> impl Iterator<Item = u64> {
        let lock = self.model.lock.as_ref().and_then(|lock| lock.expires_ms);
        lock.into_iter().chain(self.model.holds.ends_ms.values().copied())
    }
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

fn occupant(by: &Occupant) -> u128 {
    id(&by.holder_id().unwrap())
}

fn ids(by: &Holders) -> Vec<u128> {
    sorted(by.iter().map(occupant))
}

fn occupier(occupied: &Occupied) -> (Vec<u128>, u64) {
    (ids(&occupied.holders), left(occupied.expiry))
}

fn hold(info: &HolderInfo) -> (u128, u64, u64, u32) {
    (occupant(&info.occupant), left(info.expiry), info.fence.unwrap().get(), info.mode.weight())
}

fn left(expiry: Expiry) -> u64 {
    let Expiry::In(span) = expiry else { panic!("a lease ends") };
    ms(span)
}
