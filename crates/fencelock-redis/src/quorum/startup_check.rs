//! Checks the nodes before a quorum serves.

use crate::server::Redis;
use crate::server::node_setup::same_server;
use fencelock_core::{Backend, ConnectError, Fault, NodeFault, Quorum as Size, Unknown};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until};

/// How long the remaining nodes have to answer after a majority has.
const STRAGGLERS: Duration = Duration::from_millis(250);

/// The check of a quorum before its first use. It is not repeated after it has passed.
#[derive(Debug)]
pub(crate) struct StartupCheck {
    nodes: Vec<Arc<Redis>>,
    passed: OnceCell<()>,
}

impl StartupCheck {
    pub(crate) fn new(nodes: Vec<Arc<Redis>>) -> Self {
        Self { nodes, passed: OnceCell::new() }
    }

    /// Runs the check unless it has passed. No claim is sent before that.
    pub(crate) async fn run(&self, size: Size) -> Result<(), Unknown> {
        let check = async || match check_nodes(size, &self.nodes).await {
            Ok(()) => Ok(()),
            Err(ConnectError::Unknown(cause)) => Err(cause),
            // A server that is listed twice is a permanent error.
            Err(invalid) => Err(Unknown::new("redlock://", Fault::Misconfigured, invalid.to_string())),
        };
        self.passed.get_or_try_init(check).await.copied()
    }
}

/// Checks that a majority answers, that all answering nodes are different servers, and that none belongs to another set.
pub(crate) async fn check_nodes(size: Size, nodes: &[Arc<Redis>]) -> Result<(), ConnectError> {
    let (answers, mut inbox) = tokio::sync::mpsc::unbounded_channel();
    for node in nodes {
        let (node, answers) = (Arc::clone(node), answers.clone());
        tokio::spawn(async move {
            let greeted = node.greet().await;
            let answer = match greeted {
                Ok(()) => node.run_id().await,
                Err(cause) => Err(cause),
            };
            let _ = answers.send((node.name(), answer));
        });
    }
    drop(answers);
    let (mut known, mut causes, mut enough) = (Vec::<(String, Option<String>)>::new(), Vec::new(), None);
    loop {
        let answer = tokio::select! {
            answer = inbox.recv() => answer,
            () = sleep_until(enough.unwrap_or_else(Instant::now)), if enough.is_some() => break,
        };
        match answer {
            None => break,
            Some((_, Err(cause))) => causes.extend(cause.nodes().to_vec()),
            Some((name, Ok(identity))) => {
                if let Some((twin, _)) = known.iter().find(|(_, other)| identity.is_some() && *other == identity) {
                    return Err(same_server(twin, &name).into());
                }
                known.push((name, identity));
                if known.len() >= size.majority() {
                    enough = enough.or_else(|| Some(Instant::now() + STRAGGLERS));
                }
            }
        }
    }
    let others = |cause: &&NodeFault| cause.fault == Fault::Misconfigured;
    let of_others: Vec<NodeFault> = causes.iter().filter(others).cloned().collect();
    if !of_others.is_empty() {
        // A single node of another set is an error: with two lists in use, two majorities may have no node in common.
        return Err(Unknown::of_nodes(of_others).into());
    }
    if known.len() < size.majority() { Err(Unknown::of_nodes(causes).into()) } else { Ok(()) }
}
