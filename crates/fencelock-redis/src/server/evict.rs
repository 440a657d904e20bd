//! Evicts the hold of another client.

use super::Redis;
use crate::scripts::quarantine::EpochCheck;
use crate::scripts::reply::{self, Evicting, Remaining, StoredLock};
use crate::scripts::{script, shared, unread};
use fencelock_core::{BootClock, Clock, Eviction, HolderInfo, Holding, Key, Unknown};

async fn stored_lock(redis: &Redis, key: &Key) -> Result<Option<StoredLock>, Unknown> {
    let free = |epoch_check: EpochCheck<'_>| {
        script::inspect(&redis.link.target.redis_key(key), 1, EpochCheck { mark: None, ..epoch_check })
    };
    reply::read_inspect(redis.link.node(), redis.send(free).await?)
}

/// Evicts the hold, if it is a lock and has not changed.
pub(super) async fn evict(redis: &Redis, holding: &Holding) -> Result<Eviction, Unknown> {
    let key = &holding.key;
    let Some(seen) = stored_lock(redis, key).await? else { return Ok(Eviction::Changed(None)) };
    if seen.is_shared() {
        return end_some(redis, holding, &seen).await;
    }
    if let Some(hold) = holding.hold_of(&seen.occupant()) {
        // The caller inspected a hold with an expiry. A value without one may be data, and must not be deleted.
        let same_end = hold.expiry.span().is_some() == seen.expires();
        if seen.is_later() {
            return Ok(Eviction::Refused(unread::not_ended(key)));
        }
        let Some(what) = seen.evicting() else {
            return Ok(Eviction::Refused(format!("{} is not a lock, and was not changed", seen.occupant())));
        };
        if what != Evicting::Ours && !same_end {
            return Ok(Eviction::Changed(Some(Box::new(seen.holding(key, BootClock.wall_micros())))));
        }
        if evicts(redis, key, &seen.value, what).await? {
            return Ok(Eviction::Evicted);
        }
    }
    changed(redis, key).await
}

/// Evicts the listed holds of a lock that several clients hold. If `holding` counts holders that it does not list, the whole
/// lock is evicted.
async fn end_some(redis: &Redis, holding: &Holding, seen: &StoredLock) -> Result<Eviction, Unknown> {
    let (key, listed) = (&holding.key, shared::listed(holding));
    let now = seen.holding(key, BootClock.wall_micros());
    let is_same =
        |hold: &HolderInfo| now.holders.iter().any(|n| (&n.occupant, n.fence) == (&hold.occupant, hold.fence));
    let all = holding.holders.count() as usize > holding.holders.iter().count();
    let evicted = if all && holding.holders.iter().any(is_same) {
        evicts(redis, key, shared::value(&seen.value), Evicting::Shared).await?
    } else {
        evicts(redis, key, listed.as_bytes(), Evicting::Holds).await?
    };
    if evicted { Ok(Eviction::Evicted) } else { changed(redis, key).await }
}

async fn evicts(redis: &Redis, key: &Key, seen: &[u8], what: Evicting) -> Result<bool, Unknown> {
    let (redis_key, now) = (redis.link.target.redis_key(key), BootClock.wall_micros());
    let answer = redis.send(|epoch_check| script::evict(&redis_key, seen, what, now, epoch_check)).await?;
    redis.link.note_unread(&redis_key, &answer);
    let Some(left) = reply::read_evict(redis.link.node(), answer)? else { return Ok(false) };
    // The server does not report a change to the connection that made it.
    redis.link.push_handler.changed(key);
    if left == Remaining::More {
        redis.continue_hand_off(key).await;
    }
    Ok(true)
}

async fn changed(redis: &Redis, key: &Key) -> Result<Eviction, Unknown> {
    let now = stored_lock(redis, key).await?;
    Ok(Eviction::Changed(now.map(|seen| Box::new(seen.holding(key, BootClock.wall_micros())))))
}
