//! What a client keeps in memory for each lease that it holds.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod allocations;

use allocations::Counting;
use fencelock::backends::Memory;
use fencelock::{Client, Guard};
use fencelock_core::{Backend, Claim, Holder, HolderId, Intent, Key, Owner, Ttl};
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LEASES: usize = 20_000;
/// For each lease: the guard, its hold, the watchdog's tables and the queue of tasks. The goal of the design.
const MOST: isize = 900;

fn name(lease: usize) -> String {
    format!("customer:{lease:08}:balance")
}

/// The bytes of one lease.
fn each(bytes: isize) -> isize {
    bytes / isize::try_from(LEASES).unwrap()
}

/// What the backend itself keeps, which is in the same process here.
async fn of_the_backend() -> isize {
    let memory = Memory::with_leases(Arc::new(fencelock::backends::BootClock));
    let before = Counting::in_use();
    for lease in 0..LEASES {
        let mut id = [7; 16];
        id[..8].copy_from_slice(&lease.to_be_bytes());
        let holder = Holder { id: HolderId::from_bytes(id), owner: Owner::new("here", 1, None).unwrap() };
        let claim = Claim::new(Key::new(name(lease)).unwrap(), holder, Ttl::default(), Intent::Try);
        memory.acquire(&claim).await.answer.unwrap();
    }
    each(Counting::in_use() - before)
}

async fn of_both(sharing: bool) -> isize {
    let start = Counting::in_use();
    let memory = Arc::new(Memory::with_leases(Arc::new(fencelock::backends::BootClock)));
    let client = Client::builder().sharing(sharing).backend(memory).unwrap();
    client.lock("first").await.unwrap().release().await.unwrap();
    let before = Counting::in_use();
    let mut guards: Vec<Guard> = Vec::with_capacity(LEASES);
    for lease in 0..LEASES {
        guards.push(client.lock(name(lease)).await.unwrap());
    }
    let bytes = each(Counting::in_use() - before);
    assert!(guards.iter().all(Guard::is_held));
    drop(guards);
    client.close(Duration::from_secs(60)).await.unwrap();
    // What is freed later would be missing in the next figure.
    for _ in 0..6000 {
        if each(Counting::in_use() - start) == 0 {
            return bytes;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} bytes are left", Counting::in_use() - start)
}

#[tokio::test]
async fn a_lease_takes_less_than_900_bytes() {
    let backend = of_the_backend().await;
    assert!(backend > 0);
    for sharing in [false, true] {
        let client = of_both(sharing).await - backend;
        println!("sharing {sharing}: {client} bytes for each lease; the backend itself keeps {backend}");
        assert!(client < MOST, "sharing {sharing}: {client} bytes for each lease; the backend itself keeps {backend}");
    }
}
