//! What it costs to pass a lease from one task of a client to the next: a handful of allocations, and no request.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod allocations;

use allocations::Counting;
use fencelock::Client;

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
    let (before, _) = Counting::so_far();
    let tasks: Vec<_> = (0..16).map(|_| tokio::spawn(rounds(client.clone(), each))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    Counting::so_far().0 - before
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
