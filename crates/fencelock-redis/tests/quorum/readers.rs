//! Shared locks on a quorum: rounds of readers, writers that wait for them, downgrades and evictions. The test controls the
//! clock.

use crate::kit::{TestQuorum, claim};
use fencelock_core::{Backend, Claim, Downgrade, Eviction, FencingToken, Holding, Mode, Renew, Renewal, Unknown};
use futures_util::future::join_all;
use std::time::Duration;

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn reader(key: &str) -> Claim {
    claim(key, TEN_SECONDS).with_mode(Mode::Shared)
}

fn writer(key: &str) -> Claim {
    claim(key, TEN_SECONDS)
}

fn renewal(of: &Claim) -> Renewal {
    Renewal::new(of.key.clone(), of.holder.id, of.ttl)
}

impl TestQuorum {
    async fn seen(&self, of: &Claim) -> Option<Holding> {
        self.quorum.inspect(&of.key).await.unwrap()
    }

    async fn renew(&self, of: &Claim) -> Result<Renew, Unknown> {
        self.quorum.renew(&[renewal(of)]).await.remove(0)
    }

    async fn downgrade(&self, of: &Claim) -> Result<Downgrade, Unknown> {
        self.quorum.downgrade(&renewal(of)).await
    }

    async fn downgraded(&self, of: &Claim) -> FencingToken {
        match self.downgrade(of).await {
            Ok(Downgrade::Downgraded { token }) => token,
            other => panic!("should be downgraded: {other:?}"),
        }
    }

    /// The number of nodes on which this holder has this token.
    pub(crate) async fn nodes_with(&self, of: &Claim, token: FencingToken) -> usize {
        let mut nodes = 0;
        for node in &self.nodes {
            let seen = node.holding(of.key.as_str()).await;
            let hold =
                seen.as_ref().and_then(|seen| seen.holders.iter().find(|hold| hold.holder_id() == Some(of.holder.id)));
            nodes += usize::from(hold.is_some_and(|hold| hold.fence == Some(token)));
        }
        nodes
    }
}

/// Each node has a different clock, so no two nodes choose the same token.
const SKEWED: [u64; 5] = [0, 20, 10, 40, 30];

#[tokio::test(start_paused = true)]
async fn an_eviction_ends_one_reader_on_nodes_that_gave_it_different_tokens() {
    let test = TestQuorum::with_skews(&SKEWED);
    let readers = [reader("k"), reader("k")];
    join_all(readers.iter().map(|reader| test.grants(reader))).await;
    let seen = test.seen(&readers[0]).await.unwrap();
    let hold = seen.holders.iter().find(|hold| hold.holder_id() == Some(readers[0].holder.id)).unwrap();
    let only = Holding::new(seen.key.clone(), hold.clone());
    assert_eq!(test.quorum.evict(&only).await, Ok(Eviction::Evicted));
    for node in &test.nodes {
        assert!(!node.holding("k").await.unwrap().has(readers[0].holder.id));
    }
    assert!(matches!(test.renew(&readers[0]).await, Ok(Renew::TakenBy(_))));
    assert_eq!(test.renew(&readers[1]).await, Ok(Renew::Renewed { waiters: 0 }));
    assert!(matches!(test.quorum.evict(&only).await, Ok(Eviction::Changed(Some(_)))));
}

#[tokio::test(start_paused = true)]
async fn readers_and_downgrades_take_one_round_trip_if_the_clocks_agree() {
    let test = TestQuorum::new(3);
    let requests = || test.nodes.iter().map(|node| node.requests()).sum::<usize>();
    let readers = [reader("k"), reader("k")];
    for reader in &readers {
        test.grants(reader).await;
    }
    assert_eq!(requests(), 6, "one for each node and reader");
    let writer = writer("j");
    test.grants(&writer).await;
    let before = requests();
    test.downgraded(&writer).await;
    assert_eq!(requests() - before, 3);
}
