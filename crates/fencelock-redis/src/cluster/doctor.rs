//! Checks what the guarantees of a cluster depend on: its map, and the report of each node.

use super::Cluster;
use crate::doctor::{NodeReport, clocks, joined, merge};
use crate::hash_slot::HASH_SLOTS;
use crate::url::hosts::{Address, shown};
use fencelock_core::{BackendReport, Finding, Key};
use futures_util::future::join_all;

/// The effect of a clock difference on a cluster.
const SKEW: &str = "shared locks and permits end earlier by this difference when their slot moves to a node whose clock is ahead; tokens allow for 1 s";

pub(super) async fn report(cluster: &Cluster) -> BackendReport {
    if let Err(unknown) = cluster.refresh().await {
        let advice = "check the addresses and the nodes";
        return BackendReport::unreachable(&cluster.url.name, unknown.to_string(), advice);
    }
    let reports = cluster.view.map().masters().into_iter().map(|address| async move {
        let name = shown(&address);
        match cluster.node(&address) {
            Ok(node) => NodeReport::of(name, &*node).await,
            Err(unknown) => NodeReport::silent(name.clone(), name, unknown.to_string()),
        }
    });
    let reports = join_all(reports).await;
    let mut findings = vec![slots(cluster, &reports)];
    findings.extend(clocks(&reports, SKEW));
    joined(findings, reports)
}

/// A lock on each master, or the named one on the node of its slot.
pub(super) async fn try_nodes(cluster: &Cluster, key: Option<&Key>) -> Vec<Finding> {
    if cluster.refresh().await.is_err() {
        return Vec::new();
    }
    let owner = key.and_then(|key| cluster.view.owner(cluster.slot(key)));
    let is_tried = |address: &Address| key.is_none() || owner.as_ref() == Some(address);
    let nodes = cluster.view.map().masters().into_iter().filter(is_tried);
    let reports = nodes.map(|address| async move {
        let node = cluster.node(&address).ok()?;
        Some(NodeReport::of_trial(shown(&address), &*node, key).await)
    });
    merge(join_all(reports).await.into_iter().flatten().collect())
}

fn slots(cluster: &Cluster, reports: &[NodeReport]) -> Finding {
    let map = cluster.view.map();
    let (masters, missing) = (map.masters(), map.unassigned());
    let many = masters.len();
    let silent: Vec<_> = reports.iter().filter(|report| !report.answers).map(|report| &*report.name).collect();
    if !silent.is_empty() {
        let text = format!(
            "Redis Cluster: of {many} masters, {} do not answer: {}; keys in their slots cannot be locked, and by default the others \
             refuse all keys until a replica takes over",
            silent.len(),
            silent.join(", ")
        );
        return Finding::failure("cluster", text, "start these nodes: `redis-cli --cluster check HOST:PORT`");
    }
    let serve = if many == 1 { "master serves" } else { "masters serve" };
    let names = masters.iter().map(shown).collect::<Vec<_>>().join(", ");
    if missing == 0 {
        return Finding::fine("cluster", format!("Redis Cluster: {many} {serve} all {HASH_SLOTS} hash slots: {names}"));
    }
    let served = usize::from(HASH_SLOTS) - missing;
    let text = format!("Redis Cluster: {many} {serve} {served} of {HASH_SLOTS} hash slots: {names}");
    let advice = "keys in the other slots cannot be locked: `redis-cli --cluster check HOST:PORT`";
    Finding::failure("cluster", text, advice)
}
