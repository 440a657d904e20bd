use super::Cluster;
use crate::server::list::list_served;
use crate::url::hosts::Address;
use fencelock_core::{Backend, Fault, Holding, Key, Unknown};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};

/// A move of a slot takes less time than a list, so a repeated list succeeds.
const TRIES: u32 = 5;
/// If more keys than this move during one list, the list is an error and must be repeated.
const MOVED_MAX: usize = 1000;

/// Lists the locks of all nodes. All nodes must reply: a lock that is not listed seems free.
pub(crate) async fn list_all(cluster: &Cluster) -> Result<Vec<Holding>, Unknown> {
    cluster.refresh().await?;
    let mut map = cluster.view.map();
    for _ in 0..TRIES {
        let held = list_at(cluster, &map.masters()).await?;
        // A lock of a slot that was moved during the list may have been on neither node when that node was queried.
        let before = cluster.view.map();
        cluster.refresh_now().await?;
        map = cluster.view.map();
        if map == before {
            return Ok(held.into_values().collect());
        }
    }
    let why = "slots are being moved to other nodes all the time: list the locks again after that";
    Err(Unknown::new(&cluster.url.name, Fault::Moved, why))
}

async fn list_at(cluster: &Cluster, masters: &BTreeSet<Address>) -> Result<BTreeMap<Key, Holding>, Unknown> {
    let nodes: Vec<_> = masters.iter().map(|address| cluster.node(address)).collect::<Result<_, _>>()?;
    let (mut held, mut moved, mut causes) = (BTreeMap::new(), Vec::new(), Vec::new());
    for list in join_all(nodes.iter().map(|node| list_served(node))).await {
        match list {
            Ok(listed) => {
                held.extend(listed.held);
                moved.extend(listed.moved);
            }
            Err(unknown) => causes.extend_from_slice(unknown.nodes()),
        }
    }
    if !causes.is_empty() {
        return Err(Unknown::of_nodes(causes));
    }
    if moved.len() > MOVED_MAX {
        let why = "very many keys are being moved to other nodes: list the locks again after that";
        return Err(Unknown::new(&cluster.url.name, Fault::Moved, why));
    }
    for key in moved {
        match cluster.inspect(&key).await? {
            Some(holding) => held.insert(key, holding),
            None => held.remove(&key),
        };
    }
    Ok(held)
}
