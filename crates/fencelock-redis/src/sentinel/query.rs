use super::Named;
use super::node::SentinelNode;
use crate::url::hosts::{Address, shown};
use crate::url::secrets::SecretFiles;
use crate::url::sentinel::SentinelUrl;
use fencelock_core::{
    Fault, Invalid, NodeFault, Unknown, eligible_masters, master_by_majority, named_masters, votes_for,
};
use redis::ConnectionInfo;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// The sentinels of a URL.
#[derive(Debug)]
pub(crate) struct Sentinels {
    master: String,
    nodes: Vec<Arc<SentinelNode>>,
    limit: Duration,
    /// Only the master that a majority names is used. A deployment with a quarantine needs this. Without a quarantine, a failover
    /// can lose grants anyway, so a minority is enough.
    needs_majority: bool,
    /// Notified when a sentinel publishes another master.
    pub(crate) switched: Arc<Notify>,
}

/// The replies of the sentinels, in the order of the URL.
#[derive(Debug)]
pub(crate) struct SentinelReplies {
    pub(crate) named: Vec<Option<Named>>,
    pub(crate) faults: Vec<NodeFault>,
}

impl Sentinels {
    /// `info` has the settings of a connection to a sentinel.
    pub(crate) fn new(
        url: &SentinelUrl,
        limit: Duration,
        needs_majority: bool,
        files: &Arc<SecretFiles>,
        info: impl Fn(&Address) -> ConnectionInfo,
    ) -> Self {
        let node = |host| Arc::new(SentinelNode::new(host, info(host), Arc::clone(files)));
        let nodes = url.hosts.iter().map(node).collect();
        Self { master: url.master.clone(), nodes, limit, needs_majority, switched: Arc::default() }
    }

    /// The same sentinels with separate connections.
    pub(crate) fn fresh(&self) -> Self {
        Self {
            master: self.master.clone(),
            nodes: self.nodes.iter().map(|node| Arc::new(node.fresh())).collect(),
            switched: Arc::default(),
            ..*self
        }
    }

    /// Queries all sentinels at the same time. `until` ends the wait before all have replied. The other requests continue in the
    /// background, because otherwise a slow sentinel would never be connected.
    pub(crate) async fn query(&self, until: impl Fn(&[Option<Named>]) -> bool) -> SentinelReplies {
        let (answer, mut answered) = mpsc::channel(self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            let (node, master, switched) = (Arc::clone(node), self.master.clone(), Arc::clone(&self.switched));
            let (limit, answer) = (self.limit, answer.clone());
            tokio::spawn(async move {
                // Without a receiver, the reply is too late.
                let _ = answer.send((number, node.query(&master, limit, &switched).await)).await;
            });
        }
        drop(answer);
        let mut answers = SentinelReplies { named: vec![None; self.nodes.len()], faults: Vec::new() };
        while let Some((number, answer)) = answered.recv().await {
            match answer {
                Ok(named) => answers.named[number] = Some(named),
                Err(fault) => answers.faults.push(fault),
            }
            if until(&answers.named) {
                break;
            }
        }
        answers
    }

    /// The servers to try, those with most votes first.
    pub(crate) async fn candidates(&self, node: &str) -> Result<Vec<Named>, Unknown> {
        let answers = self.query(|named| master_by_majority(named).is_some()).await;
        if let Some(master) = master_by_majority(&answers.named) {
            return Ok(vec![master.clone()]);
        }
        if answers.named.iter().all(Option::is_none) {
            return Err(Unknown::of_nodes(answers.faults));
        }
        let eligible: Vec<Named> = eligible_masters(&answers.named).into_iter().cloned().collect();
        if self.needs_majority || eligible.is_empty() {
            return Err(no_majority(node, &answers));
        }
        Ok(eligible)
    }

    /// Whether these replies name a master other than `present`.
    pub(crate) fn has_another(&self, answers: &SentinelReplies, present: &Named) -> bool {
        match master_by_majority(&answers.named) {
            Some(master) => master != present,
            None if self.needs_majority => false,
            // An earlier epoch is an outdated reply.
            None => named_masters(&answers.named).iter().any(|named| named.config_epoch > present.config_epoch),
        }
    }

    /// The address of the master, for uses other than locks.
    pub(crate) fn query_blocking(&self) -> Result<Address, Invalid> {
        let (mut last, mut named) = ("they do not agree".to_owned(), vec![None; self.nodes.len()]);
        for (number, node) in self.nodes.iter().enumerate() {
            match node.query_blocking(&self.master, self.limit) {
                Ok(Some(master)) => named[number] = Some(master),
                Ok(None) => last = format!("it does not monitor a master {:?}", self.master),
                Err(error) => last = error.to_string(),
            }
            if master_by_majority(&named).is_some() {
                break;
            }
        }
        let eligible = eligible_masters(&named).first().map(|master| master.address.clone());
        eligible.ok_or_else(|| Invalid::new(format!("no sentinel names the master {:?}: {last}", self.master)))
    }
}

/// Why a master that some sentinels name is not used.
pub(crate) fn no_majority(node: &str, answers: &SentinelReplies) -> Unknown {
    let votes: Vec<_> = named_masters(&answers.named)
        .iter()
        .map(|master| format!("{} by {}", shown(&master.address), votes_for(&answers.named, master)))
        .collect();
    let (votes, all) = (votes.join(" and "), answers.named.len());
    let why = if votes.is_empty() {
        format!("none of its {all} sentinels names a master")
    } else {
        format!("no majority of its {all} sentinels names one master: {votes}; a failover may be in progress")
    };
    let mut faults = vec![NodeFault::new(node, Fault::Busy, why)];
    faults.extend(answers.faults.iter().cloned());
    Unknown::of_nodes(faults)
}
