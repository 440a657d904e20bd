use super::Cluster;
use crate::redis::Listed;
use fencelock_core::{Backend, Holding, Key, Unknown};
use futures_util::future::join_all;
use std::collections::BTreeMap;

/// More keys that change their node during one list are an error: repeat it.
const MOVED_MAX: usize = 1000;

impl Cluster {
    /// The locks of all nodes. All must answer: a list without those of a node would say that they are free.
    pub(super) async fn list_all(&self) -> Result<Vec<Holding>, Unknown> {
        // What a node does not serve any more, another one has to list.
        self.refresh().await?;
        let masters = self.view.masters();
        let nodes: Vec<_> =
            masters.iter().map(|address| self.nodes.at(address, &self.url, &self.view)).collect::<Result<_, _>>()?;
        let (mut held, mut moved, mut causes) = (BTreeMap::new(), Vec::new(), Vec::new());
        for list in join_all(nodes.iter().map(|node| node.list_served())).await {
            match list {
                Ok(Listed { holdings, moved: keys }) => {
                    held.extend(holdings.into_iter().map(|holding| (holding.key.clone(), holding)));
                    moved.extend(keys);
                }
                Err(unknown) => causes.extend(unknown.nodes().to_vec()),
            }
        }
        if !causes.is_empty() {
            return Err(Unknown::of_nodes(causes));
        }
        self.look_again(moved, &mut held).await?;
        Ok(held.into_values().collect())
    }

    async fn look_again(&self, moved: Vec<Key>, held: &mut BTreeMap<Key, Holding>) -> Result<(), Unknown> {
        if moved.len() > MOVED_MAX {
            let why = "very many keys are being moved to other nodes: list the locks again after that";
            return Err(Unknown::new(&self.url.name, fencelock_core::Fault::Moved, why));
        }
        for key in moved {
            match self.inspect(&key).await? {
                Some(holding) => held.insert(key, holding),
                None => held.remove(&key),
            };
        }
        Ok(())
    }
}
