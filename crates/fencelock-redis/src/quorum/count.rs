//! Renewals, releases and evictions: all nodes at once, counted until it is decided.

use super::Quorum;
use super::inspection::{NodeInspections, faults};
use super::node::Node;
use fencelock_core::{
    Eviction, Foreign, HolderId, Holders, Holding, Key, NodeFault, Occupant, Outcome, Quorum as Size, Release, Renew,
    Renewal, Standing, Tally, Unknown,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// How long to wait for one node where no lease says how long it is worth.
const PATIENCE: Duration = Duration::from_secs(1);

/// A loaded server renews several keys in this time.
const PER_RENEWAL: Duration = Duration::from_millis(1);

/// How long a release that is decided waits for the nodes that are still to free the key: whoever comes next finds it free
/// on all of them. This part of what any node may take: 20 ms, unless the user says otherwise. No node that is well takes
/// longer.
const SETTLING: u32 = 5;

/// The answers about one hold.
#[derive(Debug)]
struct Count {
    tally: Tally,
    outcome: Outcome,
    causes: Vec<Option<Unknown>>,
    taken_by: Option<Holders>,
}

impl Count {
    fn new(size: Size) -> Self {
        Self { tally: Tally::new(size), outcome: Outcome::Pending, causes: vec![None; size.nodes()], taken_by: None }
    }

    fn on_reply<T>(&mut self, node: usize, answer: Result<T, Unknown>, taken_by: impl Fn(T) -> Option<Holders>)
    where
        for<'a> Standing: From<&'a T>,
    {
        let standing = match answer {
            Err(unknown) => {
                self.causes[node] = Some(unknown);
                Standing::Unknown
            }
            Ok(answer) => {
                self.causes[node] = None;
                let standing = Standing::from(&answer);
                self.taken_by = self.taken_by.take().or_else(|| taken_by(answer));
                standing
            }
        };
        self.outcome = self.tally.vote(node, standing);
    }

    fn unknown(&self) -> Unknown {
        let causes: Vec<NodeFault> = self.causes.iter().flatten().flat_map(faults).collect();
        Unknown::of_nodes(causes)
    }

    fn taken_by(&self) -> Holders {
        // A tally of "taken" has counted an answer that names somebody.
        self.taken_by.clone().unwrap_or_else(|| Occupant::Foreign(Foreign::other("somebody else")).into())
    }
}

impl Quorum {
    /// One batch to each node. It is over when every hold is decided.
    pub(super) async fn renew_all(&self, renewals: &[Renewal]) -> Vec<Result<Renew, Unknown>> {
        let Some(first) = renewals.first() else { return Vec::new() };
        let shortest = renewals.iter().map(|renewal| renewal.ttl.get()).min().unwrap_or_default();
        let batch: Arc<[Renewal]> = renewals.into();
        // A node that fails as a whole fails every renewal; then it counts as a failure of the node.
        // What one key takes says nothing of thousands; but whoever waits for them all gives up after a fifth of a lease, and
        // one hold that cannot be told without a node that does not answer must not cost the others their answer.
        let least = PER_RENEWAL.saturating_mul(u32::try_from(renewals.len()).unwrap_or(u32::MAX));
        let least = least.min(PATIENCE).min(shortest / 6);
        let limit = |node: &Node| node.limit(shortest / 10).max(least);
        let mut answers = self.ask_all(&first.key, limit, |node| {
            let batch = Arc::clone(&batch);
            async move {
                let answers = node.renew(&batch).await;
                match answers.iter().find_map(|answer| answer.as_ref().err()) {
                    Some(unknown) if answers.iter().all(Result::is_err) => Err(unknown.clone()),
                    _ => Ok(answers),
                }
            }
        });
        let mut counts: Vec<Count> = renewals.iter().map(|_| Count::new(self.size)).collect();
        while counts.iter().any(|count| count.outcome == Outcome::Pending) {
            let Some((node, answer)) = answers.recv().await else { break };
            let answers = answer.unwrap_or_else(|unknown| vec![Err(unknown); renewals.len()]);
            for (count, answer) in counts.iter_mut().zip(answers) {
                count.on_reply(node, answer, |renew| match renew {
                    Renew::TakenBy(by) => Some(by),
                    _ => None,
                });
            }
        }
        counts.iter().map(renewed).collect()
    }

    /// On every node, also on those that are left out, each after its own claim of this holder has ended. What is not over
    /// a moment after it is decided goes on in the background.
    pub(super) async fn release_all(&self, key: &Key, holder: HolderId) -> Result<Release, Unknown> {
        let (answers, mut inbox) = mpsc::unbounded_channel();
        for (number, (node, left_out)) in self.asked(key).into_iter().enumerate() {
            let key = key.clone();
            let answers = match left_out {
                None => Some(answers.clone()),
                Some(cause) => {
                    let _ = answers.send((number, Err(cause)));
                    None
                }
            };
            tokio::spawn(async move {
                let release = async {
                    node.quiet(&holder).await;
                    node.backend.release(&key, &holder).await
                };
                let say = |answer| {
                    if let Some(answers) = &answers {
                        let _ = answers.send((number, answer));
                    }
                };
                let _ = node.carried_out(node.limit(PATIENCE), release, say).await;
            });
        }
        drop(answers);
        let mut count = Count::new(self.size);
        let settling = self.nodes.iter().map(|node| node.shortest_limit).max().unwrap_or_default() / SETTLING;
        let mut settled = None;
        loop {
            // What cannot be told yet may be told by an answer that is late.
            if !matches!(count.outcome, Outcome::Pending | Outcome::Unknown) {
                settled = settled.or_else(|| Some(Instant::now() + settling));
            }
            let heard = match settled {
                None => inbox.recv().await,
                Some(settled) => timeout_at(settled, inbox.recv()).await.ok().flatten(),
            };
            let Some((node, answer)) = heard else { break };
            count.on_reply(node, answer, |release| match release {
                Release::TakenBy(by) => Some(by),
                _ => None,
            });
        }
        match count.outcome {
            Outcome::Ours => {
                self.changed(key);
                Ok(Release::Released)
            }
            Outcome::Absent => Ok(Release::Absent),
            Outcome::Taken => Ok(Release::TakenBy(count.taken_by())),
            Outcome::Unknown | Outcome::Pending => Err(count.unknown()),
        }
    }

    pub(super) async fn evict_all(&self, seen: &Holding) -> Result<Eviction, Unknown> {
        let mut answers = self.ask_all(&seen.key, patience, |node| {
            let seen = seen.clone();
            async move { node.evict(&seen).await }
        });
        let (mut tally, mut causes) = (Tally::new(self.size), Vec::new());
        let mut outcome = Outcome::Pending;
        // Every node is waited for: what is seen after an eviction should be what it left.
        while let Some((node, answer)) = answers.recv().await {
            let standing = match answer {
                Ok(Eviction::Evicted) => Standing::Ours,
                Ok(Eviction::Changed(None)) => Standing::Absent,
                Ok(Eviction::Changed(Some(_))) => Standing::Taken,
                Ok(refused) => return Ok(refused),
                Err(unknown) => {
                    causes.extend(faults(&unknown));
                    Standing::Unknown
                }
            };
            outcome = tally.vote(node, standing);
        }
        match outcome {
            Outcome::Ours => Ok(Eviction::Evicted),
            Outcome::Absent | Outcome::Taken => {
                let now = self.inspect_all(&seen.key).await.holding(&seen.key)?;
                Ok(Eviction::Changed(now.map(Box::new)))
            }
            Outcome::Unknown | Outcome::Pending => Err(Unknown::of_nodes(causes)),
        }
    }

    /// Looks at one key until a majority agrees.
    pub(super) async fn inspect_all(&self, key: &Key) -> NodeInspections {
        let mut answers = self.ask_all(key, patience, |node| {
            let key = key.clone();
            async move { node.inspect(&key).await }
        });
        let mut inspections = NodeInspections::new(self.size);
        while !inspections.is_clear() {
            let Some((node, answer)) = answers.recv().await else { break };
            inspections.on_reply(node, answer);
        }
        inspections
    }
}

fn patience(node: &Node) -> Duration {
    node.limit(PATIENCE)
}

fn renewed(count: &Count) -> Result<Renew, Unknown> {
    match count.outcome {
        Outcome::Ours => Ok(Renew::Renewed { waiters: 0 }),
        Outcome::Absent => Ok(Renew::Absent),
        Outcome::Taken => Ok(Renew::TakenBy(count.taken_by())),
        Outcome::Unknown | Outcome::Pending => Err(count.unknown()),
    }
}
