//! The server against [`KeyTable`], the specification of a key: in random histories of two clients both answer the same, and their
//! tokens are in the same order.

use fencelock_core::{
    Acquire, Backend, Claim, ClockReading, FencingToken, Holder, HolderId, Intent, Key, KeyTable, Owner, Release,
    Renew, Renewal, Ttl,
};
use fencelock_postgres::Postgres;
use fencelock_testkit::{SplitMix, postgres_or_skip};
use std::collections::BTreeMap;
use std::time::Duration;

const HOLDERS: u64 = 5;
const HISTORIES: u64 = 60;
const STEPS: u64 = 40;

/// An answer without durations and tokens, and the last token that it grants.
type Said = (String, Option<FencingToken>);

fn said(answer: &Acquire) -> Said {
    match answer {
        Acquire::Granted { tokens } => ("granted".to_owned(), Some(tokens.last())),
        Acquire::Busy(by) => (format!("busy: {:?}", by.holders), None),
        Acquire::Queued { ahead, occupied, .. } => (format!("queued: {ahead}, {:?}", occupied.holders), None),
        other => (format!("{other:?}"), None),
    }
}

fn claim(key: &Key, number: u64, intent: Intent) -> Claim {
    let id = HolderId::from_bytes(u128::from(number + 1).to_be_bytes());
    let holder = Holder { id, owner: Owner::from_text(&format!("box:{number}")) };
    // Longer than a history takes on a machine that is busy.
    Claim::new(key.clone(), holder, Ttl::new(Duration::from_secs(600)).expect("a valid TTL"), intent)
}

#[tokio::test]
async fn the_server_answers_as_the_table() {
    let Some(server) = postgres_or_skip() else { return };
    let url = format!("{}?create=true&timeout=10000", server.url("postgres"));
    let clients = [Postgres::open(&url).await.expect("a server"), Postgres::open(&url).await.expect("a server")];
    let mut seen = BTreeMap::<String, u32>::new();
    for history in 0..HISTORIES {
        let (key, mut rng) = (Key::new(format!("k{history}")).expect("valid"), SplitMix::new(history));
        let mut table = KeyTable::new("table");
        let mut tokens = BTreeMap::new();
        for step in 0..STEPS {
            let (number, kind) = (rng.below(HOLDERS), rng.below(12));
            let client = &clients[usize::try_from(number % 2).expect("small")];
            let intent = rng.pick(&[Intent::Try, Intent::Enqueue, Intent::Enqueue, Intent::Poll]);
            let claim = claim(&key, number, intent);
            let renewal = Renewal::new(key.clone(), claim.holder.id, claim.ttl);
            let at = ClockReading::from_micros(step + 1);
            let (expected, answer): (Said, Said) = match kind {
                0..6 => {
                    let expected = table.step(&key, at, |key| key.claim(&claim, None)).expect("an answer");
                    (said(&expected), said(&client.acquire(&claim).await.answer.expect("an answer")))
                }
                6..8 => {
                    let expected: Renew = table.step(&key, at, |key| key.renew(&renewal));
                    let answer = client.renew(&[renewal]).await.remove(0).expect("an answer");
                    ((format!("{expected:?}"), None), (format!("{answer:?}"), None))
                }
                8..11 => {
                    let expected: Release =
                        table.step(&key, at, |key| key.release(&claim.holder.id)).expect("an answer");
                    let answer = client.release(&key, &claim.holder.id).await.expect("an answer");
                    ((format!("{expected:?}"), None), (format!("{answer:?}"), None))
                }
                _ => {
                    let brief = |seen: Option<fencelock_core::Holding>| {
                        let held = seen.map(|seen| (seen.first().holder_id(), seen.first().mode, seen.waiters));
                        (format!("seen: {held:?}"), None)
                    };
                    let expected = table.step(&key, at, |key| key.inspect());
                    (brief(expected), brief(client.inspect(&key).await.expect("an answer")))
                }
            };
            assert_eq!(answer.0, expected.0, "history {history}, step {step}: {claim:?}");
            if let Some((of_table, token)) = expected.1.zip(answer.1) {
                assert_eq!(*tokens.entry(of_table).or_insert(token), token, "the same grant");
                assert!(tokens.values().is_sorted_by(|one, next| one < next), "{tokens:?}");
            }
            let kind = answer.0.split([':', ' ', '(']).next().unwrap_or_default().to_owned();
            *seen.entry(kind).or_default() += 1;
        }
    }
    for wanted in ["granted", "busy", "queued", "Gone", "Renewed", "TakenBy", "Released", "Absent", "seen"] {
        assert!(seen.get(wanted).is_some_and(|times| *times > 5), "{wanted} is rare: {seen:?}");
    }
}
