use fencelock_core::{
    Acquire, Claim, Expiry, FencingToken, Holder, HolderId, Intent, Moment, Occupant, Occupied, Owner, Renew, Renewal,
    TokenBlock,
};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

const CLAIM_TTL: Duration = Duration::from_secs(3);

/// One key on a backend with a queue, for one client and the claims of others: permits; a reader has one of them and a writer all.
#[derive(Debug)]
pub(crate) struct TestBackend {
    pub(crate) limit: u32,
    pub(crate) row: Vec<Hold>,
    queue: VecDeque<(HolderId, u32, NonZeroU32)>,
    fence: u64,
    /// Hand-offs that no engine has received yet.
    pub(crate) handed: Vec<(HolderId, TokenBlock)>,
    /// Claims and releases so far.
    pub(crate) claims: u32,
    pub(crate) releases: u32,
    /// It does not say how many wait.
    pub(crate) hides_waiters: bool,
    /// Whether it announces the next waiter.
    tracked: bool,
    /// An announcement that is on its way.
    pub(crate) announces: bool,
}

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) holder: HolderId,
    weight: u32,
    until: Moment,
    last: FencingToken,
}

/// Whether another client claims under this holder id.
pub(crate) fn is_other(holder: HolderId) -> bool {
    holder.hex()[..30] == [b'f'; 30]
}

/// The holder id of a claim of another client.
pub(crate) fn other(number: u8) -> HolderId {
    let mut bytes = [255; 16];
    bytes[15] = number;
    HolderId::from_bytes(bytes)
}

impl TestBackend {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            row: Vec::new(),
            queue: VecDeque::new(),
            // The key was held before, so the first grant may be of several tokens.
            fence: 1,
            handed: Vec::new(),
            claims: 0,
            releases: 0,
            hides_waiters: false,
            tracked: false,
            announces: false,
        }
    }

    pub(crate) fn expire(&mut self, now: Moment) {
        // Other clients renew.
        self.row.retain(|hold| is_other(hold.holder) || now < hold.until);
        self.advance(now);
    }

    pub(crate) fn has(&self, holder: HolderId) -> bool {
        self.row.iter().any(|hold| hold.holder == holder)
    }

    pub(crate) fn is_free(&self) -> bool {
        self.row.is_empty() && self.queue.is_empty()
    }

    /// Whether another client has all permits.
    pub(crate) fn writes(&self) -> bool {
        self.row.iter().any(|hold| is_other(hold.holder) && hold.weight == self.limit)
    }

    pub(crate) fn used(&self) -> u32 {
        self.row.iter().map(|hold| hold.weight).sum()
    }

    /// How many claims of the client wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.iter().filter(|(holder, ..)| !is_other(*holder)).count()
    }

    fn tokens(&mut self, now: Moment, block: NonZeroU32) -> TokenBlock {
        let tokens = fencelock_core::next_block(self.fence, now.as_micros(), block).unwrap();
        self.fence = tokens.last().get();
        tokens
    }

    fn advance(&mut self, now: Moment) {
        while let Some((holder, weight, block)) = self.queue.front().copied()
            && self.used() + weight <= self.limit
        {
            self.queue.pop_front();
            let tokens = self.tokens(now, block);
            self.row.push(Hold { holder, weight, until: now + CLAIM_TTL, last: tokens.last() });
            if !is_other(holder) {
                self.handed.push((holder, tokens));
            }
        }
    }

    pub(crate) fn claim(&mut self, claim: &Claim, now: Moment) -> Acquire {
        self.claims += 1;
        let (me, weight) = (claim.holder.id, claim.mode.weight().max(1));
        if let Some(hold) = self.row.iter_mut().find(|hold| hold.holder == me) {
            hold.until = hold.until.max(now + claim.ttl.get());
            return Acquire::Granted { tokens: hold.last.into() };
        }
        if self.used() + weight <= self.limit && self.queue.is_empty() && claim.intent != Intent::Poll {
            let tokens = self.tokens(now, claim.block);
            self.row.push(Hold { holder: me, weight, until: now + claim.ttl.get(), last: tokens.last() });
            return Acquire::Granted { tokens };
        }
        let position = self.queue.iter().position(|(waiter, ..)| *waiter == me);
        match (position, claim.intent) {
            (None, Intent::Poll) => Acquire::Gone,
            (None, Intent::Try) => Acquire::Busy(self.occupied(claim)),
            (position, _) => {
                let ahead = position.unwrap_or_else(|| {
                    // As Redis: a write of the client ends it without a message.
                    self.tracked = false;
                    self.queue.push_back((me, weight, claim.block));
                    self.queue.len() - 1
                });
                let ahead = u32::try_from(ahead).unwrap();
                Acquire::Queued { ahead, last_fence: self.fence, server_micros: None, occupied: self.occupied(claim) }
            }
        }
    }

    fn occupied(&self, claim: &Claim) -> Occupied {
        let id = self.row.first().map_or(other(0), |hold| hold.holder);
        let owner = Owner::new("other", 1, None).unwrap();
        Occupied::new(Occupant::Holder(Holder { id, owner }), Expiry::In(claim.ttl.get()))
    }

    pub(crate) fn renew(&mut self, renewal: &Renewal, now: Moment) -> Renew {
        let waiters = if self.hides_waiters { 0 } else { u32::try_from(self.queue.len()).unwrap() };
        match self.row.iter_mut().find(|hold| hold.holder == renewal.holder) {
            Some(hold) => {
                hold.until = hold.until.max(now + renewal.ttl.get());
                self.tracked |= waiters == 0;
                Renew::Renewed { waiters }
            }
            None => Renew::Absent,
        }
    }

    pub(crate) fn release(&mut self, holder: HolderId, now: Moment) {
        self.releases += u32::from(!is_other(holder));
        self.row.retain(|hold| hold.holder != holder);
        self.queue.retain(|(waiter, ..)| *waiter != holder);
        self.advance(now);
    }

    /// A claim of another client, unless it waits or holds already.
    pub(crate) fn other_comes(&mut self, number: u8, weight: u32, now: Moment) {
        let (holder, weight) = (other(number), weight.min(self.limit));
        if !self.has(holder) && self.queue.iter().all(|(waiter, ..)| *waiter != holder) {
            self.queue.push_back((holder, weight, NonZeroU32::MIN));
            self.announces |= std::mem::take(&mut self.tracked);
            self.advance(now);
        }
    }

    pub(crate) fn other_goes(&mut self, number: u8, now: Moment) {
        self.release(other(number), now);
    }

    /// A program deletes the holds of the client.
    pub(crate) fn forget(&mut self, now: Moment) {
        self.row.retain(|hold| is_other(hold.holder));
        self.advance(now);
    }
}
