//! The calls to all nodes: core decides on their replies.

use super::Quorum;
use super::ballot::Ballot;
use super::node::{GIVE_UP, Node};
use fencelock_core::quorum::{HoldVotes, REPLY_TIMEOUT, proposal, renewal_limit};
use fencelock_core::{
    Acquire, Claim, Downgrade, Event, FencingToken, HolderId, Key, Outcome, Release, Renew, Renewal, Unknown, Verdict,
    Vote,
};
use futures_util::future::join_all;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// A decided release still waits for the other nodes, so that the next claim finds the key free on all of them: for this
/// fraction of the shortest limit of a node, 20 ms by default. A healthy node takes less.
const SETTLING: u32 = 5;

impl Quorum {
    /// Notifies waiters of this process: a server does not report changes to the connection that made them.
    pub(crate) fn changed(&self, key: &Key) {
        self.listeners.send(&Event::Changed { key: key.clone() });
    }

    /// A [`Round`](fencelock_core::Round) over the tokens that the nodes give to the shared hold.
    ///
    /// - It is decided by a majority of the nodes, like a renewal, so no other claim can have won in between.
    /// - Each node converts its own exclusive hold into a shared one, so no node is free for a moment. A node that does not
    ///   take part keeps the hold exclusive, and refuses readers, until it is released.
    /// - It can be repeated: a node that has already converted the hold returns the same token. So a failure releases nothing.
    pub(crate) async fn downgrade_all(&self, renewal: &Renewal) -> Result<Downgrade, Unknown> {
        let plan = self.plan(&renewal.key, |node| node.limit(renewal.ttl.get() / 10));
        let proposal = proposal(self.clock.wall_micros(), self.seen.load(Ordering::Relaxed), NonZeroU32::MIN);
        let sent = self.clock.now();
        let replies = self.ask(&plan, |node| {
            let renewal = renewal.clone();
            async move { node.downgrade_proposed(&renewal, proposal).await }
        });
        let mut ballot = Ballot::new(self, plan, (renewal.key.clone(), renewal.holder), sent, replies);
        let (mut votes, mut pending) = (HoldVotes::new(self.settings.size), self.nodes.len());
        loop {
            match ballot.verdict {
                Verdict::Won(tokens) => {
                    // Waiting readers of this process may acquire the key now.
                    self.changed(&renewal.key);
                    return Ok(Downgrade::Downgraded { token: tokens.last() });
                }
                // The nodes that have not answered decide between a loss and an unknown result.
                Verdict::Lost(_) if pending == 0 || matches!(votes.outcome(), Outcome::Absent | Outcome::Taken) => {
                    return votes.not_downgraded(&self.settings);
                }
                Verdict::Lost(_) | Verdict::Pending | Verdict::Raise { .. } => {}
            }
            let Some((node, answer)) = ballot.next().await? else { continue };
            pending -= 1;
            let vote = Vote::of_downgrade(&answer);
            self.seen.fetch_max(vote.fence(), Ordering::Relaxed);
            votes.vote(node, answer);
            ballot.vote(node, vote);
        }
    }

    /// The result is there when every hold of the batch is decided. A late node counts as one that has not answered.
    pub(crate) async fn renew_all(&self, renewals: &[Renewal]) -> Vec<Result<Renew, Unknown>> {
        let Some(first) = renewals.first() else { return Vec::new() };
        let batch: Arc<[Renewal]> = renewals.into();
        let limit = |node: &Node| renewal_limit(renewals, |most| node.limit(most));
        let mut replies = self.ask(&self.plan(&first.key, limit), |node| {
            let batch = Arc::clone(&batch);
            async move {
                let answers = node.renew(&batch).await;
                match answers.first() {
                    // If every renewal fails, the node has failed.
                    Some(Err(cause)) if answers.iter().all(Result::is_err) => Err(cause.clone()),
                    _ => Ok(answers),
                }
            }
        });
        let mut holds = vec![HoldVotes::new(self.settings.size); renewals.len()];
        while holds.iter().any(|votes| votes.outcome() == Outcome::Pending) {
            let Some((node, answers)) = replies.recv().await else { break };
            let answers = answers.unwrap_or_else(|cause| vec![Err(cause); renewals.len()]);
            for (votes, answer) in holds.iter_mut().zip(answers) {
                votes.vote(node, answer);
            }
        }
        holds.iter().map(HoldVotes::renewed).collect()
    }

    /// It is sent to every node, even to one that is left out or has not answered a claim of this holder: there, after the claim has
    /// ended, because a release that overtakes its claim would free nothing. Late replies count until it is decided. Requests that are
    /// in flight then, or when the caller stops waiting, continue in the background.
    pub(crate) async fn release_all(&self, key: &Key, holder: HolderId) -> Result<Release, Unknown> {
        let (mut votes, (told, mut replies)) = (HoldVotes::new(self.settings.size), mpsc::unbounded_channel());
        let mut releases = Vec::new();
        for (number, plan) in self.plan(key, patience).into_iter().enumerate() {
            let (node, key) = (Arc::clone(&self.nodes[number]), key.clone());
            let told = plan.left_out.is_none().then(|| told.clone());
            if let Some(cause) = plan.left_out {
                votes.vote(number, Err::<Release, _>(cause));
            }
            releases.push(async move {
                let request = async {
                    node.quiet(&holder).await;
                    node.within(plan.limit + GIVE_UP, node.backend.release(&key, &holder)).await
                };
                let tell = |answer| drop(told.as_ref().map(|told| told.send((number, answer))));
                node.answers(plan.limit, request, tell).await;
            });
        }
        drop(told);
        tokio::spawn(join_all(releases));
        let mut settled = None;
        loop {
            let reply = match settled {
                Some(at) => timeout_at(at, replies.recv()).await.ok().flatten(),
                None => replies.recv().await,
            };
            let Some((node, answer)) = reply else { break };
            if !matches!(votes.vote(node, answer), Outcome::Pending | Outcome::Unknown) {
                settled.get_or_insert_with(|| Instant::now() + self.settings.shortest_limit / SETTLING);
            }
        }
        let release = votes.released();
        if release == Ok(Release::Released) {
            self.changed(key);
        }
        release
    }

    /// Resumes a hold, with the token that a majority of the nodes reports for it. It is renewed first, so that what the nodes then report
    /// stays valid for a full TTL.
    pub(crate) async fn poll(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
        match self.renew_all(&[renewal]).await.pop() {
            Some(Ok(Renew::Renewed { .. })) => {}
            Some(Err(unknown)) => return Err(unknown),
            _ => return Ok(Acquire::Gone),
        }
        let limit = |node: &Node| node.limit(claim.ttl.get() / 10);
        let mut answers = self.ask(&self.plan(&claim.key, limit), |node| {
            let claim = claim.clone();
            async move { node.acquire(&claim).await.answer }
        });
        let (mut tokens, mut causes) = (Vec::new(), Vec::new());
        while let Some((_, answer)) = answers.recv().await {
            match answer {
                Ok(Acquire::Granted { tokens: block }) => tokens.push(block.last()),
                Ok(_) => {}
                Err(cause) => causes.extend_from_slice(cause.nodes()),
            }
            let same = |token: &FencingToken| tokens.iter().filter(|other| *other == token).count();
            if let Some(&token) = tokens.iter().find(|token| same(token) >= self.settings.size.majority()) {
                return Ok(Acquire::Granted { tokens: token.into() });
            }
        }
        if tokens.len() + causes.len() >= self.settings.size.majority() && !causes.is_empty() {
            return Err(Unknown::of_nodes(causes));
        }
        Ok(Acquire::Gone)
    }
}

pub(crate) fn patience(node: &Node) -> Duration {
    node.limit(REPLY_TIMEOUT)
}
