//! Checks what the guarantees of a cluster depend on: its map, and the report of each node.

use super::Cluster;
use crate::quorum::{NodeReport, backend_report, clocks, merge};
use crate::redis::{Address, shown};
use fencelock_core::{BackendReport, Finding, HASH_SLOTS, Key, Level, ServerReport};
use futures_util::future::join_all;

/// The effect of a clock difference on a cluster.
const SKEW: &str = "shared locks and permits end earlier by this difference when their slot moves to a node whose clock is ahead; tokens allow for 1 s";

impl Cluster {
    pub(super) async fn findings(&self) -> Vec<Finding> {
        if let Err(unknown) = self.refresh().await {
            return vec![Finding::new(
                Level::Failure,
                "connection",
                unknown.to_string(),
                "check the addresses and the nodes",
            )];
        }
        let reports = self.reports().await;
        let mut findings = vec![self.slots(&reports)];
        findings.extend(clocks(&reports, SKEW));
        findings.extend(merge(reports));
        findings
    }

    /// A lock on each master, or the named one on the node of its slot.
    pub(super) async fn try_nodes(&self, key: Option<&Key>) -> Vec<Finding> {
        if self.refresh().await.is_err() {
            return Vec::new();
        }
        let owner = key.and_then(|key| self.view.owner(self.slot(key)));
        let is_tried = |address: &Address| key.is_none() || owner.as_ref() == Some(address);
        let nodes = self.view.masters().into_iter().filter(is_tried);
        let reports = nodes.map(|address| async move {
            let node = self.node(&address).ok()?;
            Some(NodeReport::of_trial(shown(&address), &*node, key).await)
        });
        merge(join_all(reports).await.into_iter().flatten().collect())
    }

    pub(super) async fn backend_report(&self) -> BackendReport {
        if let Err(unknown) = self.refresh().await {
            return BackendReport::of_server(ServerReport::failed(&self.url.name, unknown.to_string()));
        }
        let (mut nodes, mut failed) = (Vec::new(), Vec::new());
        for address in self.view.masters() {
            match self.unused_node(&address) {
                Ok(node) => nodes.push((shown(&address), node)),
                Err(unknown) => failed.push(ServerReport::failed(shown(&address), unknown.to_string())),
            }
        }
        let mut report = backend_report(nodes).await;
        report.servers.extend(failed);
        report
    }

    fn slots(&self, reports: &[NodeReport]) -> Finding {
        let (masters, missing) = (self.view.masters(), self.view.unassigned());
        let count =
            if masters.len() == 1 { "1 master serves".to_owned() } else { format!("{} masters serve", masters.len()) };
        let names: Vec<_> = masters.iter().map(shown).collect();
        let names = names.join(", ");
        let silent: Vec<_> = reports.iter().filter(|report| !report.answers).map(|report| &*report.name).collect();
        if !silent.is_empty() {
            let text = format!(
                "Redis Cluster: of the {} masters of its hash slots, {} do not answer: {}; keys in their slots cannot be locked, \
                 and by default the others refuse all keys until a replica takes over",
                masters.len(),
                silent.len(),
                silent.join(", ")
            );
            return Finding::new(
                Level::Failure,
                "cluster",
                text,
                "start these nodes: `redis-cli --cluster check HOST:PORT`",
            );
        }
        if missing == 0 {
            let text = format!("Redis Cluster: {count} all {HASH_SLOTS} hash slots: {names}");
            return Finding::fine("cluster", text);
        }
        let text =
            format!("Redis Cluster: {count} {} of {HASH_SLOTS} hash slots: {names}", usize::from(HASH_SLOTS) - missing);
        let advice = "keys in the other slots cannot be locked: `redis-cli --cluster check HOST:PORT`";
        Finding::new(Level::Failure, "cluster", text, advice)
    }

    async fn reports(&self) -> Vec<NodeReport> {
        let reports = self.view.masters().into_iter().map(|address| async move {
            let name = shown(&address);
            match self.node(&address) {
                Ok(node) => NodeReport::of(name, &*node).await,
                Err(unknown) => NodeReport::silent(name, unknown.to_string()),
            }
        });
        join_all(reports).await
    }
}
