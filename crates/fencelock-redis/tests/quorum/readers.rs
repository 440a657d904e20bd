//! Shared locks on a quorum: rounds of readers, writers that wait for them, downgrades and evictions. The test controls the
//! clock.

use crate::kit::{Road, TestQuorum, claim, ms};
use fencelock_core::{
    Admin, Backend, Claim, Downgrade, Eviction, Fault, FencingToken, Holding, Intent, Mode, ModeChanges, Release,
    Renew, Renewal, Unknown,
};
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
    async fn nodes_with(&self, of: &Claim, token: FencingToken) -> usize {
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
async fn readers_that_claim_at_the_same_time_all_get_a_token_of_a_majority() {
    let test = TestQuorum::with_skews(&SKEWED);
    let readers: Vec<_> = (0..20).map(|_| reader("k")).collect();
    let tokens = join_all(readers.iter().map(|reader| test.grants(reader))).await;
    for (reader, token) in readers.iter().zip(tokens) {
        assert!(test.nodes_with(reader, token).await >= 3, "{token}");
    }
    assert_eq!(test.seen(&readers[0]).await.unwrap().holders.count(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_every_reader_and_its_token_is_the_greatest() {
    let test = TestQuorum::with_skews(&SKEWED);
    let readers = [reader("k"), reader("k"), reader("k")];
    let tokens = join_all(readers.iter().map(|reader| test.grants(reader))).await;
    for reader in &readers {
        assert!(test.is_busy(&writer("k")).await.holders.count() <= 3);
        assert_eq!(test.release(reader).await, Ok(Release::Released));
    }
    let writer = writer("k");
    assert!(test.grants(&writer).await > tokens.into_iter().max().unwrap());
    assert_eq!(test.is_busy(&reader("k")).await.holders.first().holder_id(), Some(writer.holder.id));
    assert_eq!(test.release(&writer).await, Ok(Release::Released));
    tokio::time::sleep(ms(100)).await;
    assert_eq!(test.taken("k").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_on_a_minority_of_the_nodes_neither_holds_nor_stops_a_writer() {
    let test = TestQuorum::new(3);
    let (left, writer) = (reader("k"), writer("k"));
    test.nodes[0].take(&left).await;
    assert_eq!(test.seen(&left).await, None);
    test.grants(&writer).await;
    assert_eq!(test.seen(&left).await.unwrap().first().holder_id(), Some(writer.holder.id));
}

#[tokio::test(start_paused = true)]
async fn a_refused_writer_leaves_no_node_locked() {
    let test = TestQuorum::new(3);
    let (held, writer) = (reader("k"), writer("k"));
    test.nodes[2].road(Road::Refusing);
    test.grants(&held).await;
    test.nodes[2].road(Road::Open);
    // The third node is free and grants to the writer first.
    test.is_busy(&writer).await;
    tokio::time::sleep(ms(100)).await;
    assert!(test.nodes[2].holding("k").await.is_none());
    test.grants(&reader("k")).await;
}

#[tokio::test(start_paused = true)]
async fn readers_need_a_majority_of_the_nodes() {
    let test = TestQuorum::new(3);
    let held = reader("k");
    test.nodes[1].road(Road::BlackHole);
    test.grants(&held).await;
    assert_eq!(test.renew(&held).await, Ok(Renew::Renewed { waiters: 0 }));
    test.nodes[2].road(Road::Refusing);
    assert!(test.renew(&held).await.is_err(), "neither held nor lost");
    assert!(test.quorum.acquire(&reader("k")).await.answer.is_err());
    test.nodes[2].road(Road::Open);
    assert_eq!(test.renew(&held).await, Ok(Renew::Renewed { waiters: 0 }));
}

#[tokio::test(start_paused = true)]
async fn a_resumed_reader_keeps_its_token() {
    let test = TestQuorum::with_skews(&SKEWED);
    let readers = [reader("k"), reader("k")];
    let tokens = join_all(readers.iter().map(|reader| test.grants(reader))).await;
    for (reader, token) in readers.iter().zip(tokens) {
        assert_eq!(test.grants(&reader.with_intent(Intent::Poll)).await, token);
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_gives_one_token_to_a_majority_of_nodes_with_different_clocks() {
    let test = TestQuorum::with_skews(&SKEWED);
    let (writer, other) = (writer("k"), reader("k"));
    let exclusive = test.grants(&writer).await;
    let token = test.downgraded(&writer).await;
    assert!(token > exclusive);
    assert!(test.nodes_with(&writer, token).await >= 3);
    assert_eq!(test.downgraded(&writer).await, token, "again");
    test.grants(&other).await;
    test.is_busy(&claim("k", TEN_SECONDS)).await;
    let seen = test.seen(&writer).await.unwrap();
    assert!(seen.holders.count() == 2 && seen.holders.iter().all(|hold| hold.mode == Mode::Shared), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_misses_a_downgrade_costs_no_reader_and_no_token() {
    let test = TestQuorum::new(3);
    let (writer, other) = (writer("k"), reader("k"));
    test.grants(&writer).await;
    tokio::time::sleep(ms(100)).await;
    test.nodes[2].road(Road::BlackHole);
    let token = test.downgraded(&writer).await;
    test.nodes[2].road(Road::Open);
    assert_eq!(test.nodes[2].holding("k").await.unwrap().first().mode, Mode::Exclusive);
    test.grants(&other).await;
    test.is_busy(&claim("k", TEN_SECONDS)).await;
    let seen = test.seen(&writer).await.unwrap();
    let hold = seen.holders.iter().find(|hold| hold.holder_id() == Some(writer.holder.id)).unwrap();
    assert_eq!((hold.mode, hold.fence), (Mode::Shared, Some(token)), "{seen:?}");
    for held in [&writer, &other] {
        assert_eq!(test.release(held).await, Ok(Release::Released));
    }
    test.grants(&claim("k", TEN_SECONDS)).await;
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_without_a_majority_can_be_repeated() {
    let test = TestQuorum::new(3);
    let writer = writer("k");
    let exclusive = test.grants(&writer).await;
    test.nodes[1].road(Road::Refusing);
    test.nodes[2].road(Road::BlackHole);
    let unknown = test.downgrade(&writer).await.unwrap_err();
    assert_eq!(unknown.nodes().iter().map(|node| node.fault).collect::<Vec<_>>(), [Fault::Unreachable, Fault::Timeout]);
    test.nodes[1].road(Road::Open);
    assert!(test.downgraded(&writer).await > exclusive);
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_of_a_lost_hold_reports_the_holder() {
    let test = TestQuorum::new(3);
    let (lost, next) = (claim("k", ms(500)), writer("k"));
    test.grants(&lost).await;
    tokio::time::sleep(ms(600)).await;
    assert_eq!(test.downgrade(&lost).await, Ok(Downgrade::Absent));
    test.grants(&next).await;
    let Ok(Downgrade::TakenBy(holders)) = test.downgrade(&lost).await else { panic!("another writer has it") };
    assert_eq!(holders.first().holder_id(), Some(next.holder.id));
}

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

#[tokio::test(start_paused = true)]
async fn a_downgrade_does_not_wait_for_a_slow_node() {
    let test = TestQuorum::with_skews(&[0, 20, 10]);
    let writer = writer("k");
    test.grants(&writer).await;
    test.nodes[1].road(Road::Slow(ms(80)));
    let begun = tokio::time::Instant::now();
    let token = test.downgraded(&writer).await;
    assert!(begun.elapsed() < ms(15), "{:?}", begun.elapsed());
    tokio::time::sleep(ms(200)).await;
    assert!(test.nodes_with(&writer, token).await >= 2);
    assert_eq!(test.nodes[1].holding("k").await.unwrap().first().mode, Mode::Shared, "it is slow, and not left out");
}
