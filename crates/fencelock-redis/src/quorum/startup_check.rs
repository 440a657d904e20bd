//! Checks the nodes before a quorum serves.

use crate::server::Redis;
use crate::server::node_setup::same_server;
use fencelock_core::{Backend, ConnectError, Fault, NodeFault, Quorum as Size, Unknown};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How long the remaining nodes have to answer after a majority has.
const STRAGGLERS: Duration = Duration::from_millis(250);

/// Checks that a majority answers, that all answering nodes are different servers, and that none belongs to another set.
pub(crate) async fn check_nodes(size: Size, nodes: &[Arc<Redis>]) -> Result<(), ConnectError> {
    let mut greetings = JoinSet::new();
    for node in nodes {
        let node = Arc::clone(node);
        greetings.spawn(async move { (node.name(), node.greet().await) });
    }
    let (mut known, mut causes, mut enough) = (Vec::<(String, String)>::new(), Vec::new(), None);
    loop {
        let answer = tokio::select! {
            answer = greetings.join_next() => answer,
            () = sleep_until(enough.unwrap_or_else(Instant::now)), if enough.is_some() => break,
        };
        match answer {
            None => break,
            Some(Err(_)) => {}
            Some(Ok((_, Err(cause)))) => causes.extend_from_slice(cause.nodes()),
            Some(Ok((name, Ok(run_id)))) => {
                if let Some((twin, _)) = known.iter().find(|(_, other)| !run_id.is_empty() && *other == run_id) {
                    return Err(same_server(twin, &name).into());
                }
                known.push((name, run_id));
                if known.len() >= size.majority() {
                    enough = enough.or_else(|| Some(Instant::now() + STRAGGLERS));
                }
            }
        }
    }
    // The others go on.
    greetings.detach_all();
    let others = |cause: &&NodeFault| cause.fault == Fault::Misconfigured;
    let of_others: Vec<NodeFault> = causes.iter().filter(others).cloned().collect();
    if !of_others.is_empty() {
        // A single node of another set is an error: with two lists in use, two majorities may have no node in common.
        return Err(Unknown::of_nodes(of_others).into());
    }
    if known.len() < size.majority() { Err(Unknown::of_nodes(causes).into()) } else { Ok(()) }
}
