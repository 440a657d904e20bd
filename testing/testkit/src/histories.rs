use crate::SplitMix;
use fencelock_core::{
    Acquire, Backend, Claim, ClockReading, Downgrade, FencingToken, Holder, HolderId, Holders, Holding, Intent, Key,
    KeyTable, Mode, Occupied, Owner, Release, Renew, Renewal, Resize, Ttl,
};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

const HOLDERS: usize = 6;
const STEPS: u64 = 50;
/// A waiter that is silent for longer may be forgotten, so what follows is not compared.
const PROMPT: Duration = Duration::from_secs(1);

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

/// An answer without tokens and durations, and the last token that it grants.
type Said = (String, Option<FencingToken>);

impl Histories {
    /// Plays them. Both clients are of one backend.
    ///
    /// # Panics
    /// If an answer differs, or a kind of answer is rare.
    pub async fn play(self, clients: [&dyn Backend; 2]) {
        let mut seen = BTreeMap::<String, u32>::new();
        for history in 0..self.number {
            self.play_one(history, clients, &mut seen).await;
        }
        let always = ["granted", "busy", "Conflict", "renewed", "taken", "Released", "Absent", "seen", "downgraded"];
        let of_queues: &[&str] = if self.queues { &["queued", "Gone"] } else { &[] };
        for wanted in always.iter().chain(&["resized", "other", "Free"]).chain(of_queues) {
            assert!(seen.get(*wanted).is_some_and(|times| *times > 5), "{wanted} is rare: {seen:?}");
        }
    }

    async fn play_one(self, history: u64, clients: [&dyn Backend; 2], seen: &mut BTreeMap<String, u32>) {
        let (key, mut rng, begun) = (Key::new(format!("k{history}")).unwrap(), SplitMix::new(history), Instant::now());
        let table = KeyTable::new("table");
        let mut table = if self.leases { table.with_leases() } else { table };
        let (modes, resizes, mut tokens) = (self.modes(history), self.any_mode || history % 6 > 3, BTreeMap::new());
        for step in 0..STEPS {
            let (number, kind) = (rng.index(HOLDERS), rng.below(25));
            let intent = rng.pick(&[Intent::Try, Intent::Enqueue, Intent::Enqueue, Intent::Poll]);
            // Without a queue, the intents are one.
            let intent = if self.queues { intent } else { Intent::Try };
            let mode = if self.any_mode { rng.pick(&modes) } else { modes[number % modes.len()] };
            let claim = claim(&key, number, intent, mode);
            let request = Request::of(kind, u32::try_from(step % 5 + 1).unwrap());
            if matches!(request, Request::Resize(_)) && !resizes {
                continue;
            }
            let expected = request.of_table(&mut table, ClockReading::from_micros(step + 1), &claim);
            let answer = request.of_backend(clients[number % 2], &claim).await;
            if begun.elapsed() > PROMPT {
                return;
            }
            assert_eq!(answer.0, expected.0, "history {history}, step {step}, {request:?}: {claim:?}");
            if let Some((of_table, token)) = expected.1.zip(answer.1) {
                assert_eq!(*tokens.entry(of_table).or_insert(token), token, "the same grant");
                assert!(tokens.values().is_sorted_by(|one, next| one < next), "{tokens:?}");
            }
            *seen.entry(answer.0.split([':', ' ', '(']).next().unwrap_or_default().to_owned()).or_default() += 1;
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

fn claim(key: &Key, number: usize, intent: Intent, mode: Mode) -> Claim {
    let id = HolderId::from_bytes((number as u128 + 1).to_be_bytes());
    let holder = Holder { id, owner: Owner::from_text(&format!("box:{number}")) };
    // Longer than a history takes on a machine that is busy.
    Claim::new(key.clone(), holder, Ttl::new(Duration::from_secs(600)).unwrap(), intent).with_mode(mode)
}

#[derive(Debug, Clone, Copy)]
enum Request {
    Claim,
    Renew,
    Release,
    Downgrade,
    Resize(u32),
    Inspect,
}

impl Request {
    fn of(kind: u64, limit: u32) -> Self {
        match kind {
            0..12 => Self::Claim,
            12..15 => Self::Renew,
            15..21 => Self::Release,
            21 => Self::Downgrade,
            22 => Self::Resize(limit),
            _ => Self::Inspect,
        }
    }

    fn of_table(self, table: &mut KeyTable, at: ClockReading, claim: &Claim) -> Said {
        table.step(&claim.key, at, |key| match self {
            Self::Claim => of_claim(key.claim(claim, None).unwrap()),
            Self::Renew => (of_renewal(key.renew(&renewal(claim))), None),
            Self::Release => (of_release(key.release(&claim.holder.id).unwrap()), None),
            Self::Downgrade => of_downgrade(key.downgrade(&renewal(claim), None).unwrap()),
            Self::Resize(limit) => (of_resize(key.resize(limit).unwrap()), None),
            Self::Inspect => (of_holding(key.inspect()), None),
        })
    }

    async fn of_backend(self, client: &dyn Backend, claim: &Claim) -> Said {
        let (key, holder) = (&claim.key, &claim.holder.id);
        match self {
            Self::Claim => of_claim(client.acquire(claim).await.answer.unwrap()),
            Self::Renew => (of_renewal(client.renew(&[renewal(claim)]).await.remove(0).unwrap()), None),
            Self::Release => (of_release(client.release(key, holder).await.unwrap()), None),
            Self::Downgrade => of_downgrade(client.downgrade(&renewal(claim)).await.unwrap()),
            Self::Resize(limit) => (of_resize(client.resize(key, limit).await.unwrap()), None),
            Self::Inspect => (of_holding(client.inspect(key).await.unwrap()), None),
        }
    }
}

fn renewal(claim: &Claim) -> Renewal {
    Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl)
}

fn of_claim(answer: Acquire) -> Said {
    let by = |occupied: Occupied| ids(&occupied.holders);
    match answer {
        Acquire::Granted { tokens } => ("granted".to_owned(), Some(tokens.last())),
        Acquire::Busy(occupied) => (format!("busy: {}", by(occupied)), None),
        Acquire::Queued { ahead, occupied, .. } => (format!("queued: {ahead}, {}", by(occupied)), None),
        // The weight of a claim that it conflicts with may be that of any of them.
        Acquire::Conflict(mode) => (format!("Conflict: {:?}", mode.limit()), None),
        Acquire::Gone => ("Gone".to_owned(), None),
    }
}

fn of_renewal(answer: Renew) -> String {
    match answer {
        Renew::Renewed { waiters } => format!("renewed: {waiters} wait"),
        Renew::TakenBy(by) => format!("taken: {}", ids(&by)),
        Renew::Absent => "Absent".to_owned(),
    }
}

fn of_release(answer: Release) -> String {
    if let Release::TakenBy(by) = answer { format!("taken: {}", ids(&by)) } else { format!("{answer:?}") }
}

fn of_downgrade(answer: Downgrade) -> Said {
    match answer {
        Downgrade::Downgraded { token } => ("downgraded".to_owned(), Some(token)),
        Downgrade::TakenBy(by) => (format!("taken: {}", ids(&by)), None),
        Downgrade::Absent => ("Absent".to_owned(), None),
    }
}

fn of_resize(answer: Resize) -> String {
    match answer {
        Resize::Resized(seen) => format!("resized: {seen:?}"),
        Resize::OtherMode { mode, holders } => format!("other mode: {:?}, {}", mode.limit(), ids(&holders)),
        Resize::Free => "Free".to_owned(),
    }
}

/// The holders, and those that wait in the order of their arrival.
fn of_holding(seen: Option<Holding>) -> String {
    let held = seen.map(|seen| {
        let mut holders: Vec<_> =
            seen.holders.iter().map(|hold| format!("{:?} {:?}", hold.holder_id(), hold.mode)).collect();
        holders.sort_unstable();
        let queue: Vec<_> = seen.queue.into_iter().flatten().map(|waiter| (waiter.holder, waiter.mode)).collect();
        (holders, seen.waiters, queue)
    });
    format!("seen: {held:?}")
}

fn ids(holders: &Holders) -> String {
    let mut ids: Vec<_> = holders.iter().map(|by| format!("{:?}", by.holder_id())).collect();
    ids.sort_unstable();
    format!("{ids:?}")
}
