//! Several keys that a task holds together.

use super::recorded_set::RecordedSet;
use super::task::{POLL_INTERVAL, Stopped, Task, answer};
use crate::Failure;
use crate::recorder::micros;
use crate::resource::Writer;
use crate::rng_ext::RngExt as _;
use fencelock::{Guards, HolderId, Key, LossReason, Mode};
use std::time::Duration;

/// A renewal that was sent before a key was released may extend its lease by one TTL.
const SLACK: Duration = Duration::from_millis(100);

impl Task {
    pub(super) async fn use_several(
        &mut self,
        keys: &[String],
        stopped: &Stopped,
        writer: &mut Writer,
    ) -> Result<(), Failure> {
        let Some((guards, set)) = self.acquire_several(keys, stopped).await else { return Ok(()) };
        set.access(writer).await?;
        match self.rng.usize(..100) {
            0..2 => return self.overrun_several(guards, set, writer).await,
            2..6 => return self.hold_several_long(guards, set, writer).await,
            6..31 if set.holds[0].mode == Mode::Exclusive => return self.lose_one(guards, set, writer).await,
            31..39 => {
                tokio::time::sleep(self.rng.millis(1, 40)).await;
                let index = self.rng.usize(..set.holds.len());
                set.holds[index].renew(&self.client, guards.holders()[index]).await;
            }
            _ => tokio::time::sleep(self.rng.millis(1, 25)).await,
        }
        set.access(writer).await?;
        if self.rng.chance(100_000) {
            set.drop(guards);
        } else {
            set.release(guards).await;
        }
        Ok(())
    }

    /// Exclusive locks, or sometimes shared ones if there are any.
    async fn acquire_several(&mut self, keys: &[String], stopped: &Stopped) -> Option<(Guards, RecordedSet)> {
        let reads = self.rng.chance(200_000) && self.client.capabilities().modes.shared;
        let mode = if reads { Mode::Shared } else { Mode::Exclusive };
        let (wait, limit) = self.time_limits();
        let locks = self.client.lock_all(keys).ttl(self.ttl()).wait(wait).label(self.label());
        let locks = if mode == Mode::Shared { locks.shared() } else { locks };
        let invoke_us = self.recorder.now();
        let answer = answer(locks.acquire(), limit, stopped.clone()).await;
        let guards = self.granted(&keys[0], mode, invoke_us, answer)?;
        let set = RecordedSet::take(&guards, &self.claim(invoke_us));
        Some((guards, set))
    }

    /// Stops all renewals, sleeps beyond all leases, and writes anyway.
    async fn overrun_several(
        &mut self,
        guards: Guards,
        mut set: RecordedSet,
        writer: &mut Writer,
    ) -> Result<(), Failure> {
        set.record_renewal(&guards.held());
        abandon(guards);
        let until_us = set.holds.iter().map(|hold| hold.until_us).max().unwrap_or(0);
        let left = Duration::from_micros(until_us.saturating_sub(self.recorder.now()));
        tokio::time::sleep(left + self.rng.millis(20, 400)).await;
        set.access(writer).await
    }

    /// Holds the keys until they are renewed.
    async fn hold_several_long(
        &mut self,
        guards: Guards,
        mut set: RecordedSet,
        writer: &mut Writer,
    ) -> Result<(), Failure> {
        let ends = self.recorder.now() + micros(self.long_hold());
        while self.recorder.now() < ends {
            tokio::select! {
                biased;
                loss = guards.lost() => {
                    set.lost(loss.key.as_str(), &loss.reason);
                    break;
                }
                () = tokio::time::sleep(POLL_INTERVAL) => set.record_renewal(&guards.held()),
            }
            set.ask(&guards).await;
        }
        set.ask(&guards).await;
        // If a key was lost, the resource rejects the write with its token.
        set.access(writer).await?;
        set.release(guards).await;
        Ok(())
    }

    /// Releases one key at the server without its guard. The loss of this key must be that of all.
    async fn lose_one(&mut self, guards: Guards, mut set: RecordedSet, writer: &mut Writer) -> Result<(), Failure> {
        let index = self.rng.usize(..set.holds.len());
        let id = guards.holders()[index];
        if !set.end_one(index, &self.client, id).await {
            // The request may be executed later, so no other task may get this lease.
            abandon(guards);
            return Ok(());
        }
        let held = guards.held();
        let part = &held.parts()[index];
        let loss = tokio::time::timeout(self.ttl() + SLACK, part.lost()).await;
        if loss.is_err() && self.may_hold(part.key(), id).await {
            // A new master may not have received the release. Then the lock is still held, and renewed.
            abandon(guards);
            return Ok(());
        }
        // Without a notification, its lease has certainly ended by now.
        set.lost_as_ended(index, &loss.unwrap_or(LossReason::Expired));
        set.record_renewal(&held);
        set.ask(&guards).await;
        set.access(writer).await?;
        set.release(guards).await;
        Ok(())
    }

    /// Whether this holder may hold the key at the server.
    async fn may_hold(&self, key: &Key, holder: HolderId) -> bool {
        match self.client.inspect(key).await {
            Ok(seen) => seen.is_some_and(|seen| seen.has(holder)),
            Err(_) => true,
        }
    }
}

/// Leaves all keys to their leases.
fn abandon(guards: Guards) {
    for guard in guards.into_guards() {
        guard.into_holder();
    }
}
