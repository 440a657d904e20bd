//! Polls: a holder resumes its hold, after its claim or in another process.

use super::Quorum;
use super::inspection::faults;
use fencelock_core::{Acquire, Claim, FencingToken, Mode, Renew, Renewal, Unknown};
use std::sync::Arc;

impl Quorum {
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
        let to_node = Arc::new(claim.clone());
        let mut answers = self.send_to_all(
            &claim.key,
            |node| node.limit(claim.ttl.get() / 10),
            |node| {
                let claim = Arc::clone(&to_node);
                async move { node.acquire(&claim).await }
            },
        );
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
