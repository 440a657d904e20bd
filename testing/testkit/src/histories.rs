use crate::SplitMix;
use fencelock_core::{
    Acquire, Backend, Capabilities, Claim, ClockReading, Completion, Downgrade, Eviction, Expiry, FencingToken, Holder,
    HolderId, HolderInfo, Holders, Holding, Intent, Key, KeyTable, Mode, Moment, Occupant, Occupied, Owner, Release,
    Renew, Renewal, Reply, Request, Resize, Ttl,
};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

const HOLDERS: usize = 6;
const STEPS: u64 = 50;
/// A waiter that is silent for longer may be forgotten, so what follows is not compared.
const PROMPT: Duration = Duration::from_secs(1);
const HOUR: u64 = 3_600_000_000;

/// With a clock: how long leases are, in milliseconds. That of a waiter is shorter than any hand-off.
const TTLS: [u64; 6] = [400, 1000, 2000, 2999, 4000, 60_000];
/// With a clock: the microseconds that pass. Leases and waiters end in the last of these milliseconds, and in the next.
const SPANS: [u64; 13] =
    [1, 999, 1000, 1001, 10_000, 399_000, 401_000, 500_000, 1_000_000, 1_001_000, 2_999_000, 3_000_000, 3_001_000];
/// The fencing tokens that a claim wants.
const WANTED: [u32; 6] = [1, 1, 2, 64, 1_000_000, 2_500_000];
/// How far a quorum's proposal is ahead of the time.
const AHEAD: [i64; 9] = [0, 0, 1, -1, 500_000, 1_000_000, 1_000_001, -1_000_001, 10_000_000];

/// Random histories of two clients on a backend and on [`KeyTable`], the specification of a key: both answer the same, and their
/// tokens are in the same order.
#[derive(Debug, Clone, Copy)]
pub struct Histories {
    /// How many there are, each on a key `k0`, `k1` of its own.
    pub number: u64,
    /// The backend has a queue.
    pub queues: bool,
    /// Its holds expire, and so do its waiters.
    pub leases: bool,
    /// A holder may claim in another mode than before, and all modes are mixed.
    pub any_mode: bool,
}

/// Sets the clock of a backend, in microseconds since 1970.
pub type SetClock<'a> = &'a dyn Fn(u64);

impl Histories {
    /// Plays them. Both clients are of one backend. If its clock can be set, time passes in the histories, and tokens and leases
    /// are the same too.
    ///
    /// # Panics
    /// If an answer differs, or a kind of answer is rare.
    pub async fn play(self, clients: [&dyn Backend; 2], clock: Option<SetClock<'_>>) {
        let mut seen = BTreeMap::<String, u32>::new();
        for number in 0..self.number {
            History::new(self, number, clock).play(clients, &mut seen).await;
        }
        let always = ["granted", "busy", "Conflict", "renewed", "taken", "Released", "Absent", "seen", "downgraded"];
        let others = ["resized", "other", "Free", "Written", "NotHeld", "completion"];
        let of_queues: &[&str] = if self.queues { &["queued", "Gone", "Evicted", "Cleared"] } else { &[] };
        for wanted in always.iter().chain(&others).chain(of_queues) {
            assert!(seen.get(*wanted).is_some_and(|times| *times > 5), "{wanted} is rare: {seen:?}");
        }
    }

    /// Readers and writers, a semaphore, whose limit may change, or all, which conflict.
    fn modes(self, history: u64) -> Vec<Mode> {
        let permits = |weight, limit| Mode::permits(weight, limit).unwrap();
        let (x, r) = (Mode::Exclusive, Mode::Shared);
        let semaphore = [permits(1, 3), permits(1, 3), permits(2, 3), permits(3, 3), x];
        match (self.any_mode, history % 6) {
            (_, 0) => vec![x],
            (_, 1) => vec![r, r, r, x],
            (true, 3..) => [&semaphore[..], &[r, permits(1, 2)]].concat(),
            (_, 2 | 3) => semaphore.to_vec(),
            // Where exclusive claims wait too, a server may choose which waiters a claim that conflicts is compared with.
            (false, 4) => vec![permits(1, 2), permits(1, 2), permits(2, 2), permits(1, 2)],
            (false, _) => vec![permits(1, 2), permits(2, 3), r, r],
        }
    }
}

/// What both are asked. Some of it depends on what they said before.
#[derive(Debug, Clone)]
enum Step {
    Claim(Claim, Option<u64>),
    Renew([Renewal; 1]),
    Release(HolderId),
    Downgrade(Renewal, Option<u64>),
    Resize(u32),
    Raise(HolderId, FencingToken),
    Inspect,
    List,
    /// Of some of the holders.
    Evict(Holding),
    ReadCompletion,
    WriteCompletion(HolderId, Completion),
    ClearCompletion(Completion),
    RestoreCompletion(Completion),
}

impl Step {
    fn request<'a>(&'a self, key: &'a Key) -> Request<'a> {
        match self {
            Self::Claim(claim, proposal) => Request::Claim(claim, *proposal),
            Self::Renew(renewals) => Request::Renew(renewals),
            Self::Release(holder) => Request::Release(key, holder),
            Self::Downgrade(hold, proposal) => Request::Downgrade(hold, *proposal),
            Self::Resize(limit) => Request::Resize(key, *limit),
            Self::Raise(holder, to) => Request::Raise(key, holder, *to),
            Self::Inspect => Request::Inspect(key),
            Self::List => Request::List,
            Self::Evict(seen) => Request::Evict(seen),
            Self::ReadCompletion => Request::ReadCompletion(key),
            Self::WriteCompletion(holder, done) => Request::WriteCompletion(key, holder, done),
            Self::ClearCompletion(seen) => Request::ClearCompletion(key, seen),
            Self::RestoreCompletion(seen) => Request::RestoreCompletion(key, seen),
        }
    }
}

/// One history, up to now.
struct History<'a> {
    rules: Histories,
    number: u64,
    clock: Option<SetClock<'a>>,
    key: Key,
    rng: SplitMix,
    table: KeyTable,
    begun: u64,
    /// Microseconds since 1970: those of the backend if its clock is set.
    now: u64,
    ids: [u128; HOLDERS],
    /// When those that wait claimed last.
    waits: BTreeMap<usize, u64>,
    ttls: [u64; HOLDERS],
    tokens: BTreeMap<FencingToken, FencingToken>,
}

impl<'a> History<'a> {
    fn new(rules: Histories, number: u64, clock: Option<SetClock<'a>>) -> Self {
        let since = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        let table = KeyTable::new("table");
        // With a clock, a day after the previous one.
        let begun =
            if clock.is_some() { (20_000 + number) * 24 * HOUR } else { u64::try_from(since.as_micros()).unwrap() };
        Self {
            rules,
            number,
            clock,
            key: Key::new(format!("k{number}")).unwrap(),
            rng: SplitMix::new(number),
            table: if rules.leases { table.with_leases() } else { table },
            begun,
            now: begun,
            ids: std::array::from_fn(|number| number as u128 + 1),
            waits: BTreeMap::new(),
            // Longer than a history takes on a machine that is busy.
            ttls: [600_000; HOLDERS],
            tokens: BTreeMap::new(),
        }
    }

    async fn play(mut self, clients: [&dyn Backend; 2], seen: &mut BTreeMap<String, u32>) {
        let (begun, can) = (Instant::now(), clients[0].capabilities());
        for number in 0..STEPS {
            self.now += 1;
            if let Some(set) = self.clock {
                self.now += if self.rng.percent(30) { self.rng.pick(&SPANS) } else { 0 };
                self.now = if self.rng.percent(30) { self.now.next_multiple_of(1000) } else { self.now };
                set(self.now);
                self.bury(clients).await;
            }
            let by = self.rng.index(HOLDERS);
            let Some([of_table, of_backend]) = self.step(by, &can, clients[by % 2]).await else { continue };
            let expected = self.of_table(&of_table);
            let answer = self.said(clients[by % 2].call(of_backend.request(&self.key)).await, 0);
            if self.clock.is_none() && begun.elapsed() > PROMPT {
                return;
            }
            assert_eq!(answer.0, expected.0, "history {}, step {number}, {of_backend:?}", self.number);
            if let Some((of_table, token)) = expected.1.zip(answer.1) {
                assert_eq!(*self.tokens.entry(of_table).or_insert(token), token, "the same grant");
                assert!(self.tokens.values().is_sorted_by(|one, next| one < next), "{:?}", self.tokens);
            }
            if answer.0.starts_with("queued") {
                self.waits.insert(by, self.millis());
            } else if matches!(of_backend, Step::Claim(..) | Step::Release(_)) {
                self.waits.remove(&by);
            }
            if answer.0 == "Free" {
                self.hand_over(clients[0]).await;
            }
            *seen.entry(answer.0.split([':', ' ', '(']).next().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }

    const fn millis(&self) -> u64 {
        self.now / 1000
    }

    fn of_table(&mut self, step: &Step) -> (String, Option<FencingToken>) {
        // A lease lasts for whole milliseconds, and a server counts them.
        let at = ClockReading { now: Moment::from_micros(self.millis() * 1000), wall_micros: self.now };
        let reply = self.table.answer(step.request(&self.key), at);
        self.said(reply, self.late())
    }

    /// Who holds the key, in the table.
    fn held(&self) -> Option<Holding> {
        self.table.list(Moment::from_micros(self.millis() * 1000)).into_iter().next()
    }

    /// With a clock, a lease of the table ends a millisecond later, because that of a server includes its last millisecond.
    fn late(&self) -> u64 {
        u64::from(self.clock.is_some())
    }

    /// Waiters that were silent for too long have died: they leave the queue, and others have their number.
    async fn bury(&mut self, clients: [&dyn Backend; 2]) {
        let (now, life) = (self.millis(), u64::try_from(KeyTable::WAITER_LIFE.as_millis()).unwrap());
        let silent: Vec<_> =
            self.waits.iter().filter(|(_, last)| now - **last >= life).map(|(number, _)| *number).collect();
        if silent.is_empty() {
            return;
        }
        let held = self.held();
        for number in silent {
            self.waits.remove(&number);
            let id = HolderId::from_bytes(self.ids[number].to_be_bytes());
            if !held.as_ref().is_some_and(|seen| seen.has(id)) {
                self.of_table(&Step::Release(id));
                self.ids[number] += HOLDERS as u128;
            }
        }
        self.hand_over(clients[0]).await;
    }

    /// Waiters that fit have the key in both, also if only one of them looked for some.
    async fn hand_over(&mut self, client: &dyn Backend) {
        let nobody = Step::Release(HolderId::from_bytes([255; 16]));
        self.of_table(&nobody);
        client.call(nobody.request(&self.key)).await;
    }

    /// For the table and for the backend.
    async fn step(&mut self, by: usize, can: &Capabilities, client: &dyn Backend) -> Option<[Step; 2]> {
        let modes = self.rules.modes(self.number);
        let (kind, done, proposal) = (self.rng.below(40), self.completion(), self.proposal(can));
        let intent = self.rng.pick(&[Intent::Try, Intent::Enqueue, Intent::Enqueue, Intent::Poll]);
        let intent = match intent {
            // Without a queue, the intents are one. That of a quorum is not used.
            _ if !self.rules.queues || proposal.is_some() => Intent::Try,
            // A server may forget it.
            Intent::Try if self.clock.is_some() && self.waits.contains_key(&by) => Intent::Poll,
            intent => intent,
        };
        if self.clock.is_some() && !self.waits.contains_key(&by) {
            let most = if intent == Intent::Enqueue { 4 } else { TTLS.len() };
            self.ttls[by] = self.rng.pick(&TTLS[..most]);
        }
        let mode = if self.rules.any_mode { self.rng.pick(&modes) } else { modes[by % modes.len()] };
        let (limit, block) = (u32::try_from(self.rng.below(5) + 1).unwrap(), self.rng.pick(&WANTED));
        let near = self.tokens.keys().last().map_or(1, |last| last.get()).saturating_add(self.rng.pick(&[0, 0, 1, 9]));
        let raised = FencingToken::new(near.saturating_sub(self.rng.below(2)).max(1)).unwrap();
        let present = self.held().and_then(|held| held.first().holder_id());
        let step = |late| {
            let ttl = Ttl::new(Duration::from_millis(self.ttls[by] + late)).unwrap();
            let id = HolderId::from_bytes(self.ids[by].to_be_bytes());
            let renewal = Renewal::new(self.key.clone(), id, ttl);
            let holder = Holder { id, owner: Owner::from_text(&format!("box:{by}")) };
            let claim = Claim::new(self.key.clone(), holder, ttl, intent).with_mode(mode);
            let claim = claim.with_block(NonZeroU32::new(block).unwrap());
            match kind {
                0..16 => Step::Claim(claim, proposal),
                16..19 => Step::Renew([renewal]),
                19..25 => Step::Release(id),
                25 | 26 => Step::Downgrade(renewal, proposal),
                27 => Step::Resize(limit),
                28 | 29 => Step::Inspect,
                30 => Step::List,
                // A file is locked by one client.
                31 if self.rules.queues => Step::WriteCompletion(present.unwrap_or(id), done.clone()),
                31 | 32 => Step::WriteCompletion(id, done.clone()),
                // A file that is locked shows no change of it.
                33 if self.rules.queues || present.is_none() => Step::ClearCompletion(done.clone()),
                34 if can.node => Step::RestoreCompletion(done.clone()),
                35 if proposal.is_some() => Step::Raise(id, raised),
                _ => Step::ReadCompletion,
            }
        };
        let steps = [step(self.late()), step(0)];
        let evicts = can.evicts && kind > 37;
        match &steps[0] {
            // It reads all keys.
            Step::List if self.number > 20 => None,
            Step::Resize(_) if !self.rules.any_mode && self.number % 6 <= 3 => None,
            _ if !evicts => Some(steps),
            _ => {
                let (of_table, of_backend) = self.held().zip(client.inspect(&self.key).await.unwrap())?;
                Some([of_table, of_backend].map(|seen| Step::Evict(if limit > 3 { seen } else { one_of(&seen) })))
            }
        }
    }

    /// Of few runs, so that a later one is common.
    fn completion(&mut self) -> Completion {
        let until = self.begun - HOUR / 2 + self.rng.pick(&[0, HOUR, 2 * HOUR, 2 * HOUR + 1]);
        let run = self.rng.index(4);
        let granted = [1, self.begun + HOUR, 1, self.begun + 3 * HOUR][run];
        let token = FencingToken::new(run as u64 + 1).unwrap();
        Completion::new(until, token, granted, Owner::from_text("box:1 nightly"))
    }

    /// Of a quorum, in some of the histories in which the tokens are the same.
    fn proposal(&mut self, can: &Capabilities) -> Option<u64> {
        let proposal = self.now.saturating_add_signed(self.rng.pick(&AHEAD));
        Some(proposal).filter(|_| can.node && self.clock.is_some() && self.number % 24 < 2)
    }

    /// An answer without what may differ, and the last token that it grants. With a clock nothing may differ but when a lease of the
    /// table ends.
    fn said(&self, reply: Reply, late: u64) -> (String, Option<FencingToken>) {
        let exactly = |text: String| if self.clock.is_some() { text } else { String::new() };
        let ends = |expiry: Expiry| match expiry {
            Expiry::In(left) => exactly(format!(" for {} ms", left.as_millis() - u128::from(late))),
            Expiry::Never => String::new(),
        };
        let by = |occupied: Occupied| format!("{}{}", ids(&occupied.holders), ends(occupied.expiry));
        let of_hold = |hold: &HolderInfo| {
            let fence = exactly(format!(" {:?}", hold.fence));
            format!("{:?} {:?}{}{fence}", hold.holder_id(), hold.mode, ends(hold.expiry))
        };
        let held = |seen: Option<Holding>| {
            seen.map(|seen| {
                let mut holders: Vec<_> = seen.holders.iter().map(of_hold).collect();
                holders.sort_unstable();
                let queue: Vec<_> =
                    seen.queue.into_iter().flatten().map(|waiter| (waiter.holder, waiter.mode)).collect();
                (seen.holders.count(), holders, seen.waiters, queue)
            })
        };
        let said = match reply {
            Reply::Claim(reply) => match reply.answer.unwrap() {
                Acquire::Granted { tokens } => {
                    return (format!("granted{}", exactly(format!(": {tokens:?}"))), Some(tokens.last()));
                }
                Acquire::Busy(occupied) => format!("busy: {}", by(occupied)),
                Acquire::Queued { ahead, occupied, .. } => format!("queued: {ahead}, {}", by(occupied)),
                // The weight of a claim that it conflicts with may be that of any of them.
                Acquire::Conflict(mode) => format!("Conflict: {:?}", mode.limit()),
                Acquire::Gone => "Gone".to_owned(),
            },
            Reply::Renew(mut replies) => match replies.remove(0).unwrap() {
                Renew::Renewed { waiters } => format!("renewed: {waiters} wait"),
                Renew::TakenBy(by) => format!("taken: {}", ids(&by)),
                Renew::Absent => "Absent".to_owned(),
            },
            Reply::Release(Release::TakenBy(by)) | Reply::Downgrade(Downgrade::TakenBy(by)) => {
                format!("taken: {}", ids(&by))
            }
            Reply::Downgrade(Downgrade::Downgraded { token }) => {
                return (format!("downgraded{}", exactly(format!(": {token:?}"))), Some(token));
            }
            Reply::Resize(Resize::OtherMode { mode, holders }) => {
                format!("other mode: {:?}, {}", mode.limit(), ids(&holders))
            }
            Reply::Resize(Resize::Resized(seen)) => format!("resized: {seen:?}"),
            Reply::Inspect(seen) => format!("seen: {:?}", held(*seen)),
            Reply::List(all) => {
                format!(
                    "seen: {:?}",
                    held(all.into_iter().find(|seen| seen.key == self.key).map(|seen| seen.with_queue(None)))
                )
            }
            Reply::Evict(Eviction::Changed(seen)) => format!("Changed: {:?}", held(seen.map(|seen| *seen))),
            Reply::Completion(read) => format!("completion: {:?}", read.completion),
            Reply::Release(answer) => format!("{answer:?}"),
            Reply::Downgrade(answer) => format!("{answer:?}"),
            Reply::Resize(answer) => format!("{answer:?}"),
            Reply::Raise(answer) => format!("{answer:?}"),
            Reply::Evict(answer) => format!("{answer:?}"),
            Reply::Written(answer) => format!("{answer:?}"),
            Reply::Cleared(answer) => format!("{answer:?}"),
            other => format!("{other:?}"),
        };
        (said, None)
    }
}

/// The same without the other holders.
fn one_of(seen: &Holding) -> Holding {
    let first = seen.holders.iter().min_by_key(|hold| hold.holder_id().map(|id| format!("{id:?}"))).unwrap();
    Holding::new(seen.key.clone(), first.clone())
}

fn ids(holders: &Holders<Occupant>) -> String {
    let mut ids: Vec<_> = holders.iter().map(|by| format!("{:?}", by.holder_id())).collect();
    ids.sort_unstable();
    format!("{} {ids:?}", holders.count())
}
