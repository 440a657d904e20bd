//! Tokens over a loss of memory, without any clock that was touched: a key under load, then everything is forgotten, then
//! the next token.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::{File, Memory, connect};
use fencelock_core::{Acquire, Backend, Claim, FencingToken, Intent, Key, Release, TokenBlock, Ttl};
use fencelock_testkit::redis_or_skip;
use std::num::NonZeroU32;
use std::sync::Arc;

const ROUNDS: u32 = 50;
/// The blocks requested between two losses: in total as many tokens as microseconds in some seconds.
const LOAD: [u32; 24] = [
    1, 128, 1024, 8192, 65_536, 100_000, 100_000, 100_000, 100_000, 100_000, 100_000, 100_000, 100_000, 100_000,
    100_000, 100_000, 1_000_000, 1_000_000, 64, 1, 1, 1, 1, 1,
];

fn key() -> Key {
    Key::new("k").unwrap()
}

fn claim(intent: Intent, block: u32) -> Claim {
    fencelock_testkit::claim("k", Ttl::default().get()).with_intent(intent).with_block(NonZeroU32::new(block).unwrap())
}

/// A server that was just replaced breaks its clients' connections: the next request finds the new one.
async fn answered<T, E: std::fmt::Display>(mut request: impl AsyncFnMut() -> Result<T, E>) -> T {
    for _ in 0..200 {
        match request().await {
            Ok(answer) => return answer,
            Err(cause) => println!("retried: {cause}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("no answer");
}

async fn takes(backend: &dyn Backend, block: u32) -> (Claim, TokenBlock) {
    let claim = claim(Intent::Try, block);
    let tokens = match answered(async || backend.acquire(&claim).await.answer).await {
        Acquire::Granted { tokens } => tokens,
        other => panic!("should be granted: {other:?}"),
    };
    (claim, tokens)
}

async fn frees(backend: &dyn Backend, claim: &Claim) {
    assert_eq!(backend.release(&key(), &claim.holder.id).await.unwrap(), Release::Released);
}

/// The greatest token after grants of large blocks, one after the other, and by hand-off where there is a queue.
async fn load(backend: &dyn Backend, above: Option<FencingToken>) -> FencingToken {
    let mut last = above;
    for block in LOAD {
        let (held, tokens) = takes(backend, block).await;
        assert!(last < Some(tokens.first()), "{tokens:?} after {last:?}");
        last = Some(tokens.last());
        let next = claim(Intent::Enqueue, block);
        let queued = matches!(backend.acquire(&next).await.answer.unwrap(), Acquire::Queued { .. });
        frees(backend, &held).await;
        if queued {
            let poll = backend.acquire(&next.with_intent(Intent::Poll)).await.answer.unwrap();
            let Acquire::Granted { tokens } = poll else { panic!("next in the queue: {poll:?}") };
            assert!(last < Some(tokens.last()));
            last = Some(tokens.last());
            frees(backend, &next).await;
        }
    }
    last.unwrap()
}

#[tokio::test]
async fn a_redis_that_is_killed_and_comes_back_empty_grants_greater_tokens() {
    let Some(mut server) = redis_or_skip() else { return };
    let mut last = None;
    for round in 0..ROUNDS {
        let backend = connect(&server.url()).await.unwrap();
        last = Some(load(&*backend, last).await);
        server.restart_empty().unwrap();
        let (held, tokens) = takes(&*backend, 100_000).await;
        assert!(last < Some(tokens.first()), "round {round}: {tokens:?} after {last:?}");
        last = Some(tokens.last());
        frees(&*backend, &held).await;
    }
}

#[tokio::test]
async fn a_directory_whose_lock_files_were_deleted_grants_greater_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let backend = File::open(directory.path()).unwrap();
    let mut last = None;
    for round in 0..ROUNDS {
        last = Some(load(&backend, last).await);
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let (held, tokens) = takes(&backend, 100_000).await;
        assert!(last < Some(tokens.first()), "round {round}: {tokens:?} after {last:?}");
        last = Some(tokens.last());
        frees(&backend, &held).await;
    }
}

#[tokio::test]
async fn a_memory_that_was_dropped_and_made_anew_grants_greater_tokens() {
    let mut last = None;
    for round in 0..ROUNDS {
        let backend: Arc<dyn Backend> = Arc::new(Memory::new());
        let (held, tokens) = takes(&*backend, 100_000).await;
        assert!(last < Some(tokens.first()), "round {round}: {tokens:?} after {last:?}");
        frees(&*backend, &held).await;
        last = Some(load(&*backend, Some(tokens.last())).await);
    }
}
