use super::ScriptError;
use super::answer::{Listed, ListedHold};
use super::holds::{HeldEntries, HeldEntry, Holds};
use super::key::{Claim, KeyModel, Lock, Wrote};
use super::server::Server;
use super::tokens::Tokens;
use super::value::Value;
use fencelock_core::Mode;
use std::sync::Arc;

/// The lock outlasts its last hold by this part of a lease.
const SHARE: u64 = 8;
/// What is left without its lock expires after this time.
const KEEP_MS: u64 = 60_000;
/// The number of holds that a reply lists.
const SHOWN: usize = 20;

/// A hold to add.
#[derive(Debug)]
pub(super) struct NewHold {
    pub(super) holder: u128,
    pub(super) owner: Arc<str>,
    pub(super) mode: Mode,
    pub(super) token: u64,
    pub(super) lease_ms: u64,
}

/// Locks that several clients hold together.
impl KeyModel {
    /// The mode of such a lock, with weight 1.
    pub(super) fn shared(&self) -> Option<Mode> {
        self.lock.as_ref().and_then(|lock| lock.value.shared_mode())
    }

    /// The rest of a hold that has not ended.
    pub(super) fn rest(&self, server: &Server, holder: u128) -> Option<u64> {
        self.holds.ends_ms.get(&holder)?.checked_sub(server.now_ms())
    }

    /// Whether a hold in this mode fits. Holds that have ended count until they are removed.
    pub fn fits(&self, mode: Mode) -> bool {
        match (self.shared(), mode) {
            (None, _) => self.lock.is_none(),
            (Some(Mode::Shared), Mode::Shared) => true,
            (Some(Mode::Permits { limit, .. }), Mode::Permits { weight, limit: other, .. }) => {
                // If the permits in use are unknown, none is free.
                limit == other && self.held.used.unwrap_or(limit.into()) + u64::from(weight) <= limit.into()
            }
            _ => false,
        }
    }

    /// Adds a hold; the first one if the lock is free.
    pub(super) fn add_hold(&mut self, server: &Server, hold: NewHold) {
        let NewHold { holder, owner, mode, token, lease_ms } = hold;
        let end_ms = server.now_ms() + lease_ms;
        if self.lock.is_none() {
            (self.holds, self.held) = (Holds::default(), HeldEntries::default());
            self.lock = Some(Lock { value: Value::shared(mode, token), expires_ms: Some(end_ms) });
        }
        self.holds.ends_ms.insert(holder, end_ms);
        let weight = if let Mode::Permits { weight, .. } = mode { weight } else { 1 };
        self.held.entries.insert(holder, HeldEntry { weight, token, owner });
        if let Mode::Permits { .. } = mode {
            self.held.used = Some(self.held.used.unwrap_or(0) + u64::from(weight));
        }
        self.outlast(server, lease_ms);
    }

    /// Sets the rest of a hold.
    pub(super) fn prolong_hold(&mut self, server: &Server, holder: u128, left_ms: u64) {
        let now_ms = server.now_ms();
        let kept = self.holds.expires_ms.unwrap_or(0).max(now_ms + left_ms + KEEP_MS);
        self.holds.expires_ms = Some(kept);
        self.holds.ends_ms.insert(holder, now_ms + left_ms);
        self.outlast(server, left_ms);
    }

    /// The lock and all that belongs to it last until a hold with this rest ends.
    fn outlast(&mut self, server: &Server, left_ms: u64) {
        let now_ms = server.now_ms();
        let Some(lock) = &mut self.lock else { return };
        if lock.expires_ms.is_some_and(|end| end > now_ms + left_ms) {
            return;
        }
        let end_ms = now_ms + left_ms + left_ms / SHARE;
        lock.expires_ms = Some(end_ms);
        self.holds.expires_ms = Some(end_ms + KEEP_MS);
        if !self.held.entries.is_empty() || self.held.used.is_some() {
            self.held.expires_ms = Some(end_ms + KEEP_MS);
        }
    }

    /// The token of a hold. If its entry is gone, it is written again with a new one.
    pub(super) fn token_of(&mut self, server: &Server, claim: &Claim, wrote: &mut Wrote) -> Result<u64, ScriptError> {
        if let Some(entry) = self.held.entries.get(&claim.holder) {
            return Ok(entry.token);
        }
        let tokens = Tokens { client_us: claim.proposal, proposed: false, wanted: 1 };
        let token = self.draw(server, &tokens, wrote)?.0;
        let weight = if let Mode::Permits { weight, .. } = claim.mode { weight } else { 1 };
        let owner = claim.owner.clone().unwrap_or_default();
        self.held.entries.insert(claim.holder, HeldEntry { weight, token, owner });
        Ok(token)
    }

    /// Removes holds, and returns their permits.
    pub(super) fn remove_holds(&mut self, holders: &[u128]) {
        let mut freed = 0;
        for holder in holders {
            self.holds.remove(*holder);
            freed += self.held.entries.remove(holder).map_or(0, |entry| u64::from(entry.weight));
        }
        if let (Some(Mode::Permits { .. }), Some(used)) = (self.shared(), &mut self.held.used) {
            *used = used.saturating_sub(freed);
        }
        if self.held.entries.is_empty() && self.held.used.is_none() {
            self.held.expires_ms = None;
        }
    }

    /// Removes holds that have ended, at most `cap`; the lock too if no hold is left. Returns whether there may be more.
    pub(super) fn bury(&mut self, server: &Server, wrote: &mut Wrote) -> bool {
        let now_ms = server.now_ms();
        if self.holds.ends_ms.values().all(|end| *end < now_ms) {
            *wrote = Wrote::Something;
            self.forget_holds();
            return false;
        }
        let mut ended: Vec<_> = self.holds.ends_ms.iter().map(|(id, end)| (*end, *id)).collect();
        ended.retain(|(end, _)| *end < now_ms);
        ended.sort_unstable();
        ended.truncate(server.cap);
        if !ended.is_empty() {
            *wrote = Wrote::Something;
            self.remove_holds(&ended.iter().map(|(_, id)| *id).collect::<Vec<_>>());
        }
        ended.len() == server.cap
    }

    /// Deletes the lock and its holds.
    pub(super) fn forget_holds(&mut self) {
        (self.lock, self.holds, self.held) = (None, Holds::default(), HeldEntries::default());
    }

    /// The description of the lock in replies, if several clients hold it and a hold has not ended.
    pub(super) fn listed(&self, server: &Server) -> Option<Listed> {
        self.shared()?;
        let value = self.lock.as_ref()?.value.clone();
        let live = self.holds.live(server.now_ms());
        let hold = |(end, holder): &(u64, u128)| ListedHold {
            holder: *holder,
            rest_ms: end - server.now_ms(),
            entry: self.held.entries.get(holder).cloned(),
        };
        let holds: Vec<_> = live.iter().take(SHOWN).map(hold).collect();
        (!holds.is_empty()).then_some(Listed { value, count: live.len() as u64, holds })
    }
}
