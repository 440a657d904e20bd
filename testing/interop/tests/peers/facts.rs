//! What is so between us and every peer, one fact each.

use crate::stage::{AWAKE, KEY, LONG, Stage, ask, attempt, in_time, unlock, within};
use fencelock::{LossReason, Released};
use fencelock_interop::Process;
use std::time::Duration;
use tokio::time::timeout;

/// Long enough for a round trip or two, short enough to wait for.
const BRIEF: Duration = Duration::from_millis(700);
const WAIT: &str = "40000";

pub(crate) async fn while_they_hold_we_are_refused(stage: &Stage, mut peer: Process) {
    assert_eq!(attempt(&mut peer, LONG).await, "held");
    assert!(stage.attempt().await.is_none());
    unlock(&mut peer, "freed").await;
    assert!(stage.attempt().await.is_some());
}

pub(crate) async fn their_release_lets_our_waiter_in(stage: &Stage, mut peer: Process) {
    assert_eq!(attempt(&mut peer, LONG).await, "held");
    let waiter = stage.waiter().await;
    assert!(!waiter.is_finished());
    unlock(&mut peer, "freed").await;
    // Of its TTL most is left, so it is the release that wakes.
    let guard = within(AWAKE, "our turn", waiter).await.expect("a guard");
    assert_eq!(guard.release().await, Ok(Released::Released));
}

pub(crate) async fn their_late_release_leaves_our_lock_alone(stage: &Stage, mut peer: Process) {
    assert_eq!(attempt(&mut peer, BRIEF).await, "held");
    // It ends by its TTL alone, for they do nothing.
    let guard = in_time("our turn", stage.waiter().await).await.expect("a guard");
    unlock(&mut peer, "lost").await;
    assert!(2 * stage.copies() > stage.servers.len(), "ours is gone");
    assert!(guard.is_held());
    assert_eq!(attempt(&mut peer, LONG).await, "busy");
    assert_eq!(guard.release().await, Ok(Released::Released));
}

pub(crate) async fn while_we_hold_they_are_refused(stage: &Stage, mut peer: Process) {
    let guard = stage.held().await;
    assert_eq!(attempt(&mut peer, LONG).await, "busy");
    assert_eq!(guard.release().await, Ok(Released::Released));
    // What of five is no longer needed for a majority may be freed a little later; what they left behind would stay.
    in_time("a key that is free everywhere", stage.is_free()).await;
}

pub(crate) async fn our_release_lets_their_waiter_in(stage: &Stage, mut peer: Process) {
    let guard = stage.held().await;
    peer.tell(&format!("lock {KEY} {} {WAIT}", LONG.as_millis())).await.expect("a peer that listens");
    let early = timeout(Duration::from_millis(150), peer.hear()).await;
    assert!(early.is_err(), "while we hold: {early:?}");
    assert_eq!(guard.release().await, Ok(Released::Released));
    assert_eq!(within(AWAKE, "their turn", peer.hear()).await.expect("an answer"), "held");
    assert!(stage.attempt().await.is_none());
    unlock(&mut peer, "freed").await;
}

pub(crate) async fn our_crash_lets_them_in_after_the_ttl(stage: &Stage, mut peer: Process) {
    let mut holder = stage.sibling().await;
    assert_eq!(attempt(&mut holder, BRIEF).await, "held");
    holder.kill().await.expect("a process that can be killed");
    let line = format!("lock {KEY} {} {WAIT}", LONG.as_millis());
    assert_eq!(in_time("their turn", ask(&mut peer, &line)).await, "held");
    unlock(&mut peer, "freed").await;
}

pub(crate) async fn a_foreign_delete_is_told_as_a_loss(stage: &Stage, mut peer: Process) {
    let guard = stage.client.lock(KEY).ttl(Duration::from_secs(6)).acquire().await.expect("a free lock");
    stage.deleted_by(&mut peer).await;
    assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Deleted);
    assert!(!guard.is_held());
    assert_eq!(guard.release().await, Ok(Released::AlreadyLost { why: LossReason::Deleted }));
}

pub(crate) async fn our_late_release_leaves_their_lock_alone(stage: &Stage, mut peer: Process) {
    let guard = stage.held().await;
    stage.deleted_by(&mut peer).await;
    assert_eq!(attempt(&mut peer, LONG).await, "held");
    let released = guard.release().await.expect("an answer");
    assert!(matches!(released, Released::AlreadyLost { .. }), "{released:?}");
    // Not all of them: what we asked of the last server may have reached it after their delete.
    assert!(2 * stage.copies() > stage.servers.len(), "theirs is gone");
    unlock(&mut peer, "freed").await;
}
