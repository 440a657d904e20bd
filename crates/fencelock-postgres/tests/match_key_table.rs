//! The server against [`KeyTable`], the specification of a key: in random histories of two clients both answer the same, in all modes,
//! and their tokens are in the same order.

use fencelock_core::{
    Acquire, Backend, Claim, ClockReading, Downgrade, FencingToken, Holder, HolderId, HolderInfo, Holding, Intent, Key,
    KeyTable, Liveness, Mode, ModeChanges, Owner, Renewal, Ttl,
};
use fencelock_postgres::Postgres;
use fencelock_testkit::{SplitMix, postgres_or_skip};
use std::collections::BTreeMap;
use std::time::Duration;

const HOLDERS: u64 = 6;
const HISTORIES: u64 = 120;
const STEPS: u64 = 50;

/// An answer without durations and tokens, and the last token that it grants.
type Said = (String, Option<FencingToken>);

fn of_claim(answer: &Acquire) -> Said {
    match answer {
        Acquire::Granted { tokens } => ("granted".to_owned(), Some(tokens.last())),
        Acquire::Busy(by) => (format!("busy: {:?}", by.holders), None),
        Acquire::Queued { ahead, occupied, .. } => (format!("queued: {ahead}, {:?}", occupied.holders), None),
        other => (format!("{other:?}"), None),
    }
}

fn of_downgrade(answer: &Downgrade) -> Said {
    match answer {
        Downgrade::Downgraded { token } => ("downgraded".to_owned(), Some(*token)),
        other => (format!("downgrade: {other:?}"), None),
    }
}

fn of_holding(seen: Option<Holding>) -> Said {
    let held = seen.map(|seen| {
        let every = |hold: &HolderInfo| match hold.alive {
            Some(Liveness::Renewed { every, .. }) => every,
            _ => None,
        };
        let holders: Vec<_> = seen.holders.iter().map(|hold| (hold.holder_id(), hold.mode, every(hold))).collect();
        let queue: Vec<_> = seen.queue.into_iter().flatten().map(|waiter| (waiter.holder, waiter.mode)).collect();
        (holders, seen.waiters, queue)
    });
    (format!("seen: {held:?}"), None)
}

fn of(answer: impl std::fmt::Debug) -> Said {
    (format!("{answer:?}"), None)
}

fn claim(key: &Key, number: u64, intent: Intent, mode: Mode) -> Claim {
    let id = HolderId::from_bytes(u128::from(number + 1).to_be_bytes());
    let holder = Holder { id, owner: Owner::from_text(&format!("box:{number}")) };
    // Longer than a history takes on a machine that is busy.
    Claim::new(key.clone(), holder, Ttl::new(Duration::from_secs(600)).expect("a valid TTL"), intent).with_mode(mode)
}

/// The modes of a history: readers and writers, a semaphore and its administrators, or all, which conflict.
fn modes(history: u64) -> Vec<Mode> {
    let permits = |weight, limit| Mode::permits(weight, limit).expect("valid");
    let semaphore = [permits(1, 3), permits(1, 3), permits(2, 3), permits(3, 3), Mode::Exclusive];
    match history % 4 {
        0 => vec![Mode::Exclusive],
        1 => vec![Mode::Exclusive, Mode::Shared, Mode::Shared],
        2 => semaphore.to_vec(),
        _ => [&semaphore[..], &[Mode::Shared, permits(1, 2)]].concat(),
    }
}

/// What one request is answered by the table, and by the server.
async fn both(table: &mut KeyTable, client: &Postgres, at: ClockReading, claim: &Claim, kind: u64) -> (Said, Said) {
    let (key, holder) = (&claim.key, &claim.holder.id);
    let renewal = Renewal::new(key.clone(), *holder, claim.ttl);
    match kind {
        0..12 => {
            let expected = table.step(key, at, |key| key.claim(claim, None)).expect("an answer");
            (of_claim(&expected), of_claim(&client.acquire(claim).await.answer.expect("an answer")))
        }
        12..15 => {
            let expected = table.step(key, at, |key| key.renew(&renewal));
            (of(expected), of(client.renew(&[renewal]).await.remove(0).expect("an answer")))
        }
        15..21 => {
            let expected = table.step(key, at, |key| key.release(holder)).expect("an answer");
            (of(expected), of(client.release(key, holder).await.expect("an answer")))
        }
        21 => {
            let expected = table.step(key, at, |key| key.downgrade(&renewal, None)).expect("an answer");
            (of_downgrade(&expected), of_downgrade(&client.downgrade(&renewal).await.expect("an answer")))
        }
        22 => {
            let limit = u32::try_from(at.wall_micros % 5 + 1).expect("small");
            let expected = table.step(key, at, |key| key.resize(limit)).expect("an answer");
            (of(expected), of(ModeChanges::resize(client, key, limit).await.expect("an answer")))
        }
        _ => {
            let expected = table.step(key, at, |key| key.inspect());
            (of_holding(expected), of_holding(client.inspect(key).await.expect("an answer")))
        }
    }
}

#[tokio::test]
async fn the_server_answers_as_the_table() {
    let Some(server) = postgres_or_skip() else { return };
    let url = format!("{}?create=true&timeout=60000", server.url("postgres"));
    let clients = [Postgres::open(&url).await.expect("a server"), Postgres::open(&url).await.expect("a server")];
    let mut seen = BTreeMap::<String, u32>::new();
    // Half of the keys have handed over often before: they come from another server, by logical replication.
    let before = format!("SELECT 'k' || n, 1000000 FROM generate_series(0, {HISTORIES}, 2) n");
    server.sql(&format!("INSERT INTO fencelock.locks (key, head) {before}"));
    for history in 0..HISTORIES {
        let (key, mut rng) = (Key::new(format!("k{history}")).expect("valid"), SplitMix::new(history));
        let (mut table, modes, mut tokens) = (KeyTable::new("table").with_leases(), modes(history), BTreeMap::new());
        for step in 0..STEPS {
            let (number, kind) = (rng.below(HOLDERS), rng.below(25));
            let client = &clients[usize::try_from(number % 2).expect("small")];
            let intent = rng.pick(&[Intent::Try, Intent::Enqueue, Intent::Enqueue, Intent::Poll]);
            let claim = claim(&key, number, intent, rng.pick(&modes));
            let at = ClockReading::from_micros(step + 1);
            let (expected, answer) = both(&mut table, client, at, &claim, kind).await;
            assert_eq!(answer.0, expected.0, "history {history}, step {step}, request {kind}: {claim:?}");
            if let Some((of_table, token)) = expected.1.zip(answer.1) {
                assert_eq!(*tokens.entry(of_table).or_insert(token), token, "the same grant");
                assert!(tokens.values().is_sorted_by(|one, next| one < next), "{tokens:?}");
            }
            let kind = answer.0.split([':', ' ', '(']).next().unwrap_or_default().to_owned();
            *seen.entry(kind).or_default() += 1;
        }
    }
    let wanted = ["granted", "busy", "queued", "Gone", "Conflict", "Renewed", "TakenBy", "Released", "Absent", "seen"];
    for wanted in wanted.iter().chain(&["downgraded", "downgrade", "Resized", "OtherMode", "Free"]) {
        assert!(seen.get(*wanted).is_some_and(|times| *times > 5), "{wanted} is rare: {seen:?}");
    }
}
