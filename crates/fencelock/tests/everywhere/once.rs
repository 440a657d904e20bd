//! Work that succeeds at most once in each window, on every kind of backend.

use crate::backends::TestBackend;
use crate::facts::{GENEROUS, client, sure};
use fencelock::{Client, Error, Once, OnceError, OncePerWindow, WindowDone};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// No test lasts into the next window.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn work(client: &Client) -> OncePerWindow {
    client.once("job", YEAR).label("nightly")
}

/// A run that is repeated while the backend does not reply: a busy machine may miss the time limits of a quorum.
async fn runs<E: std::fmt::Debug + Send>(
    work: OncePerWindow,
    body: impl Fn() -> Result<u32, E> + Sync,
) -> Result<Once<u32>, E> {
    for _ in 0..600 {
        match timeout(GENEROUS, work.clone().run(async |_| body())).await.expect("it ends") {
            Ok(ended) => return Ok(ended),
            Err(OnceError::Body(error)) => return Err(error),
            Err(OnceError::Lock(Error::Unreachable { .. }) | OnceError::NotCounted { .. }) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("never answered");
}

async fn done(work: &OncePerWindow) -> Option<WindowDone> {
    sure(async || work.done().await).await
}

pub(crate) async fn many_clients_do_the_work_once(backend: &TestBackend) {
    let clients = [client(backend, true).await, client(backend, true).await, client(backend, true).await];
    let counted = Arc::new(AtomicU32::new(0));
    let (mut tasks, mut results) = (Vec::new(), Vec::new());
    for client in clients.iter().cycle().take(15) {
        let (work, counted) = (work(client), Arc::clone(&counted));
        tasks.push(tokio::spawn(async move {
            runs::<()>(work, || Ok(counted.fetch_add(1, Ordering::SeqCst))).await.unwrap()
        }));
    }
    for task in tasks {
        results.push(task.await.unwrap());
    }
    let here: Vec<_> = results.iter().filter(|result| matches!(result, Once::Done(_))).collect();
    assert_eq!(here.len(), 1, "{results:?}");
    for result in &results {
        if let Once::AlreadyDone(done) = result {
            assert_eq!((done.by().pid(), done.by().label()), (Some(std::process::id()), Some("nightly")));
            assert!(done.next_window_in() <= YEAR && done.to_string().contains("the next window begins in"), "{done}");
        }
    }
    assert_eq!(sure(async || clients[0].inspect("job").await).await, None, "the lock is free");
}

pub(crate) async fn cleared_work_runs_again(backend: &TestBackend) {
    let (client, other) = (client(backend, true).await, client(backend, true).await);
    assert_eq!(runs::<()>(work(&client), || Ok(7)).await, Ok(Once::Done(7)));
    let first = done(&work(&other)).await.expect("it is done");
    assert!(sure(async || work(&other).clear(&first).await).await);
    assert_eq!(done(&work(&client)).await, None);
    assert_eq!(runs::<()>(work(&client), || Ok(8)).await, Ok(Once::Done(8)));
    let second = done(&work(&client)).await.expect("it is done");
    assert!(second.fencing_token() > first.fencing_token());
    assert!(!sure(async || work(&other).clear(&first).await).await, "it belongs to a later run");
}
