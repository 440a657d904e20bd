use fencelock_core::engine::PendingRelease;
use fencelock_core::{
    Acquire, Claim, Expiry, FencingToken, Holder, HolderId, Intent, Moment, Occupant, Occupied, Owner, Renew, Renewal,
    TokenBlock,
};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

const CLAIM_TTL: Duration = Duration::from_secs(3);

/// One key on a backend with a queue: readers of one client, and a writer of another one.
#[derive(Debug, Default)]
pub(crate) struct TestBackend {
    pub(crate) row: Vec<(HolderId, Moment)>,
    pub(crate) writes: bool,
    queue: VecDeque<Option<HolderId>>,
    fence: u64,
    /// Hand-offs that no engine has received yet.
    pub(crate) handed: Vec<(HolderId, TokenBlock)>,
}

impl TestBackend {
    pub(crate) fn expire(&mut self, now: Moment) {
        self.row.retain(|(_, until)| now < *until);
        self.advance(now);
    }

    pub(crate) fn has(&self, holder: HolderId) -> bool {
        self.row.iter().any(|(id, _)| *id == holder)
    }

    pub(crate) fn is_free(&self) -> bool {
        self.row.is_empty() && !self.writes && self.queue.is_empty()
    }

    fn tokens(&mut self, now: Moment, block: NonZeroU32) -> TokenBlock {
        let tokens = fencelock_core::next_block(self.fence, now.as_micros(), block).unwrap();
        self.fence = tokens.last().get();
        tokens
    }

    /// `None` in the queue stands for the writer.
    fn advance(&mut self, now: Moment) {
        while let Some(first) = self.queue.front().copied() {
            let fits = !self.writes && (first.is_some() || self.row.is_empty());
            if !fits {
                return;
            }
            self.queue.pop_front();
            match first {
                None => {
                    self.writes = true;
                    self.tokens(now, NonZeroU32::MIN);
                }
                Some(holder) => {
                    let tokens = self.tokens(now, NonZeroU32::MIN);
                    self.row.push((holder, now + CLAIM_TTL));
                    self.handed.push((holder, tokens));
                }
            }
        }
    }

    pub(crate) fn claim(&mut self, claim: &Claim, now: Moment) -> Acquire {
        let me = claim.holder.id;
        if let Some((_, until)) = self.row.iter_mut().find(|(id, _)| *id == me) {
            *until = (*until).max(now + claim.ttl.get());
            return Acquire::Granted { tokens: FencingToken::new(self.fence).unwrap().into() };
        }
        if !self.writes && self.queue.is_empty() && claim.intent != Intent::Poll {
            let tokens = self.tokens(now, claim.block);
            self.row.push((me, now + claim.ttl.get()));
            return Acquire::Granted { tokens };
        }
        let position = self.queue.iter().position(|waiter| *waiter == Some(me));
        match (position, claim.intent) {
            (None, Intent::Poll) => Acquire::Gone,
            (None, Intent::Try) => Acquire::Busy(self.occupied(claim)),
            (position, _) => {
                let ahead = position.unwrap_or_else(|| {
                    self.queue.push_back(Some(me));
                    self.queue.len() - 1
                });
                let ahead = u32::try_from(ahead).unwrap();
                Acquire::Queued { ahead, last_fence: self.fence, server_micros: None, occupied: self.occupied(claim) }
            }
        }
    }

    fn occupied(&self, claim: &Claim) -> Occupied {
        let id = self.row.first().map_or(HolderId::from_bytes([255; 16]), |(id, _)| *id);
        let owner = Owner::new("other", 1, None).unwrap();
        Occupied::new(Occupant::Holder(Holder { id, owner }), Expiry::In(claim.ttl.get()))
    }

    pub(crate) fn renew(&mut self, renewal: &Renewal, now: Moment) -> Renew {
        let waiters = u32::try_from(self.queue.len()).unwrap();
        match self.row.iter_mut().find(|(id, _)| *id == renewal.holder) {
            Some((_, until)) => {
                *until = (*until).max(now + renewal.ttl.get());
                Renew::Renewed { waiters }
            }
            None => Renew::Absent,
        }
    }

    pub(crate) fn release(&mut self, holder: HolderId, now: Moment) {
        self.row.retain(|(id, _)| *id != holder);
        self.queue.retain(|waiter| *waiter != Some(holder));
        self.advance(now);
    }

    pub(crate) fn release_pending(&mut self, release: &PendingRelease, now: Moment) {
        self.release(release.holder, now);
    }

    /// The writer comes, unless it is there already.
    pub(crate) fn writer_comes(&mut self, now: Moment) {
        if !self.writes && !self.queue.contains(&None) {
            self.queue.push_back(None);
            self.advance(now);
        }
    }

    pub(crate) fn writer_goes(&mut self, now: Moment) {
        self.writes = false;
        self.queue.retain(Option::is_some);
        self.advance(now);
    }
}
