//! Sends the renewals of a batch to the nodes of their keys.
//!
//! While a slot is moved, the nodes reject scripts for its locks, because the keys of a lock may be on two nodes. The
//! move of a slot with millions of keys, or one that was interrupted, can take longer than a lease. During this time, a
//! renewal uses one key at a time: a node serves the command if it has the key, and otherwise redirects it. Such a renewal only
//! extends the lease: it cannot detect a loss.

use super::Cluster;
use crate::server::{Redis, RenewReplies};
use crate::url::hosts::Address;
use fencelock_core::{Backend, Fault, Renew, Renewal, Unknown};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A slot may have moved more than once since the last renewal.
const TRIES: u32 = 3;

/// A node that does not answer for this long may have been replaced.
const SILENT: Duration = Duration::from_millis(300);

impl Cluster {
    pub(crate) async fn renew_all(&self, renewals: &[Renewal]) -> RenewReplies {
        let mut answers: Vec<Option<Result<Renew, Unknown>>> = vec![None; renewals.len()];
        let mut left: Vec<usize> = (0..renewals.len()).collect();
        for _ in 0..TRIES {
            // Of each node, by their index in the batch.
            let mut parts: BTreeMap<Address, (Arc<Redis>, Vec<usize>)> = BTreeMap::new();
            for number in left.drain(..) {
                match self.owner(self.slot(&renewals[number].key)).await {
                    Ok((address, node)) => parts.entry(address).or_insert((node, Vec::new())).1.push(number),
                    Err(unknown) => answers[number] = Some(Err(unknown)),
                }
            }
            let sent = parts.iter().map(|(address, (node, numbers))| async {
                let batch: Vec<Renewal> = numbers.iter().map(|number| renewals[*number].clone()).collect();
                self.until_replaced(address, node, &batch).await
            });
            for ((address, (_, numbers)), (answered, replaced)) in parts.iter().zip(join_all(sent).await) {
                for (number, answer) in numbers.iter().zip(answered) {
                    if self.is_elsewhere(&renewals[*number], address, &answer, replaced).await {
                        left.push(*number);
                    }
                    answers[*number] = Some(answer);
                }
            }
            if left.is_empty() {
                break;
            }
        }
        let single = renewals.iter().zip(answers).map(|(renewal, answer)| self.renewed_singly(renewal, answer));
        join_all(single).await
    }

    /// Ends without a reply as soon as another node serves the slot: a request to a node that has failed could outlast the lease.
    /// A renewal is idempotent, so it can be repeated. Also returns whether the node may have been replaced: there is another one, or
    /// it cannot be reached.
    async fn until_replaced(&self, address: &Address, node: &Redis, batch: &[Renewal]) -> (RenewReplies, bool) {
        let slot = batch.first().map(|renewal| self.slot(&renewal.key));
        let request = async {
            match node.link.session().await {
                Ok(_) => (node.renew_all(batch).await, false),
                Err(cause) => (vec![Err(cause); batch.len()], true),
            }
        };
        let mut request = pin!(self.watched(address, request));
        loop {
            if let Ok(answers) = timeout(SILENT, request.as_mut()).await {
                return answers;
            }
            // Without a new map, the old node may still answer.
            let is_new = self.refresh().await.is_ok();
            let owner = slot.and_then(|slot| self.view.owner(slot));
            if is_new && owner.is_some_and(|owner| owner != *address) {
                let replaced = Unknown::new(node.name(), Fault::Unreachable, "another node has replaced it");
                return (vec![Err(replaced); batch.len()], true);
            }
        }
    }

    /// Whether another node serves the key by now.
    async fn is_elsewhere(
        &self,
        renewal: &Renewal,
        node: &Address,
        answer: &Result<Renew, Unknown>,
        replaced: bool,
    ) -> bool {
        let (Err(cause), slot) = (answer, self.slot(&renewal.key)) else { return false };
        self.helps_to_repeat(slot, node, cause, replaced).await
            && self.view.owner(slot).is_some_and(|owner| owner != *node)
    }

    /// Renews with one key at a time if the slot is being moved.
    async fn renewed_singly(
        &self,
        renewal: &Renewal,
        answer: Option<Result<Renew, Unknown>>,
    ) -> Result<Renew, Unknown> {
        let no_answer = || Err(Unknown::new(&self.url.name, Fault::Other, "no answer"));
        let cause = match answer.unwrap_or_else(no_answer) {
            Err(cause) if cause.is_moved() => cause,
            answer => return answer,
        };
        let slot = self.slot(&renewal.key);
        let renew = move |node: Arc<Redis>, importing: Option<Arc<Redis>>| async move {
            node.renew_singly(renewal, importing.as_deref()).await
        };
        match self.singly(slot, renew).await {
            Err(moved) if moved.is_moved() => Err(self.explained(slot, cause)),
            answer => answer,
        }
    }

    /// Sends requests with one key each, to the node that serves the slot and to the node that imports it.
    pub(crate) async fn singly<T: Send, F: Future<Output = Result<T, Unknown>> + Send>(
        &self,
        slot: u16,
        request: impl Fn(Arc<Redis>, Option<Arc<Redis>>) -> F + Send,
    ) -> Result<T, Unknown> {
        let mut importing = self.view.importing(slot);
        loop {
            let (_, node) = self.owner(slot).await?;
            let other = match &importing {
                Some(address) => Some(self.node(address)?),
                None => None,
            };
            let answer = request(node, other).await;
            // The first reply names the node that imports the slot.
            let named = self.view.importing(slot);
            match &answer {
                Err(moved) if moved.is_moved() && named.is_some() && named != importing => importing = named,
                _ => return answer,
            }
        }
    }
}
