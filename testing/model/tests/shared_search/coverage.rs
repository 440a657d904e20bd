//! What a search must have reached. One that has not proves nothing.

use crate::client::Phase;
use crate::world::{Act, World};
use fencelock_core::Mode;
use fencelock_model::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    ReadersTogether,
    /// All permits are in use, by several clients.
    AllPermits,
    /// A claim was granted together with other holders.
    Joined,
    /// One call granted the key to several waiters.
    SeveralAtOnce,
    /// A claim that fits waits, because others were first.
    Blocked,
    /// A writer was granted the key by the call that ended the last shared hold.
    WriterAfterReaders,
    /// The downgrade of a writer let a reader in.
    DowngradeAdmits,
    /// A waiter learned by a poll that it had been granted the key.
    Confirmed,
    /// A waiter began to hold the key when the message of its hand-off arrived.
    StartedEarly,
    /// What a waiter had been granted ended before it polled.
    HandOffLapsed,
    /// The lease of a holder ended.
    Lost,
    /// A client was granted the key after the lease of another had ended.
    AfterLoss,
    /// A waiter that had not polled in time left the queue.
    WaiterLapsed,
    /// A waiter left the queue, and others waited on.
    Cancelled,
    /// A request that arrived twice changed something the second time.
    Duplicated,
    /// A claim was refused, because another limit is in use.
    OtherLimit,
    /// The other program has the key.
    PlainHolds,
    /// The other program found the key taken.
    PlainRefused,
    /// A larger limit let a waiter in.
    GrownAdmits,
    /// More permits are in use than the new limit.
    Shrunk,
}

/// Leases that end, also while another client waits.
pub(crate) const LEASES: &[Coverage] = &[Coverage::Lost, Coverage::AfterLoss];
/// Waiters that are granted the key, and those that do not come for it.
pub(crate) const QUEUE: &[Coverage] =
    &[Coverage::Confirmed, Coverage::StartedEarly, Coverage::HandOffLapsed, Coverage::WaiterLapsed];
/// A claim that fits waits behind one that does not.
pub(crate) const BLOCKED: &[Coverage] = &[Coverage::Blocked, Coverage::Cancelled];
pub(crate) const READERS: &[Coverage] = &[Coverage::ReadersTogether, Coverage::Joined];
pub(crate) const PERMITS: &[Coverage] = &[Coverage::AllPermits, Coverage::Joined];
/// Another program, and requests that arrive twice.
pub(crate) const PLAIN: &[Coverage] = &[Coverage::Duplicated, Coverage::PlainHolds, Coverage::PlainRefused];
pub(crate) const RESIZED: &[Coverage] = &[Coverage::GrownAdmits, Coverage::Shrunk];
pub(crate) const SEVERAL: &[Coverage] = &[Coverage::SeveralAtOnce];
pub(crate) const AFTER_READERS: &[Coverage] = &[Coverage::WriterAfterReaders];
pub(crate) const DOWNGRADED: &[Coverage] = &[Coverage::DowngradeAdmits];
pub(crate) const OTHER_LIMIT: &[Coverage] = &[Coverage::OtherLimit];

/// A set of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CoverageSet(u32);

impl CoverageSet {
    fn insert_if(&mut self, one: Coverage, met: bool) {
        self.0 |= u32::from(met) << one as u32;
    }

    pub(crate) const fn contains(self, one: Coverage) -> bool {
        self.0 & 1 << one as u32 != 0
    }

    pub(crate) const fn extend(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What one act came across.
pub(crate) fn of(before: &World, act: Act, after: &World) -> CoverageSet {
    let mut set = of_state(after);
    let granted = |i: usize| after.holds_key(i) && !before.holds_key(i);
    let new = (0..after.clients.len()).filter(|i| granted(*i));
    let (new, held) = (new.count(), |world: &World| (0..world.clients.len()).filter(|i| world.holds_key(*i)).count());
    let was_shared =
        matches!(before.key.lock.as_ref().map(|lock| &lock.value), Some(Value::Shared { limit: None, .. }));
    let is_single = matches!(after.key.lock.as_ref().map(|lock| &lock.value), Some(Value::Ours { .. }));
    set.insert_if(Coverage::SeveralAtOnce, new > 1);
    set.insert_if(Coverage::WriterAfterReaders, was_shared && is_single && new == 1);
    set.insert_if(Coverage::WaiterLapsed, act != Act::Wait && lapsed_waiter_is_gone(before, act, after));
    match act {
        Act::Enqueue(i) => {
            let mode = before.clients[i].kind.mode();
            set.insert_if(Coverage::Joined, granted(i) && held(after) > 1);
            set.insert_if(Coverage::Blocked, before.key.fits(mode) && after.waits(i));
            set.insert_if(Coverage::OtherLimit, mode.limit().is_some() && after.clients[i].phase == Phase::Over);
        }
        Act::Poll(i) => set.insert_if(Coverage::Confirmed, before.holds_key(i) && after.belief(i).is_some()),
        Act::Receive(i) => set.insert_if(Coverage::StartedEarly, after.belief(i).is_some()),
        Act::Downgrade(_) => set.insert_if(Coverage::DowngradeAdmits, new > 0 && held(after) > 1),
        Act::Release(i) => {
            let others_wait = (0..after.clients.len()).any(|other| after.waits(other));
            set.insert_if(Coverage::Cancelled, before.waits(i) && others_wait);
        }
        Act::Duplicate(_) => set.insert_if(Coverage::Duplicated, before.key != after.key),
        Act::PlainSet => set.insert_if(Coverage::PlainRefused, after.plain_until_ms.is_none()),
        Act::Resize(limit) => {
            set.insert_if(Coverage::GrownAdmits, new > 0);
            set.insert_if(Coverage::Shrunk, after.key.held.used > Some(limit.into()));
        }
        Act::Wait => of_time(before, after, &mut set),
        Act::Renew(_) | Act::Downgraded(_) | Act::Stop(_) | Act::PlainDelete => {}
    }
    let lost = |i: usize| matches!(after.clients[i].phase, Phase::Holding(_)) && after.belief(i).is_none();
    let any_lost = (0..after.clients.len()).any(lost);
    let begins = (0..after.clients.len()).any(|i| after.belief(i).is_some() && before.belief(i).is_none());
    set.insert_if(Coverage::AfterLoss, begins && any_lost);
    set
}

fn of_state(world: &World) -> CoverageSet {
    let mut set = CoverageSet::default();
    let beliefs = || (0..world.clients.len()).filter_map(|i| world.belief(i));
    set.insert_if(Coverage::ReadersTogether, beliefs().filter(|belief| belief.mode == Mode::Shared).count() > 1);
    let permits: u32 =
        beliefs().filter(|belief| belief.mode.limit().is_some()).map(|belief| belief.mode.weight()).sum();
    set.insert_if(Coverage::AllPermits, world.limit() == Some(permits) && beliefs().count() > 1);
    set.insert_if(Coverage::PlainHolds, world.plain_until_ms.is_some());
    set
}

fn of_time(before: &World, after: &World, set: &mut CoverageSet) {
    for i in 0..after.clients.len() {
        let had = before.holds_key(i) && before.clients[i].phase == Phase::Waiting;
        set.insert_if(Coverage::HandOffLapsed, had && !after.holds_key(i));
        set.insert_if(Coverage::Lost, before.belief(i).is_some() && after.belief(i).is_none());
    }
}

/// A call removed a waiter that is not the client of the call, and did not grant it anything.
fn lapsed_waiter_is_gone(before: &World, act: Act, after: &World) -> bool {
    let others = (0..after.clients.len()).filter(|i| act.client() != Some(*i));
    others.into_iter().any(|i| before.waits(i) && !after.waits(i) && !after.holds_key(i))
}
