//! The calls to all nodes: core decides, this module sends the requests to the nodes.

use super::Quorum;
use super::call_task::run_call;
use super::inspection::faults;
use super::node::Node;
use fencelock_core::quorum::{
    ClaimCall, DowngradeCall, NodeReply, NodeRequest, REPLY_TIMEOUT, ReleaseCall, RenewCall, proposal,
};
use fencelock_core::{
    Acquire, BoxFuture, Claim, Downgrade, Event, FencingToken, HolderId, Intent, Key, Mode, Release, Renew, Renewal,
    Unknown,
};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Quorum {
    pub(crate) async fn claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let plan = self.plan(&claim.key, |node| node.limit(claim.ttl.get() / 10));
        let proposal = proposal(self.clock.wall_micros(), self.seen.load(Ordering::Relaxed), claim.queueing.block);
        let call = ClaimCall::new(Arc::clone(&self.settings), claim, plan, self.clock.now());
        let claim = Arc::new(claim.with_intent(Intent::Try));
        let send = move |node: &Arc<Node>, request| claim_at(Arc::clone(node), Arc::clone(&claim), proposal, request);
        run_call(self, call, send).await?
    }

    /// Notifies waiters of this process: a server does not report changes to the connection that made them.
    pub(crate) fn changed(&self, key: &Key) {
        self.listeners.send(&Event::Changed { key: key.clone() });
    }

    pub(crate) async fn downgrade_all(&self, renewal: &Renewal) -> Result<Downgrade, Unknown> {
        let plan = self.plan(&renewal.key, |node| node.limit(renewal.ttl.get() / 10));
        let proposal = proposal(self.clock.wall_micros(), self.seen.load(Ordering::Relaxed), NonZeroU32::MIN);
        let call = DowngradeCall::new(Arc::clone(&self.settings), plan, self.clock.now());
        let renewal_to_send = Arc::new(renewal.clone());
        let send = move |node: &Arc<Node>, request: NodeRequest| -> BoxFuture<'static, NodeReply> {
            let (node, renewal) = (Arc::clone(node), Arc::clone(&renewal_to_send));
            Box::pin(async move {
                let Renewal { key, holder, .. } = &*renewal;
                match request {
                    NodeRequest::Raise(to) => NodeReply::Raise(node.backend.raise(key, holder, to).await),
                    _ => NodeReply::Downgrade(node.backend.downgrade_proposed(&renewal, proposal).await),
                }
            })
        };
        let downgrade = run_call(self, call, send).await?;
        if matches!(downgrade, Ok(Downgrade::Downgraded { .. })) {
            // Waiting readers of this process may acquire the key now.
            self.changed(&renewal.key);
        }
        downgrade
    }

    pub(crate) async fn renew_all(&self, renewals: &[Renewal]) -> Vec<Result<Renew, Unknown>> {
        let Some(first) = renewals.first() else { return Vec::new() };
        let plan = self.plan(&first.key, |node| RenewCall::limit(renewals, |most| node.limit(most)));
        let call = RenewCall::new(Arc::clone(&self.settings), renewals.len(), plan);
        let batch: Arc<[Renewal]> = renewals.into();
        let send = move |node: &Arc<Node>, _| -> BoxFuture<'static, NodeReply> {
            let (node, batch) = (Arc::clone(node), Arc::clone(&batch));
            Box::pin(async move { NodeReply::Renew(node.backend.renew(&batch).await) })
        };
        let answers = run_call(self, call, send).await;
        answers.unwrap_or_else(|ended| vec![Err(ended); renewals.len()])
    }

    pub(crate) async fn release_all(&self, key: &Key, holder: HolderId) -> Result<Release, Unknown> {
        let claiming = self.nodes.iter().enumerate().filter(|(_, node)| node.is_claiming(&holder));
        let claiming = claiming.map(|(number, _)| number).collect();
        let call = ReleaseCall::new(Arc::clone(&self.settings), self.plan(key, patience), claiming);
        let key_to_send = key.clone();
        let send = move |node: &Arc<Node>, request| -> BoxFuture<'static, NodeReply> {
            let (node, key) = (Arc::clone(node), key_to_send.clone());
            Box::pin(async move {
                if request == NodeRequest::ClaimEnd {
                    node.quiet(&holder).await;
                    return NodeReply::ClaimEnd;
                }
                NodeReply::Release(node.backend.release(&key, &holder).await)
            })
        };
        let release = run_call(self, call, send).await?;
        if release == Ok(Release::Released) {
            self.changed(key);
        }
        release
    }

    /// Resumes a hold. It is renewed first, so the state that is then read stays valid for a full TTL. The nodes list
    /// only some of the readers of a shared lock with very many, so each node is polled for the token of this reader.
    pub(crate) async fn poll(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let (key, holder) = (claim.key.clone(), claim.holder.id);
        let renewal = Renewal::new(key.clone(), holder, claim.ttl);
        match self.renew_all(&[renewal]).await.pop() {
            Some(Ok(Renew::Renewed { .. })) => {}
            Some(Err(unknown)) => return Err(unknown),
            _ => return Ok(Acquire::Gone),
        }
        if claim.mode != Mode::Exclusive {
            return self.poll_nodes(claim).await;
        }
        let answers = self.inspect_all(&key).await;
        Ok(answers.fence_of_holder(holder)?.map_or(Acquire::Gone, |fence| Acquire::Granted { tokens: fence.into() }))
    }

    /// The token that a majority of the nodes reports for this holder.
    async fn poll_nodes(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let limit = |node: &Node| node.limit(claim.ttl.get() / 10);
        let mut answers = self.ask_all(&claim.key, limit, |node| {
            let claim = claim.clone();
            async move { node.acquire(&claim).await.answer }
        });
        let (mut tokens, mut causes) = (Vec::new(), Vec::new());
        while let Some((_, answer)) = answers.recv().await {
            match answer {
                Ok(Acquire::Granted { tokens: block }) => tokens.push(block.last()),
                Ok(_) => {}
                Err(cause) => causes.extend(faults(&cause)),
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

fn claim_at(node: Arc<Node>, claim: Arc<Claim>, proposal: u64, request: NodeRequest) -> BoxFuture<'static, NodeReply> {
    // Registered before the request is sent: a release of this holder must not overtake it.
    let in_flight = (request == NodeRequest::Claim).then(|| node.in_flight(claim.holder.id));
    Box::pin(async move {
        let Claim { key, holder, .. } = &*claim;
        let reply = match request {
            NodeRequest::Raise(to) => NodeReply::Raise(node.backend.raise(key, &holder.id, to).await),
            NodeRequest::Release => NodeReply::Release(node.backend.release(key, &holder.id).await),
            NodeRequest::Watch => {
                let _ = node.backend.watch(key).await;
                NodeReply::Watch
            }
            _ => NodeReply::Claim(node.backend.acquire_proposed(&claim, proposal).await.answer),
        };
        drop(in_flight);
        reply
    })
}
