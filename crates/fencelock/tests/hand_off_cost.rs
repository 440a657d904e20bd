//! What it costs to pass a lease from one task of a client to the next: a handful of allocations, and no request.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::Client;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator; only a number is counted in addition.
#[expect(unsafe_code, reason = "a counting allocator")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

async fn rounds(client: Client, rounds: usize) {
    for _ in 0..rounds {
        let guard = client.lock("k").await.unwrap();
        // The others line up meanwhile.
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
    }
}

async fn allocations(client: &Client, each: usize) -> usize {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let tasks: Vec<_> = (0..16).map(|_| tokio::spawn(rounds(client.clone(), each))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[tokio::test]
async fn a_hand_off_between_tasks_allocates_a_handful() {
    let client = Client::connect("memory:hand-off").await.unwrap();
    allocations(&client, 1000).await;
    // The key twice (as text, and checked), the future; the rest is for the claims in between.
    let shared = allocations(&client, 2000).await;
    println!("{shared} for 32,000 grants");
    assert!(shared < 4 * 32_000, "{shared} for 32,000 grants");
}
