//! Claims and releases that are made at the same time share a request.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod dead;
mod order;

use fencelock::backends::connect;
use fencelock_core::{
    Acquire, Backend, Claim, ClaimReply, Fault, Holder, HolderId, Intent, Key, Owner, Release, Response, Ttl,
};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip};
use futures_util::future::join_all;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The number of requests that are sent alone before others are combined.
const ALONE: usize = 4;
/// The maximum length of a batch.
const LONGEST: usize = 64;
const SOON: Duration = Duration::from_secs(20);
/// Longer than a busy machine stops.
const PATIENT: &str = "?timeout=10000";

/// A backend that has served a claim, so that later claims use the common case.
async fn backend(server: &RedisServer, options: &str) -> Arc<dyn Backend> {
    let backend = connect(&format!("{}{options}", server.url())).await.unwrap();
    let first = claim("first");
    assert!(is_granted(&backend.acquire(&first).await.answer.unwrap()));
    assert_eq!(backend.release(&first.key, &first.holder.id).await.unwrap(), Release::Released);
    backend
}

/// A claim whose holder follows from the key.
fn claim(key: &str) -> Claim {
    let mut id = [1; 16];
    for (byte, letter) in id.iter_mut().zip(key.bytes()) {
        *byte = letter;
    }
    let holder = Holder { id: HolderId::from_bytes(id), owner: Owner::from_text("test:1") };
    Claim::new(Key::new(key).unwrap(), holder, Ttl::new(Duration::from_secs(30)).unwrap(), Intent::Enqueue)
}

fn claims(count: usize) -> Vec<Claim> {
    (0..count).map(|number| claim(&format!("key:{number}"))).collect()
}

fn is_granted(answer: &Acquire) -> bool {
    matches!(answer, Acquire::Granted { .. })
}

/// Acquires or releases all of them at the same time.
async fn acquire_all(backend: &dyn Backend, claims: &[Claim]) -> Vec<Acquire> {
    let all = join_all(claims.iter().map(|claim| backend.acquire(claim)));
    let replies = tokio::time::timeout(SOON, all).await.unwrap();
    replies.into_iter().map(|reply| reply.answer.unwrap()).collect()
}

async fn release_all(backend: &dyn Backend, claims: &[Claim]) -> Vec<Release> {
    let all = join_all(claims.iter().map(|claim| backend.release(&claim.key, &claim.holder.id)));
    let answers = tokio::time::timeout(SOON, all).await.unwrap();
    answers.into_iter().map(|answer| answer.unwrap()).collect()
}

/// Starts one request for each claim. All but the first few have joined a batch that has not been sent yet.
async fn start<'a>(backend: &'a dyn Backend, claims: &'a [Claim]) -> Vec<Option<Response<'a, ClaimReply>>> {
    let mut started = Vec::new();
    for claim in claims {
        let mut request = backend.acquire(claim);
        assert!(once(&mut request).await.is_pending());
        started.push(Some(request));
    }
    started
}

/// Polls a request once.
async fn once<T>(request: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *request).poll(context))).await
}

/// The number of scripts that the server has executed since the last call.
fn scripts(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "commandstats"]);
    let count = |line: &str| -> Option<u64> {
        let counts =
            line.strip_prefix("cmdstat_evalsha:calls=").or_else(|| line.strip_prefix("cmdstat_eval:calls="))?;
        counts.split(',').next()?.parse().ok()
    };
    let executed = info.text().unwrap().lines().filter_map(count).sum();
    server.command(&["CONFIG", "RESETSTAT"]);
    executed
}

fn exists(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(1)
}

#[tokio::test]
async fn requests_that_are_made_together_are_one_script() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + LONGEST));
    for round in 0..3 {
        scripts(&server);
        assert!(acquire_all(&*backend, &claims).await.iter().all(is_granted), "round {round}");
        assert_eq!(scripts(&server), ALONE as u64 + 1, "round {round}");
        assert!(claims.iter().all(|claim| exists(&server, claim.key.as_str())));
        assert!(release_all(&*backend, &claims).await.iter().all(|release| *release == Release::Released));
        assert_eq!(scripts(&server), ALONE as u64 + 1, "round {round}");
        assert!(!claims.iter().any(|claim| exists(&server, claim.key.as_str())));
    }
}

#[tokio::test]
async fn more_requests_are_more_scripts() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + 2 * LONGEST + 1));
    scripts(&server);
    assert!(acquire_all(&*backend, &claims).await.iter().all(is_granted));
    assert_eq!(scripts(&server), ALONE as u64 + 3);
    assert_eq!(release_all(&*backend, &claims).await, vec![Release::Released; claims.len()]);
}

/// Proxies that send a script to the server of its first key have no client tracking. Any other lock of the script would be
/// acquired on the wrong server.
#[tokio::test]
async fn requests_are_sent_alone_unless_the_connection_leads_to_one_server() {
    let Some(server) = redis_or_skip() else { return };
    for options in ["?protocol=resp2", "?push=off"] {
        let (backend, claims) = (backend(&server, options).await, claims(ALONE + 10));
        scripts(&server);
        assert!(acquire_all(&*backend, &claims).await.iter().all(is_granted));
        assert_eq!(scripts(&server), claims.len() as u64, "{options}");
        release_all(&*backend, &claims).await;
    }
}

/// `join_all` ends a poll when two of its futures have woken themselves.
#[tokio::test]
async fn all_requests_of_one_task_join_before_it_is_polled_again() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + LONGEST - 1));
    scripts(&server);
    let mut all = Box::pin(join_all(claims.iter().map(|claim| backend.acquire(claim))));
    for _ in 0..2 {
        assert!(poll_fn(|context| Poll::Ready(all.as_mut().poll(context))).await.is_pending());
    }
    let sent = async {
        while !claims.iter().all(|claim| exists(&server, claim.key.as_str())) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, sent).await.unwrap();
    assert_eq!(scripts(&server), ALONE as u64 + 1);
    assert!(all.await.into_iter().all(|reply| is_granted(&reply.answer.unwrap())));
}

#[tokio::test]
async fn a_held_lock_does_not_affect_the_others_and_is_sent_alone_the_next_time() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + 10));
    server.command(&["SET", "key:5", "another"]);
    server.command(&["HSET", "key:6", "a", "1"]);
    scripts(&server);
    for (claim, answer) in claims.iter().zip(acquire_all(&*backend, &claims).await) {
        let is_taken = ["key:5", "key:6"].contains(&claim.key.as_str());
        assert_eq!(matches!(answer, Acquire::Queued { .. }), is_taken, "{}: {answer:?}", claim.key);
        assert_eq!(is_granted(&answer), !is_taken);
    }
    assert_eq!(scripts(&server), ALONE as u64 + 1 + 2, "the two busy locks also by their own scripts");
    release_all(&*backend, &claims).await;
    scripts(&server);
    acquire_all(&*backend, &claims).await;
    assert_eq!(scripts(&server), ALONE as u64 + 1 + 2, "the two busy locks are not in the batch");
}

/// Two requests for one lock must not be in one batch, because the script checks all locks first.
#[tokio::test]
async fn a_lock_is_granted_once_and_released_once() {
    let Some(server) = redis_or_skip() else { return };
    let backend = backend(&server, PATIENT).await;
    let mut claims = claims(ALONE + 10);
    for claim in &mut claims[6..12] {
        claim.key = Key::new("key:5").unwrap();
    }
    let granted: Vec<_> = acquire_all(&*backend, &claims).await.iter().map(is_granted).collect();
    let number_of = |key: &str| {
        claims.iter().zip(&granted).filter(|(claim, granted)| claim.key.as_str() == key && **granted).count()
    };
    assert_eq!((number_of("key:5"), granted.iter().filter(|granted| **granted).count()), (1, claims.len() - 6));

    let mut held: Vec<_> =
        claims.iter().zip(&granted).filter(|(_, granted)| **granted).map(|(claim, _)| claim.clone()).collect();
    let waiting: Vec<_> =
        claims.iter().zip(&granted).filter(|(_, granted)| !**granted).map(|(claim, _)| claim.clone()).collect();
    release_all(&*backend, &waiting).await;
    let twice = held.last().unwrap().clone();
    held.push(twice);
    let releases = release_all(&*backend, &held).await;
    assert_eq!(releases.iter().filter(|release| **release == Release::Released).count(), held.len() - 1);
}

#[tokio::test]
async fn a_user_without_a_right_to_one_key_does_not_stop_the_others() {
    let Some(server) = redis_or_skip() else { return };
    let keys = ["~key:*", "~fencelock:{key:*", "~first", "~fencelock:{first*"];
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "&*", "+@all"];
    server.command(&[&user[..], &keys].concat());
    let url = server.url().replace("redis://", "redis://app:pw@");
    let backend = connect(&url).await.unwrap();
    assert!(is_granted(&backend.acquire(&claim("first")).await.answer.unwrap()));
    let mut claims = claims(ALONE + 10);
    claims[7] = claim("other");
    for executed in [claims.len(), ALONE + 1 + 1] {
        scripts(&server);
        let all = join_all(claims.iter().map(|claim| backend.acquire(claim)));
        for (number, reply) in tokio::time::timeout(SOON, all).await.unwrap().into_iter().enumerate() {
            match reply.answer {
                Ok(answer) => assert!(is_granted(&answer) && number != 7, "{number}: {answer:?}"),
                Err(unknown) => assert_eq!((number, unknown.nodes()[0].fault), (7, Fault::Denied), "{unknown}"),
            }
        }
        // The server counts refused commands as well. The next time, the refused lock is sent alone.
        let counted = scripts(&server);
        assert!(counted <= executed as u64 + 1, "{counted} scripts instead of {executed}");
        for claim in &claims {
            server.command(&["DEL", claim.key.as_str()]);
        }
    }
}

#[tokio::test]
async fn a_server_that_loses_its_scripts_or_restarts_grants_as_before() {
    let Some(mut server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + 10));
    assert!(acquire_all(&*backend, &claims).await.iter().all(is_granted));
    for _ in 0..2 {
        server.command(&["SCRIPT", "FLUSH"]);
        assert!(release_all(&*backend, &claims).await.iter().all(|release| *release == Release::Released));
        assert!(acquire_all(&*backend, &claims).await.iter().all(is_granted));
    }
    server.restart_empty().unwrap();
    let lost = join_all(claims.iter().map(|claim| backend.acquire(claim))).await;
    assert!(lost.iter().flat_map(|reply| &reply.answer).all(is_granted));
    assert!(acquire_all(&*backend, &claims).await.iter().all(is_granted), "the same holders again");
}

#[tokio::test]
async fn an_unresponsive_server_leaves_every_request_unknown() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, "?timeout=200").await, claims(ALONE + 10));
    server.command(&["CLIENT", "PAUSE", "1000", "ALL"]);
    let replies =
        tokio::time::timeout(SOON, join_all(claims.iter().map(|claim| backend.acquire(claim)))).await.unwrap();
    for reply in replies {
        assert_eq!(reply.answer.unwrap_err().nodes()[0].fault, Fault::Timeout);
    }
    // Claims that arrive later are released by the requests that follow.
    let settled = async {
        loop {
            for claim in &claims {
                let _ = backend.release(&claim.key, &claim.holder.id).await;
            }
            if !claims.iter().any(|claim| exists(&server, claim.key.as_str())) {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, settled).await.unwrap();
}
