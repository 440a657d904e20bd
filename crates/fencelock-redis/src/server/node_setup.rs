//! Connects and registers the servers of one backend: a single Redis, or the nodes of a quorum.

use super::Redis;
use crate::connection::fault::unknown;
use crate::connection::link::{Link, known_run_id};
use crate::connection::session::Session;
use crate::scripts::quarantine::{ALONE, Quarantine, needs_handshake};
use crate::scripts::reply::Reply;
use crate::scripts::script;
use crate::url::options::Role;
use crate::url::target::Target;
use fencelock_core::{Change, ConnectError, Fault, Invalid, NodeFault, RegisteredNode, Unknown};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// An operator waits for a server rather than repeat the command: `timeout=` of a URL is for locks, whose leases run meanwhile.
const LEAST_LIMIT: Duration = Duration::from_secs(5);

/// The nodes of a quorum, one URL each. They connect with the first request.
///
/// # Errors
/// [`Invalid`] for an invalid URL, a server that is listed twice, and nodes that differ in their longest TTL.
pub(crate) fn members(urls: &[String]) -> Result<Vec<Redis>, Invalid> {
    let members: Vec<Redis> = targets(urls)?.into_iter().map(Redis::at).collect::<Result<_, _>>()?;
    let links: Vec<_> = members.iter().map(|member| Arc::clone(&member.link)).collect();
    Link::join_all(&links);
    Ok(members)
}

/// What the URLs of these nodes say.
pub(crate) fn targets(urls: &[String]) -> Result<Vec<Target>, Invalid> {
    let mut targets: Vec<Target> = Vec::new();
    for url in urls {
        let target = Target::parse_as(Role::Member, url)?;
        let address = target.address();
        if targets.iter().any(|other| other.address() == address) {
            return Err(Invalid::new(format!("{address} is listed twice: a quorum is made of different servers")));
        }
        targets.push(target);
    }
    let mut nodes: Vec<String> = targets.iter().map(Target::address).collect();
    nodes.sort_unstable();
    let nodes = nodes.join(",");
    for quarantine in targets.iter_mut().filter_map(|target| target.quarantine.as_mut()) {
        quarantine.join(&nodes);
    }
    let max_ttl = |target: &Target| target.quarantine.as_ref().map(|quarantine| quarantine.max_ttl);
    if targets.iter().any(|target| max_ttl(target) != max_ttl(&targets[0])) {
        return Err(Invalid::new("max_ttl= must be the same for all nodes of a quorum"));
    }
    Ok(targets)
}

/// Registers every server as a node of this set, once all of them have answered.
///
/// # Errors
/// [`fencelock_core::ConnectError::Unknown`] with each node that does not answer. Nothing was written in that case, unless the error reports it.
pub(crate) async fn register(targets: Vec<Target>, trust: bool) -> Result<Vec<RegisteredNode>, ConnectError> {
    let (mut nodes, mut failed) = (Vec::new(), Vec::new());
    for found in join_all(targets.into_iter().map(NodeSetup::find)).await {
        match found {
            Ok(node_setup) => nodes.push(node_setup),
            Err(cause) => failed.extend_from_slice(cause.nodes()),
        }
    }
    if !failed.is_empty() {
        return Err(Unknown::of_nodes(failed).into());
    }
    for (number, node_setup) in nodes.iter().enumerate() {
        let same = |other: &&NodeSetup| other.session.server_info.run_id == node_setup.session.server_info.run_id;
        if let Some(twin) = nodes[..number].iter().find(same) {
            return Err(same_server(twin.link.node(), node_setup.link.node()).into());
        }
    }
    let mut registered = Vec::new();
    for node_setup in &nodes {
        match node_setup.register(trust, nodes.iter().any(|other| node_setup.joins(other))).await {
            Ok(done) => registered.push(done),
            Err(cause) => failed.extend(cause.nodes().to_vec()),
        }
    }
    if failed.is_empty() {
        return Ok(registered);
    }
    for failure in &mut failed {
        add_progress(failure, registered.len(), nodes.len());
    }
    Err(Unknown::of_nodes(failed).into())
}

pub(crate) fn same_server(one: &str, other: &str) -> Invalid {
    Invalid::new(format!("{one} and {other} are the same server: the servers of a quorum must be independent"))
}

fn add_progress(failure: &mut NodeFault, done: usize, all: usize) {
    // A retry does not help against a marker of a later version.
    let then = if failure.fault.is_permanent() { "" } else { ": repeat the command" };
    let between = if failure.detail.is_empty() { "" } else { "; " };
    failure.detail = format!("{}{between}{done} of {all} nodes are registered{then}", failure.detail);
}

/// A connected node before its registration.
struct NodeSetup {
    link: Link,
    quarantine: Quarantine,
    session: Arc<Session>,
    /// The list of nodes in its marker.
    was_in: Option<String>,
}

impl NodeSetup {
    /// Connects without a handshake, which would write.
    async fn find(mut target: Target) -> Result<Self, Unknown> {
        let name = target.name.clone();
        let config = |invalid: Invalid| Unknown::new(name.clone(), Fault::Other, invalid.to_string());
        let quarantine = target.quarantine.take().ok_or_else(|| config(Invalid::new("it has no quarantine")))?;
        target.limit = target.limit.max(LEAST_LIMIT);
        let link = Link::new(target).map_err(&config)?;
        let session = link.session().await?;
        known_run_id(&name, &session)?;
        let mut query = redis::cmd("HGET");
        query.arg(&quarantine.marker).arg("nodes");
        let answer = session.send(&query).await.map_err(|error| unknown(&name, &error))?;
        let was_in = redis::from_redis_value(answer).map_err(|error| unknown(&name, &error.into()))?;
        Ok(Self { link, quarantine, session, was_in })
    }

    /// Whether `other` comes from a list without this node: the grants of that list are unknown here, and a node
    /// that this one replaces may have granted a lock recently.
    fn joins(&self, other: &Self) -> bool {
        let own = other.link.target.address();
        match other.was_in.as_deref() {
            None => false,
            Some(nodes) if nodes == self.quarantine.nodes => false,
            Some(ALONE) => own != self.link.target.address(),
            Some(nodes) => !nodes.split(',').any(|node| node == self.link.target.address()),
        }
    }

    async fn register(&self, trust: bool, joins: bool) -> Result<RegisteredNode, Unknown> {
        let node = self.link.node();
        self.session.check_identity(node).await?;
        let call =
            script::init(&self.quarantine, &self.session.server_info.run_id, trust || self.quarantine.trust, joins);
        let answer = self.link.call(&self.session, &call).await.map_err(|error| unknown(node, &error))?;
        needs_handshake(node, Some(&self.quarantine), &answer)?;
        let mut reply = Reply::new(node, answer)?;
        let change = match reply.text()?.as_str() {
            "new" => Change::New,
            "changed" => Change::Moved,
            _ => Change::None,
        };
        Ok(RegisteredNode::new(node, change, reply.millis()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_registered_nodes_follows_the_cause_if_there_is_one() {
        for (fault, detail, said) in [
            (Fault::Timeout, "", "no answer in time (1 of 3 nodes are registered: repeat the command)"),
            (
                Fault::Unsupported,
                "a later marker",
                "cannot hold these locks (a later marker; 1 of 3 nodes are registered)",
            ),
        ] {
            let mut failure = NodeFault::new("a:1", fault, detail);
            add_progress(&mut failure, 1, 3);
            assert_eq!(failure.to_string(), format!("a:1: {said}"));
        }
    }
}
