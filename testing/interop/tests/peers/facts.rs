//! The common facts of fencelock and every peer.

use crate::environment::{AWAKE, KEY, LONG, TestEnvironment, attempt, in_time, request, unlock, within};
use fencelock::{Error, LossReason};
use fencelock_interop::Process;
use std::time::Duration;
use tokio::time::timeout;

/// Long enough for a round trip on a busy machine, short enough for a test.
const BRIEF: Duration = Duration::from_millis(1500);
const WAIT: &str = "40000";

pub(crate) async fn while_they_hold_we_are_refused(environment: &TestEnvironment, mut peer: Process) {
    assert_eq!(attempt(&mut peer, LONG).await, "held");
    assert!(environment.attempt().await.is_none());
    unlock(&mut peer, "freed").await;
    assert!(environment.attempt().await.is_some());
}

pub(crate) async fn their_release_wakes_our_waiter(environment: &TestEnvironment, mut peer: Process) {
    assert_eq!(attempt(&mut peer, LONG).await, "held");
    let waiter = environment.waiter().await;
    assert!(!waiter.is_finished());
    unlock(&mut peer, "freed").await;
    // Most of the TTL is left, so the release wakes the waiter.
    let guard = within(AWAKE, "our lock", waiter).await.expect("a guard");
    assert_eq!(guard.release().await, Ok(()));
}

pub(crate) async fn their_late_release_does_not_free_our_lock(environment: &TestEnvironment, mut peer: Process) {
    assert_eq!(attempt(&mut peer, BRIEF).await, "held");
    // The lock ends only by its TTL, because the peer is idle.
    let guard = in_time("our lock", environment.waiter().await).await.expect("a guard");
    unlock(&mut peer, "lost").await;
    assert!(2 * environment.copies() > environment.servers.len(), "ours is gone");
    assert!(guard.is_held());
    assert_eq!(attempt(&mut peer, LONG).await, "busy");
    assert_eq!(guard.release().await, Ok(()));
}

pub(crate) async fn while_we_hold_they_are_refused(environment: &TestEnvironment, mut peer: Process) {
    let guard = environment.held().await;
    assert_eq!(attempt(&mut peer, LONG).await, "busy");
    assert_eq!(guard.release().await, Ok(()));
    // Nodes that a majority does not need may be released a little later; a remaining lock would persist.
    in_time("a key that is free everywhere", environment.is_free()).await;
}

pub(crate) async fn our_release_wakes_their_waiter(environment: &TestEnvironment, mut peer: Process) {
    let guard = environment.held().await;
    peer.send(&format!("lock {KEY} {} {WAIT}", LONG.as_millis())).await.expect("a peer that listens");
    let early = timeout(Duration::from_millis(150), peer.receive()).await;
    assert!(early.is_err(), "while we hold: {early:?}");
    assert_eq!(guard.release().await, Ok(()));
    assert_eq!(within(AWAKE, "their lock", peer.receive()).await.expect("an answer"), "held");
    assert!(environment.attempt().await.is_none());
    unlock(&mut peer, "freed").await;
}

pub(crate) async fn after_our_crash_they_acquire_the_lock_when_the_ttl_ends(
    environment: &TestEnvironment,
    mut peer: Process,
) {
    let mut holder = environment.sibling().await;
    assert_eq!(attempt(&mut holder, BRIEF).await, "held");
    holder.kill().await.expect("a process that can be killed");
    let line = format!("lock {KEY} {} {WAIT}", LONG.as_millis());
    assert_eq!(in_time("their lock", request(&mut peer, &line)).await, "held");
    unlock(&mut peer, "freed").await;
}

pub(crate) async fn a_foreign_delete_is_reported_as_a_loss(environment: &TestEnvironment, mut peer: Process) {
    let guard = environment.client.lock(KEY).ttl(Duration::from_secs(6)).acquire().await.expect("a free lock");
    environment.deleted_by(&mut peer).await;
    assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Deleted);
    assert!(!guard.is_held());
    assert!(matches!(guard.release().await, Err(Error::Lost { reason: LossReason::Deleted, .. })));
}

pub(crate) async fn our_late_release_does_not_free_their_lock(environment: &TestEnvironment, mut peer: Process) {
    let guard = environment.held().await;
    environment.deleted_by(&mut peer).await;
    assert_eq!(attempt(&mut peer, LONG).await, "held");
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    // Not on all servers: our request to the last server may have arrived after their delete.
    assert!(2 * environment.copies() > environment.servers.len(), "theirs is gone");
    unlock(&mut peer, "freed").await;
}
