//! A client of this version.

use crate::KEY;
use fencelock::backends::connect;
use fencelock_core::{
    Acquire, Backend, Claim, Eviction, Holder, HolderId, Holding, Intent, Key, Mode, Owner, Release, Renew, Renewal,
    Ttl, Unknown,
};
use fencelock_testkit::RedisServer;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn key() -> Key {
    Key::new(KEY).unwrap()
}

pub(crate) fn id(number: u128) -> HolderId {
    HolderId::from_bytes(number.to_be_bytes())
}

pub(crate) struct Current {
    pub(crate) backend: Arc<dyn Backend>,
    claim: Claim,
}

impl Current {
    pub(crate) async fn new(server: &RedisServer, number: u128) -> Self {
        Self::at(&server.url(), number).await
    }

    pub(crate) async fn at(url: &str, number: u128) -> Self {
        let backend = connect(url).await.unwrap();
        let holder = Holder { id: id(number), owner: Owner::from_text("current:1") };
        let claim = Claim::new(key(), holder, Ttl::new(Duration::from_secs(30)).unwrap(), Intent::Try);
        Self { backend, claim }
    }

    /// The same client with claims in this mode.
    pub(crate) fn in_mode(self, mode: Mode) -> Self {
        Self { claim: self.claim.with_mode(mode), ..self }
    }

    pub(crate) async fn send(&self, intent: Intent) -> Result<Acquire, Unknown> {
        self.backend.acquire(&self.claim.with_intent(intent)).await.answer
    }

    pub(crate) async fn acquire(&self, intent: Intent) -> Acquire {
        self.send(intent).await.unwrap()
    }

    /// The token of a claim that must be granted.
    pub(crate) async fn granted(&self, intent: Intent) -> u64 {
        match self.acquire(intent).await {
            Acquire::Granted { tokens } => tokens.last().get(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn waits(&self) -> u32 {
        match self.acquire(Intent::Enqueue).await {
            Acquire::Queued { ahead, .. } => ahead,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn release(&self) -> Release {
        self.backend.release(&key(), &self.claim.holder.id).await.unwrap()
    }

    pub(crate) async fn renew(&self) -> Renew {
        let renewal = Renewal::new(key(), self.claim.holder.id, self.claim.ttl);
        self.backend.renew(&[renewal]).await.pop().unwrap().unwrap()
    }

    pub(crate) async fn evict(&self, holding: &Holding) -> Eviction {
        self.backend.evict(holding).await.unwrap()
    }

    pub(crate) async fn seen(&self) -> Option<Holding> {
        self.backend.inspect(&key()).await.unwrap()
    }

    /// The holder of the lock.
    pub(crate) async fn holder(&self) -> Option<HolderId> {
        self.seen().await.and_then(|holding| holding.first().occupant.holder_id())
    }
}
