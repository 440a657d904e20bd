use crate::kit::{backend, elsewhere, granted, held, poll, queued, release, renew, tokens, waiting};
use fencelock_core::{Acquire, Backend, Fault, Holding, Intent, Mode, Renew};
use fencelock_testkit::{ClusterNodes, claim};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_slot_keeps_its_holder_its_queue_and_its_tokens() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let (one, other) = (backend(&cluster).await, backend(&cluster).await);
    let (first, second, third) = (held("k", Mode::Exclusive), waiting("k"), waiting("k"));
    let slot = cluster.slot_of("k");
    let before = granted(&one, &first).await;
    queued(&one, &second, 0).await;
    queued(&other, &third, 1).await;
    cluster.move_slots([slot], elsewhere(&cluster, slot)).unwrap();
    assert!(matches!(renew(&one, &first).await, Ok(Renew::Renewed { waiters: 2 })));
    // No client has subscribed on the new node yet.
    release(&other, &first).await;
    let next = tokens(&poll(&one, &second).await);
    assert!(next.last() > before.last());
    assert!(matches!(poll(&other, &third).await, Acquire::Queued { ahead: 0, .. }));
    cluster.move_slots([slot], elsewhere(&cluster, slot)).unwrap();
    release(&one, &second).await;
    assert!(tokens(&poll(&other, &third).await).last() > next.last());
}

/// The renewals are one request. Two of the keys are moved after the client has learned their nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_renewals_follows_its_keys() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let backend = backend(&cluster).await;
    let claims: Vec<_> = (0..20).map(|number| held(&format!("k{number}"), Mode::Exclusive)).collect();
    for claim in &claims {
        granted(&backend, claim).await;
    }
    let groups: std::collections::BTreeSet<u32> =
        claims.iter().map(|claim| backend.renewal_group(&claim.key)).collect();
    assert_eq!(groups.len(), 3, "each node has a group");
    for claim in &claims[..2] {
        let slot = cluster.slot_of(claim.key.as_str());
        cluster.move_slots([slot], elsewhere(&cluster, slot)).unwrap();
    }
    let renewals: Vec<_> = claims
        .iter()
        .map(|claim| fencelock_core::Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl))
        .collect();
    let answers = backend.renew(&renewals).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Renew::Renewed { .. }))), "{answers:?}");
}

async fn is_moving(backend: &Arc<dyn Backend>, slot: u16) {
    let unknown = backend.acquire(&held("other{k}", Mode::Exclusive)).await.answer.unwrap_err();
    let fault = &unknown.nodes()[0];
    assert_eq!(fault.fault, Fault::Moved);
    assert!(unknown.changed_nothing() && !unknown.is_permanent());
    assert!(fault.detail.contains(&format!("hash slot {slot} is being moved")), "{unknown}");
}

/// The parts of a lock are on both nodes, however many keys have arrived.
#[tokio::test(flavor = "multi_thread")]
async fn holders_keep_their_locks_in_a_slot_that_is_half_moved() {
    let Some(cluster) = ClusterNodes::start_or_skip(2, 0) else { return };
    let (slot, ttl) = (cluster.slot_of("k"), Duration::from_secs(100));
    for keys in 0..10 {
        let backend = backend(&cluster).await;
        let to = elsewhere(&cluster, slot);
        let mode = match keys % 3 {
            0 => Mode::Exclusive,
            1 => Mode::Shared,
            _ => Mode::permits(1, 2).unwrap(),
        };
        let first = claim("k", ttl).with_mode(mode);
        let waiter = waiting("k");
        granted(&backend, &first).await;
        queued(&backend, &waiter, 0).await;
        cluster.begin_move(slot, to, keys).unwrap();
        is_moving(&backend, slot).await;
        // A longer lease, which can be seen after the move.
        let renewal = fencelock_core::Renewal::new(first.key.clone(), first.holder.id, waiter.ttl).with_assumed(ttl);
        let renewed = backend.renew(&[renewal]).await.remove(0);
        assert!(matches!(renewed, Ok(Renew::Renewed { .. })), "{mode:?} with {keys} keys moved: {renewed:?}");
        // The renewal of a holder without a lock.
        let stranger = held("k", mode);
        assert!(
            renew(&backend, &stranger).await.is_err(),
            "{mode:?}: a lost lock cannot be distinguished from a moved one"
        );
        cluster.end_move(slot, to).unwrap();
        let seen = backend.inspect(&first.key).await.unwrap().unwrap();
        assert!(rest(&seen) > ttl, "{mode:?} with {keys} keys moved: {seen:?}");
        assert!(matches!(renew(&backend, &stranger).await, Ok(Renew::Absent | Renew::TakenBy(_))));
        release(&backend, &first).await;
        tokens(&poll(&backend, &waiter).await);
        release(&backend, &waiter).await;
    }
}

fn rest(holding: &Holding) -> Duration {
    holding.holders.first().expiry.span().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_a_slot_that_is_half_moved_are_not_listed_as_free() {
    let Some(cluster) = ClusterNodes::start_or_skip(2, 0) else { return };
    let (backend, slot) = (backend(&cluster).await, cluster.slot_of("k"));
    granted(&backend, &held("k", Mode::Exclusive)).await;
    granted(&backend, &held("j", Mode::Exclusive)).await;
    let to = elsewhere(&cluster, slot);
    cluster.begin_move(slot, to, 1).unwrap();
    assert_eq!(backend.list().await.unwrap_err().nodes()[0].fault, Fault::Moved);
    cluster.end_move(slot, to).unwrap();
    let mut keys: Vec<_> = backend.list().await.unwrap().into_iter().map(|holding| holding.key.to_string()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["j", "k"]);
}

/// All keys of the lock exist, so only the key that never exists makes the node reject the script. Otherwise the script would
/// delete the lock, and would then stop at a command that uses it.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_never_runs_in_part_while_its_slot_is_moved() {
    let Some(cluster) = ClusterNodes::start_or_skip(2, 0) else { return };
    let (backend, slot) = (backend(&cluster).await, cluster.slot_of("k"));
    let (first, waiter) = (held("k", Mode::Exclusive), waiting("k"));
    granted(&backend, &first).await;
    queued(&backend, &waiter, 0).await;
    let node = &cluster.nodes[cluster.owner_of(slot)];
    // The remaining state of a crashed reader.
    node.command(&["ZADD", "fencelock:{k}:holds", "1", "x"]);
    node.command(&["HSET", "fencelock:{k}:held", "x", "1 1 x"]);
    let to = elsewhere(&cluster, slot);
    cluster.begin_move(slot, to, 0).unwrap();
    let refused = backend.release(&first.key, &first.holder.id).await.unwrap_err();
    assert!(refused.changed_nothing(), "{refused}");
    cluster.end_move(slot, to).unwrap();
    assert!(matches!(renew(&backend, &first).await, Ok(Renew::Renewed { waiters: 1 })));
    release(&backend, &first).await;
    tokens(&poll(&backend, &waiter).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_keep_their_order_while_a_slot_is_moved_for_longer_than_their_lifetime() {
    let Some(cluster) = ClusterNodes::start_or_skip(2, 0) else { return };
    let (backend, slot) = (backend(&cluster).await, cluster.slot_of("k"));
    let first = held("k", Mode::Exclusive);
    granted(&backend, &first).await;
    let waiters = [waiting("k"), waiting("k"), waiting("k")];
    for (waiter, ahead) in waiters.iter().zip(0..) {
        queued(&backend, waiter, ahead).await;
    }
    let to = elsewhere(&cluster, slot);
    cluster.begin_move(slot, to, 2).unwrap();
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        for waiter in &waiters {
            let refused = backend.acquire(&waiter.with_intent(Intent::Poll)).await.answer.unwrap_err();
            assert_eq!(refused.nodes()[0].fault, Fault::Moved);
        }
    }
    cluster.end_move(slot, to).unwrap();
    let mut holder = first;
    for waiter in waiters {
        release(&backend, &holder).await;
        tokens(&poll(&backend, &waiter).await);
        holder = waiter;
    }
}
