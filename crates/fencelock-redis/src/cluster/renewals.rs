//! Renewals of a batch, at the nodes of their keys.
//!
//! A slot that is being moved refuses scripts for a lock, because the keys of the lock are on two nodes. A move of a slot with
//! millions of keys, or one that was interrupted, can take longer than a lease. So a renewal is then made with one key at a time, which
//! a node serves if it has the key, or names the node that has it. Such a renewal only prolongs: it cannot tell that a lock was lost.

use super::Cluster;
use crate::redis::{Address, Redis};
use fencelock_core::{Backend, Fault, Renew, Renewal, Unknown};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The node of a slot can have changed more than once since the last renewal.
const TRIES: u32 = 3;

/// A node that does not answer for this long may have been replaced.
const SILENT: Duration = Duration::from_millis(300);

/// An answer for each renewal.
type Answers = Vec<Result<Renew, Unknown>>;

/// The renewals for one node, by their numbers in the batch.
struct Part {
    address: Address,
    node: Arc<Redis>,
    numbers: Vec<usize>,
}

impl Cluster {
    pub(super) async fn renew_all(&self, renewals: &[Renewal]) -> Answers {
        let mut answers: Vec<Option<Result<Renew, Unknown>>> = vec![None; renewals.len()];
        let mut left: Vec<usize> = (0..renewals.len()).collect();
        for _ in 0..TRIES {
            let parts = self.parts(renewals, &left, &mut answers).await;
            let sent = parts.iter().map(|part| async {
                let batch: Vec<Renewal> = part.numbers.iter().map(|number| renewals[*number].clone()).collect();
                self.until_replaced(part, renewals, &batch).await
            });
            left.clear();
            for (part, answered) in parts.iter().zip(join_all(sent).await) {
                for (number, answer) in part.numbers.iter().zip(answered) {
                    if self.is_elsewhere(&renewals[*number], &part.address, &answer).await {
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

    /// Ends without an answer as soon as another node serves the slot: there may be no time to wait for a node that is gone. A renewal
    /// can be repeated, whether it was executed or not.
    async fn until_replaced(&self, part: &Part, all: &[Renewal], batch: &[Renewal]) -> Answers {
        let slot = part.numbers.first().map(|number| self.slot(&all[*number].key));
        let mut request = pin!(self.watched(&part.address, part.node.renew_all(batch)));
        loop {
            if let Ok(answers) = timeout(SILENT, request.as_mut()).await {
                return answers;
            }
            // Without a new map, the old node may still answer.
            let is_new = self.refresh().await.is_ok();
            let owner = slot.and_then(|slot| self.view.owner(slot));
            if is_new && owner.is_some_and(|owner| owner != part.address) {
                let replaced =
                    Unknown::new(part.node.name(), Fault::Unreachable, "another node has replaced it").unsent();
                return vec![Err(replaced); batch.len()];
            }
        }
    }

    /// The nodes of these renewals. A renewal without a node is answered.
    async fn parts(
        &self,
        renewals: &[Renewal],
        numbers: &[usize],
        answers: &mut [Option<Result<Renew, Unknown>>],
    ) -> Vec<Part> {
        let mut parts: BTreeMap<Address, Part> = BTreeMap::new();
        for number in numbers {
            match self.owner(self.slot(&renewals[*number].key)).await {
                Ok((address, node)) => {
                    let part = parts.entry(address.clone()).or_insert(Part { address, node, numbers: Vec::new() });
                    part.numbers.push(*number);
                }
                Err(unknown) => answers[*number] = Some(Err(unknown)),
            }
        }
        parts.into_values().collect()
    }

    /// Whether another node serves the key by now.
    async fn is_elsewhere(&self, renewal: &Renewal, asked: &Address, answer: &Result<Renew, Unknown>) -> bool {
        let (Err(cause), slot) = (answer, self.slot(&renewal.key)) else { return false };
        self.helps_to_repeat(slot, asked, cause).await && self.view.owner(slot).is_some_and(|owner| owner != *asked)
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

    /// Sends requests with one key each, to the node that serves the slot and to the one to which it is moved.
    pub(super) async fn singly<T: Send, F: Future<Output = Result<T, Unknown>> + Send>(
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
            // The first answer names the node to which the slot is moved.
            let named = self.view.importing(slot);
            match &answer {
                Err(moved) if moved.is_moved() && named.is_some() && named != importing => importing = named,
                _ => return answer,
            }
        }
    }
}
