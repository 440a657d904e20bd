//! Elections, on every kind of backend.

use crate::backends::TestBackend;
use crate::facts::{GENEROUS, client, sure};
use fencelock::{Client, Error, Leader, Leadership, Observation, Observer};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

async fn elected(campaign: JoinHandle<Result<Leadership, Error>>) -> Leadership {
    timeout(GENEROUS, campaign).await.expect("elected").unwrap().unwrap()
}

fn candidate(client: &Client, value: &str) -> JoinHandle<Result<Leadership, Error>> {
    tokio::spawn(client.election("e").value(value).campaign())
}

/// The terms that an observer sees until it sees one that is last.
fn terms_until(
    mut observer: Observer,
    seen: watch::Sender<u64>,
    mut last: watch::Receiver<u64>,
) -> JoinHandle<Vec<u64>> {
    tokio::spawn(async move {
        let mut terms: Vec<u64> = Vec::new();
        while terms.last().is_none_or(|term| *term != *last.borrow()) {
            let change = tokio::select! {
                change = timeout(GENEROUS, observer.next()) => change.expect("it goes on").expect("the client is open"),
                // The last leader may have been seen before it was announced as such.
                Ok(()) = last.changed() => continue,
            };
            let Observation::Leader(Leader { term: Some(term), .. }) = change else { continue };
            // After trouble the same leader is reported again.
            if terms.last() != Some(&term.get()) {
                terms.push(term.get());
            }
            seen.send_replace(term.get());
        }
        terms
    })
}

/// Leaders that resign, are dropped or lose their term, beside candidates that withdraw. One observer keeps up, as each
/// leader waits for it; another sees what it can.
pub(crate) async fn observers_see_every_leader_in_the_order_of_terms(backend: &TestBackend) {
    let clients = [client(backend, true).await, client(backend, true).await];
    let facts = clients[0].capabilities();
    let changes = match backend {
        // Nobody is told of an eviction, which is seen at the next renewal, or of a new leader.
        TestBackend::Register(..) => 4,
        _ if facts.queues => 200,
        _ => 40,
    };
    let (announce, last) = watch::channel(0);
    let (report, mut newest) = watch::channel(0);
    let observer = client(backend, true).await;
    let every = terms_until(observer.election("e").observe().unwrap(), report, last.clone());
    let some = terms_until(clients[0].election("e").observe().unwrap(), watch::channel(0).0, last);
    let (mut led, mut next) = (Vec::new(), candidate(&clients[0], "v"));
    for number in 1..=changes {
        let leadership = elected(next).await;
        led.push(leadership.term().get());
        next = candidate(&clients[number % 2], "v");
        if number % 5 == 0 {
            candidate(&clients[1], "withdrawn").abort();
        }
        if number == changes {
            announce.send_replace(leadership.term().get());
        }
        let term = leadership.term().get();
        timeout(GENEROUS, newest.wait_for(|newest| *newest == term)).await.expect("seen").unwrap();
        match number % 3 {
            _ if number == changes => {
                // The other observer is not waited for before.
                let seen = timeout(GENEROUS, some).await.expect("the last leader is seen").unwrap();
                assert!(seen.is_sorted_by(|one, two| one < two), "{seen:?}");
                leadership.resign().await.unwrap();
                break;
            }
            0 if facts.evicts => {
                let holding = sure(|| observer.inspect("e")).await.expect("it leads");
                sure(|| observer.evict(&holding)).await;
                timeout(GENEROUS, leadership.lost()).await.expect("lost");
            }
            1 => drop(leadership),
            _ => leadership.resign().await.unwrap(),
        }
    }
    next.abort();
    assert_eq!(timeout(GENEROUS, every).await.expect("all are seen").unwrap(), led);
}

pub(crate) async fn work_ends_with_the_term_and_begins_again_with_the_next(backend: &TestBackend) {
    let (client, other) = (client(backend, true).await, client(backend, true).await);
    if !client.capabilities().evicts {
        // Only the holder can end a term there.
        return;
    }
    let (began, mut terms) = watch::channel(0);
    let work = tokio::spawn(client.election("e").value("v").run_while_leader(move |held| {
        let rounds = began.clone();
        async move {
            rounds.send_replace(held.fencing_token().get());
            std::future::pending::<Result<(), ()>>().await
        }
    }));
    let mut before = 0;
    for _ in 0..3 {
        let term = *timeout(GENEROUS, terms.wait_for(|term| *term > before)).await.expect("it leads").unwrap();
        before = term;
        let holding = sure(|| other.inspect("e")).await.expect("it leads");
        sure(|| other.evict(&holding)).await;
    }
    timeout(GENEROUS, terms.wait_for(|term| *term > before)).await.expect("it leads again").unwrap();
    work.abort();
}
