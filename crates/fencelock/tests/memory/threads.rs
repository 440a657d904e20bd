//! Real threads: what a simulation cannot order, because it runs all tasks on one.

use fencelock::backends::{BootClock, Memory};
use fencelock::{Client, blocking};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

const GENEROUS: Duration = Duration::from_secs(60);

#[test]
fn threads_of_a_blocking_client_exclude_each_other_wherever_guards_are_dropped() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    let client = blocking::Client::connect("memory:threads").unwrap();
    let inside = Arc::new([const { AtomicBool::new(false) }; 2]);
    let (pass_on, passed_on) = channel::<(usize, blocking::Guard)>();
    let elsewhere = std::thread::spawn({
        let inside = Arc::clone(&inside);
        move || {
            for (key, guard) in passed_on {
                inside[key].store(false, Ordering::SeqCst);
                drop(guard);
            }
        }
    });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, inside, pass_on) = (client.clone(), Arc::clone(&inside), pass_on.clone());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let key = (thread + round) % 2;
                    let guard = client.lock(format!("k{key}")).acquire().unwrap();
                    assert!(!inside[key].swap(true, Ordering::SeqCst), "two are inside");
                    if round % 3 == 0 {
                        pass_on.send((key, guard)).unwrap();
                    } else {
                        inside[key].store(false, Ordering::SeqCst);
                        guard.release().unwrap();
                    }
                }
            });
        }
    });
    drop(pass_on);
    elsewhere.join().unwrap();
    client.clone().close(GENEROUS).unwrap();
    assert_eq!(client.list().unwrap(), []);
}

/// The first renewal is due after 25 ms, so these releases and the renewals run concurrently on different threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_that_meets_a_renewal_on_another_thread_is_a_release() {
    let memory = Arc::new(Memory::with_leases(Arc::new(BootClock)));
    let client = Client::builder().backend(memory).unwrap();
    let users: Vec<_> = (0..64)
        .map(|user| {
            let client = client.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    let guard = client.lock(format!("k{user}")).ttl(GENEROUS).await.unwrap();
                    let held = guard.held();
                    let watcher = tokio::spawn(async move { held.lost().await });
                    tokio::time::sleep(Duration::from_micros(24_000 + (user * 97 + round * 131) % 3_000)).await;
                    guard.release().await.unwrap();
                    assert!(!watcher.is_finished(), "released and lost");
                    watcher.abort();
                }
            })
        })
        .collect();
    for user in users {
        user.await.unwrap();
    }
    assert_eq!(client.list().await.unwrap(), []);
    client.close(GENEROUS).await.unwrap();
}
