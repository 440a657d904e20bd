use super::node::Node;
use super::{NodeReplies, Quorum};
use fencelock_core::quorum::NodePlan;
use fencelock_core::{BoxFuture, Fault, HolderId, Key, Moment, Raise, Round, Unknown, Verdict, Vote};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};

/// How long to wait for equal grants after a majority of different ones. Equal grants save a round trip.
const GRACE: std::time::Duration = std::time::Duration::from_millis(1);

/// A [`Round`] with its raises and its grace period. Raises that are in flight when it is dropped continue in the background.
pub(super) struct Ballot<T> {
    pub(super) round: Round,
    pub(super) verdict: Verdict,
    /// Closed when no node can reply any more.
    pub(super) replies: NodeReplies<T>,
    raises: FuturesUnordered<BoxFuture<'static, (usize, Raise)>>,
    grace: Option<Instant>,
    nodes: Arc<[Arc<Node>]>,
    plan: Vec<NodePlan>,
    of: (Key, HolderId),
    backend: String,
}

impl<T> Ballot<T> {
    /// A round whose first request is sent just after `sent`.
    pub(super) fn new(
        quorum: &Quorum,
        plan: Vec<NodePlan>,
        of: (Key, HolderId),
        sent: Moment,
        replies: NodeReplies<T>,
    ) -> Self {
        Self {
            round: Round::new(quorum.settings.size, sent),
            verdict: Verdict::Pending,
            replies,
            raises: FuturesUnordered::new(),
            grace: None,
            nodes: Arc::clone(&quorum.nodes),
            plan,
            of,
            backend: quorum.settings.backend.clone(),
        }
    }

    /// The next reply of a node. `None` if something else has happened, so that the verdict may be another one.
    pub(super) async fn next(&mut self) -> Result<Option<(usize, T)>, Unknown> {
        let is_split = self.verdict == Verdict::Pending && self.round.is_split();
        let grace = is_split.then(|| *self.grace.get_or_insert_with(|| Instant::now() + GRACE));
        let verdict = tokio::select! {
            biased;
            Some(reply) = self.replies.recv() => return Ok(Some(reply)),
            Some((node, answer)) = self.raises.next() => self.round.raised(node, answer),
            () = sleep_until(grace.unwrap_or_else(Instant::now)), if is_split => self.round.grace_over(),
            else => return Err(Unknown::new(self.backend.clone(), Fault::Other, "the runtime has ended")),
        };
        self.follow(verdict);
        Ok(None)
    }

    /// The vote of a node.
    pub(super) fn vote(&mut self, node: usize, vote: Vote) {
        let verdict = self.round.vote(node, vote);
        self.follow(verdict);
    }

    fn follow(&mut self, verdict: Verdict) {
        self.verdict = verdict;
        let Verdict::Raise { to, nodes } = verdict else { return };
        self.verdict = Verdict::Pending;
        for number in nodes.iter() {
            let NodePlan { limit, left_out } = self.plan[number].clone();
            if left_out.is_some() {
                self.verdict = self.round.raised(number, Raise::Refused);
                continue;
            }
            let (node, (key, holder)) = (Arc::clone(&self.nodes[number]), self.of.clone());
            let raise = tokio::spawn(async move {
                node.with_timeout(limit, node.backend.raise(&key, &holder, to)).await.unwrap_or(Raise::Refused)
            });
            self.raises.push(Box::pin(async move { (number, raise.await.unwrap_or(Raise::Refused)) }));
        }
    }
}
