use fencelock_core::{
    Acquire, Claim, ClockReading, Event, Holder, HolderId, HolderInfo, Holding, Intent, Key, KeyStep, KeyTable, Mode,
    Moment, Owner, Renew, Renewal, TokenBlock, Ttl,
};
use std::collections::BTreeMap;

/// One key on a backend, for one client and the claims of others.
#[derive(Debug)]
pub(crate) struct TestBackend {
    mode: Mode,
    table: KeyTable,
    key: Key,
    /// The claims of other clients, which hold or wait.
    others: BTreeMap<u8, Claim>,
    /// Hand-offs that no engine has received yet.
    pub(crate) handed: Vec<(HolderId, TokenBlock)>,
    /// Claims and releases so far.
    pub(crate) claims: u32,
    pub(crate) releases: u32,
    /// It does not say how many wait.
    pub(crate) hides_waiters: bool,
    /// An announcement that is on its way.
    pub(crate) announces: bool,
}

/// The number of another client that never comes.
const NOBODY: u8 = u8::MAX;

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
    /// For tasks that request this mode.
    pub(crate) fn new(mode: Mode) -> Self {
        let (table, key) = (KeyTable::new("backend").with_leases(), Key::new("k").unwrap());
        let (others, handed) = (BTreeMap::new(), Vec::new());
        let (claims, releases, hides_waiters, announces) = (0, 0, false, false);
        let mut backend = Self { mode, table, key, others, handed, claims, releases, hides_waiters, announces };
        // The key was held before, so the first grant may be of several tokens.
        backend.other_comes(NOBODY, 1, Moment::from_micros(1));
        backend.other_goes(NOBODY, Moment::from_micros(1));
        backend
    }

    /// Runs a step, and returns whether it announced a waiter.
    fn step<T>(&mut self, now: Moment, step: impl FnOnce(&mut KeyStep<'_>) -> T) -> (T, bool) {
        let answer = self.table.step(&self.key, ClockReading::from_micros(now.as_micros()), step);
        let mut announces = false;
        for event in self.table.take_events() {
            match event {
                Event::Handed { holder, tokens, .. } if !is_other(holder) => self.handed.push((holder, tokens)),
                Event::Queued { .. } => announces = true,
                _ => {}
            }
        }
        (answer, announces)
    }

    /// Ends the holds that are over. Other clients renew and poll.
    pub(crate) fn expire(&mut self, now: Moment) {
        for claim in self.others.values().cloned().collect::<Vec<_>>() {
            self.step(now, |key| key.claim(&claim.with_intent(Intent::Poll), None)).0.unwrap();
        }
        self.other_goes(NOBODY, now);
    }

    /// All holds, as of the last step.
    pub(crate) fn holders(&self) -> Vec<HolderInfo> {
        self.holding().iter().flat_map(|holding| holding.holders.iter()).cloned().collect()
    }

    fn holding(&self) -> Option<Holding> {
        self.table.list(Moment::default()).pop()
    }

    pub(crate) fn has(&self, holder: HolderId) -> bool {
        self.holding().is_some_and(|holding| holding.has(holder))
    }

    pub(crate) fn is_free(&self) -> bool {
        self.holding().is_none()
    }

    /// Whether another client has all permits.
    pub(crate) fn writes(&self) -> bool {
        let has_all = |hold: &HolderInfo| hold.mode.limit().is_none_or(|limit| hold.mode.weight() == limit);
        self.holders().iter().any(|hold| is_other(hold.holder_id().unwrap()) && has_all(hold))
    }

    /// The permits in use.
    pub(crate) fn used(&self) -> u32 {
        self.holders().iter().map(|hold| hold.mode.weight()).sum()
    }

    /// How many claims of the client wait.
    pub(crate) fn waiting(&self) -> usize {
        let others = self.others.keys().filter(|number| !self.has(other(**number))).count();
        self.holding().map_or(0, |holding| usize::try_from(holding.waiters).unwrap()) - others
    }

    pub(crate) fn claim(&mut self, claim: &Claim, now: Moment) -> Acquire {
        self.claims += 1;
        // As on Redis, a write of the client itself ends the announcement without a message.
        self.step(now, |key| key.claim(claim, None)).0.unwrap()
    }

    pub(crate) fn renew(&mut self, renewal: &Renewal, now: Moment) -> Renew {
        match self.step(now, |key| key.renew(renewal)).0 {
            Renew::Renewed { .. } if self.hides_waiters => Renew::Renewed { waiters: 0 },
            renewed => renewed,
        }
    }

    pub(crate) fn release(&mut self, holder: HolderId, now: Moment) {
        self.releases += u32::from(!is_other(holder));
        self.step(now, |key| key.release(&holder)).0.unwrap();
    }

    /// A claim of another client, unless it waits or holds already.
    pub(crate) fn other_comes(&mut self, number: u8, weight: u32, now: Moment) {
        if self.others.contains_key(&number) {
            return;
        }
        let mode = self.mode.limit().map_or(Mode::Exclusive, |limit| Mode::permits(weight.min(limit), limit).unwrap());
        let holder = Holder { id: other(number), owner: Owner::new("other", 1, None).unwrap() };
        let claim = Claim::new(self.key.clone(), holder, Ttl::default(), Intent::Enqueue).with_mode(mode);
        let (answer, announces) = self.step(now, |key| key.claim(&claim, None));
        answer.unwrap();
        self.announces |= announces;
        self.others.insert(number, claim);
    }

    pub(crate) fn other_goes(&mut self, number: u8, now: Moment) {
        self.others.remove(&number);
        self.release(other(number), now);
    }

    /// A program deletes the holds of the client.
    pub(crate) fn forget(&mut self, now: Moment) {
        let lost = self.holders().into_iter().filter_map(|hold| hold.holder_id()).filter(|holder| !is_other(*holder));
        for holder in lost {
            self.step(now, |key| key.release(&holder)).0.unwrap();
        }
    }
}
