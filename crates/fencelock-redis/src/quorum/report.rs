//! The reports of the nodes, before they are compared.

use super::Quorum;
use fencelock_core::{Finding, Health, PlaceReport, ServerReport};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A node needs a few round trips for its report.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The known facts about one node.
#[derive(Debug)]
pub(super) struct NodeReport {
    /// The address without the scheme.
    pub(super) name: String,
    pub(super) answers: bool,
    pub(super) health: Health,
    pub(super) findings: Vec<Finding>,
}

impl Quorum {
    /// All nodes have the same options.
    pub(super) async fn place_report(&self) -> PlaceReport {
        let asking = self.nodes.iter().map(|node| {
            let node = Arc::clone(node);
            tokio::spawn(async move {
                timeout(PATIENCE, node.backend.report()).await.unwrap_or_else(|_| silent(node.backend.name()))
            })
        });
        let mut place = PlaceReport::default();
        for report in asking.collect::<Vec<_>>() {
            let Ok(report) = report.await else { continue };
            if place.options.is_empty() {
                (place.options, place.wire) = (report.options, report.wire);
            }
            place.servers.extend(report.servers);
        }
        place
    }
}

fn silent(node: String) -> PlaceReport {
    let mut server = ServerReport::new(node);
    server.failure = Some("it does not answer in time".to_owned());
    let mut report = PlaceReport::default();
    report.servers = vec![server];
    report
}
