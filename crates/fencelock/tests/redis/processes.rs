//! Other processes are killed, stopped and continued.

use crate::child::Actor;
use crate::common::{eventually, ms, secs};
use crate::support::{client, in_line, is_free, listeners, server, text, waiting};

#[tokio::test]
async fn a_waiting_process_that_is_killed_does_not_stall_the_queue() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let held = client.lock("k").await.unwrap();
    let mut victim = Actor::play("waits", &server.url(), secs(30));
    victim.says("waits").await;
    let next = waiting(&server, "k", client.lock("k")).await;
    victim.kill();
    eventually("the server knows that it is gone", async || listeners(&server) == 1).await;
    held.release().await.unwrap();
    let value = text(&server, &["GET", "k"]).unwrap();
    let next = next.await.unwrap();
    assert!(value.starts_with(&next.holder().to_string()), "a hand-off into the void, which costs 3 s: {value}");
}

#[tokio::test]
async fn a_holding_process_that_is_killed_costs_its_lease() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let mut victim = Actor::play("holds", &server.url(), secs(3));
    let holder = victim.says("holds").await;
    let next = waiting(&server, "k", client.lock("k")).await;
    tokio::time::sleep(ms(3500)).await;
    assert!(text(&server, &["GET", "k"]).unwrap().starts_with(&holder), "it renews while it lives");
    victim.kill();
    let next = tokio::time::timeout(secs(10), next).await.expect("its lease").unwrap();
    assert!(next.is_held());
}

#[tokio::test]
async fn a_holder_stopped_for_longer_than_its_lease_detects_the_loss_at_once_and_does_not_get_the_lock_back() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let mut sleeper = Actor::play("holds", &server.url(), secs(1));
    sleeper.says("holds").await;
    sleeper.freeze();
    let next = tokio::time::timeout(secs(20), client.lock("k").acquire()).await.unwrap().unwrap();
    sleeper.send("held?");
    sleeper.thaw();
    assert_eq!(sleeper.says("held").await, "false");
    for _ in 0..50 {
        tokio::time::sleep(ms(10)).await;
        assert!(text(&server, &["GET", "k"]).unwrap().starts_with(&next.holder().to_string()));
    }
    assert!(next.is_held());
    sleeper.send("held?");
    assert_eq!(sleeper.says("held").await, "false");
    sleeper.send("end");
    sleeper.ends().await;
    assert!(next.is_held() && !is_free(&server, "k"), "its release touches nothing of ours");
}

#[tokio::test]
async fn a_hand_off_to_a_stopped_process_costs_at_most_the_lease_of_a_hand_off() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let held = client.lock("k").await.unwrap();
    let mut sleeper = Actor::play("waits", &server.url(), secs(30));
    sleeper.says("waits").await;
    let next = waiting(&server, "k", client.lock("k")).await;
    sleeper.freeze();
    let begun = tokio::time::Instant::now();
    held.release().await.unwrap();
    let next = next.await.unwrap();
    assert!(begun.elapsed() < secs(15), "3 s and a poll: {:?}", begun.elapsed());
    sleeper.thaw();
    eventually("it stands in line again", async || in_line(&server, "k") == 1).await;
    assert!(next.is_held());
    next.release().await.unwrap();
    sleeper.says("holds").await;
}

#[tokio::test]
async fn a_process_that_ends_right_after_its_guard_leaves_no_lock() {
    let Some(server) = server() else { return };
    let mut brief = Actor::play("drops", &server.url(), secs(60));
    brief.says("holds").await;
    brief.ends().await;
    assert!(is_free(&server, "k"));
}
