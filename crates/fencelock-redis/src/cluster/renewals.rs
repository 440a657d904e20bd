//! Renewals of a batch, at the nodes of their keys.
//!
//! A slot that is being moved refuses scripts for a lock, because the keys of the lock are on two nodes. A move of a slot with
//! millions of keys, or one that was interrupted, can take longer than a lease. So a renewal is then made with one key at a time, which
//! a node serves if it has the key, or names the node that has it. Such a renewal only prolongs: it cannot tell that a lock was lost.

use super::Cluster;
use super::routing::is_moved;
use crate::redis::{Address, Redis};
use fencelock_core::{Renew, Renewal, Unknown, hash_slot};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The node of a slot can have changed more than once since the last renewal.
const TRIES: u32 = 3;

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
                part.node.renew_all(&batch).await
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

    /// The nodes of these renewals. A renewal without a node is answered.
    async fn parts(
        &self,
        renewals: &[Renewal],
        numbers: &[usize],
        answers: &mut [Option<Result<Renew, Unknown>>],
    ) -> Vec<Part> {
        let mut parts: BTreeMap<Address, Part> = BTreeMap::new();
        for number in numbers {
            match self.owner(self.slot(&renewals[*number])).await {
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
        let (Err(cause), slot) = (answer, self.slot(renewal)) else { return false };
        self.helps_to_repeat(slot, asked, cause).await && self.view.owner(slot).is_some_and(|owner| owner != *asked)
    }

    /// Renews with one key at a time if the slot is being moved.
    async fn renewed_singly(
        &self,
        renewal: &Renewal,
        answer: Option<Result<Renew, Unknown>>,
    ) -> Result<Renew, Unknown> {
        let no_answer = || Err(Unknown::new(&self.url.name, fencelock_core::Fault::Other, "no answer"));
        let cause = match answer.unwrap_or_else(no_answer) {
            Err(cause) if is_moved(&cause) => cause,
            answer => return answer,
        };
        let slot = self.slot(renewal);
        let (_, node) = self.owner(slot).await?;
        let importing = match self.view.importing(slot) {
            Some(address) => Some(self.nodes.at(&address, &self.url, &self.view)?),
            None => None,
        };
        // The first answer names the node to which the slot is moved.
        match node.renew_singly(renewal, importing.as_deref()).await {
            Err(moved) if is_moved(&moved) && importing.is_none() => match self.view.importing(slot) {
                Some(address) => {
                    let importing = self.nodes.at(&address, &self.url, &self.view)?;
                    node.renew_singly(renewal, Some(&importing)).await
                }
                None => Err(self.explained(slot, cause)),
            },
            Err(moved) if is_moved(&moved) => Err(self.explained(slot, cause)),
            answer => answer,
        }
    }

    fn slot(&self, renewal: &Renewal) -> u16 {
        hash_slot(&self.url.target.wire(&renewal.key))
    }
}
