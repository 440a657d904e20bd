use fencelock::backends::connect;
use fencelock_core::{Acquire, Backend, Claim, Intent, Mode, Renew, Renewal, TokenBlock, Unknown};
use fencelock_testkit::{ClusterNodes, claim};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub(crate) const TTL: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(20);
/// Much longer than a failover takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A busy machine may not run a node for some time.
pub(crate) const PATIENT: &str = "timeout=5000";

pub(crate) async fn backend(cluster: &ClusterNodes) -> Arc<dyn Backend> {
    connect(&cluster.url(PATIENT)).await.unwrap()
}

pub(crate) fn held(key: &str, mode: Mode) -> Claim {
    claim(key, TTL).with_mode(mode)
}

pub(crate) fn waiting(key: &str) -> Claim {
    claim(key, TTL).with_intent(Intent::Enqueue)
}

pub(crate) fn tokens(answer: &Acquire) -> TokenBlock {
    let Acquire::Granted { tokens } = answer else { panic!("{answer:?}") };
    *tokens
}

/// Claims until the lock is granted, and ignores errors.
pub(crate) async fn granted(backend: &Arc<dyn Backend>, claim: &Claim) -> TokenBlock {
    let begun = Instant::now();
    loop {
        let answer = backend.acquire(claim).await.answer;
        if let Ok(Acquire::Granted { tokens }) = answer {
            return tokens;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        sleep(PAUSE).await;
    }
}

pub(crate) async fn queued(backend: &Arc<dyn Backend>, claim: &Claim, ahead: u32) {
    match backend.acquire(claim).await.answer.unwrap() {
        Acquire::Queued { ahead: found, .. } => assert_eq!(found, ahead),
        answer => panic!("{answer:?}"),
    }
}

pub(crate) async fn poll(backend: &Arc<dyn Backend>, claim: &Claim) -> Acquire {
    backend.acquire(&claim.with_intent(Intent::Poll)).await.answer.unwrap()
}

pub(crate) async fn renew(backend: &Arc<dyn Backend>, claim: &Claim) -> Result<Renew, Unknown> {
    let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl).with_assumed(TTL);
    backend.renew(&[renewal]).await.remove(0)
}

pub(crate) async fn release(backend: &Arc<dyn Backend>, claim: &Claim) {
    fencelock_testkit::release_surely(backend, claim).await;
}

/// A master other than that of this slot.
pub(crate) fn elsewhere(cluster: &ClusterNodes, slot: u16) -> usize {
    let owner = cluster.owner_of(slot);
    cluster.masters().into_iter().find(|master| *master != owner).unwrap()
}
