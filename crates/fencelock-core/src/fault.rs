use std::fmt;
use std::time::Duration;

/// Why the result of a request to one node is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// No reply in time. The request may have been executed.
    Timeout,
    /// No connection, or it was closed. The request may have been executed.
    Unreachable,
    /// The credentials are wrong or insufficient. A retry does not help.
    Denied,
    /// A lock file or its directory cannot be opened: another kind of file is in its place, or this user may not use it. A retry does
    /// not help.
    Unopened,
    /// The server accepted the credentials of this client before, and refuses them now. They come from a file that is read for
    /// each connection, so a retry helps as soon as the file has the new ones.
    Revoked,
    /// A replica, or a master demoted to one.
    ReadOnly,
    /// The server is starting and loads its data.
    Loading,
    /// The server accepts no writes: it is out of memory, cannot write to its disk, or lacks required replicas.
    Full,
    /// The server is busy with a script or a failover, and the request must be retried.
    Busy,
    /// The request was executed, but too few replicas confirmed it in time.
    NotReplicated {
        /// The number of confirmations.
        confirmed: u32,
        /// The required number.
        wanted: u32,
    },
    /// The server is a node of a cluster that does not serve the key, or not yet: another node does. Nothing was executed, and a
    /// retry at the other node helps.
    Moved,
    /// The server works, but may have lost its grants, so it grants nothing for a while. Nothing was executed, and the state
    /// ends by itself: the detail says when.
    Quarantined,
    /// The server works, but belongs to another set of nodes, or has another longest TTL. Nothing was executed, and a retry
    /// does not help.
    Misconfigured,
    /// The server cannot store these locks: a node of a Redis Cluster without a URL of the cluster, a missing database,
    /// another protocol. A retry does not help, and the detail names the remedy.
    Unsupported,
    /// A library has panicked: a bug, or a setting that it does not accept. A retry does not help.
    Panicked,
    /// Any other error; see the detail.
    Other,
}

impl Fault {
    /// Whether a retry does not help: `Denied`, `Unopened`, `Misconfigured`, `Unsupported`, `Panicked`.
    pub const fn is_permanent(self) -> bool {
        matches!(self, Self::Denied | Self::Unopened | Self::Misconfigured | Self::Unsupported | Self::Panicked)
    }

    /// Whether the node answered that it refuses: nothing was executed.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Quarantined | Self::Misconfigured)
    }

    /// Whether the node answered before it changed anything.
    const fn changed_nothing(self) -> bool {
        self.is_refusal() || matches!(self, Self::ReadOnly | Self::Loading | Self::Full | Self::Moved)
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Timeout => "no answer in time",
            Self::Unreachable => "not reachable",
            Self::Denied => "access denied",
            Self::Unopened => "cannot be opened",
            Self::Revoked => "access denied, although it was allowed before",
            Self::ReadOnly => "read-only: a replica, or a master demoted to one",
            Self::Loading => "still loading its data",
            Self::Full => "cannot store anything",
            Self::Busy => "busy",
            Self::NotReplicated { .. } => "not replicated",
            Self::Moved => "not the node of this key",
            Self::Quarantined => "in quarantine",
            Self::Misconfigured => "configured differently",
            Self::Unsupported => "cannot hold these locks",
            Self::Panicked => "a library has panicked",
            Self::Other => "failed",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())?;
        match self {
            Self::NotReplicated { confirmed, wanted } => write!(f, ": {confirmed} of {wanted} replicas confirmed"),
            _ => Ok(()),
        }
    }
}

/// A [`Fault`] with its node and the original error text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NodeFault {
    /// Host and port, or a directory. Never contains a password.
    pub node: String,
    /// The kind of fault.
    pub fault: Fault,
    /// The text of the server or the operating system; may be empty.
    pub detail: String,
    /// The remaining time if the fault ends by itself: the rest of a quarantine.
    pub passes_in: Option<Duration>,
}

impl NodeFault {
    /// `node` is an address without a password, or a directory; `detail` may be empty.
    pub fn new(node: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self { node: node.into(), fault, detail: detail.into(), passes_in: None }
    }

    /// The same with the remaining time.
    #[must_use]
    pub const fn with_passes_in(mut self, passes_in: Duration) -> Self {
        self.passes_in = Some(passes_in);
        self
    }
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.fault)?;
        let left = self.passes_in.map(|rest| format!("{:.1} s left", rest.as_secs_f64())).unwrap_or_default();
        let between = if self.detail.is_empty() || left.is_empty() { "" } else { "; " };
        if !self.detail.is_empty() || !left.is_empty() {
            write!(f, " ({}{between}{left})", self.detail)?;
        }
        Ok(())
    }
}

/// The result of a request is unknown: it may or may not have been executed.
///
/// It means neither "held" nor "lost". Only a later answer or the end of the lease decides.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Unknown {
    nodes: Vec<NodeFault>,
}

impl Unknown {
    /// One node and its cause.
    pub fn new(node: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self { nodes: vec![NodeFault::new(node, fault, detail)] }
    }

    /// Several nodes with their causes.
    pub const fn of_nodes(nodes: Vec<NodeFault>) -> Self {
        Self { nodes }
    }

    /// The same with other kinds of fault.
    #[must_use]
    pub fn map_fault(mut self, kind: impl Fn(Fault) -> Fault) -> Self {
        for node in &mut self.nodes {
            node.fault = kind(node.fault);
        }
        self
    }

    /// The causes, one for each failed node.
    pub fn nodes(&self) -> &[NodeFault] {
        &self.nodes
    }

    /// The causes without the names of the nodes, so that they are the same on all.
    pub fn causes(&self) -> String {
        let each = self.nodes.iter().map(|node| match node.detail.as_str() {
            "" => node.fault.to_string(),
            detail => format!("{}: {detail}", node.fault),
        });
        each.collect::<Vec<_>>().join("; ")
    }

    /// The number of confirmations and the required number, if that is the cause.
    pub fn not_replicated(&self) -> Option<(u32, u32)> {
        self.nodes.iter().find_map(|node| match node.fault {
            Fault::NotReplicated { confirmed, wanted } => Some((confirmed, wanted)),
            _ => None,
        })
    }

    /// Whether a retry does not help, because no node can recover by itself.
    pub fn is_permanent(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.fault.is_permanent())
    }

    /// Whether every failed node answered that it refuses. Then nothing was executed, or a quorum releases it.
    pub fn is_refusal(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.fault.is_refusal())
    }

    /// Whether every failed node answered before it changed anything: no part of the request is in progress, and none was
    /// executed there.
    pub fn changed_nothing(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.fault.changed_nothing())
    }

    /// Whether every failed node answered that it does not serve the key, or not yet. Nothing was executed.
    pub fn is_moved(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.fault == Fault::Moved)
    }

    /// Whether a lock file or its directory cannot be opened, so that the state of the lock is unknown.
    pub fn is_unopened(&self) -> bool {
        self.nodes.iter().any(|node| node.fault == Fault::Unopened)
    }

    /// Whether a library has panicked, so that the state of the lock is unknown.
    pub fn is_panic(&self) -> bool {
        self.nodes.iter().any(|node| node.fault == Fault::Panicked)
    }

    /// Whether a node refuses credentials that it accepted before.
    pub fn is_revoked(&self) -> bool {
        self.nodes.iter().any(|node| node.fault == Fault::Revoked)
    }

    /// Whether a node is in quarantine, so that the client may wait for its end.
    pub fn is_quarantine(&self) -> bool {
        self.nodes.iter().any(|node| node.fault == Fault::Quarantined)
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest: Vec<_> = self.nodes.iter().collect();
        while let Some(node) = rest.first().copied() {
            let alike = |other: &&NodeFault| (other.fault, &other.detail) == (node.fault, &node.detail);
            let (same, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(alike);
            let names: Vec<_> = same.iter().map(|node| node.node.as_str()).collect();
            let last = if others.is_empty() { "" } else { "; " };
            let passes_in = same.iter().filter_map(|node| node.passes_in).max();
            let node = NodeFault { node: names.join(", "), passes_in, ..node.clone() };
            write!(f, "{node}{last}")?;
            rest = others;
        }
        // The remedies that are the same for every node.
        for (fault, advice) in [
            (Fault::Quarantined, "servers that are all new: `fencelock init --trust-empty`"),
            (Fault::Misconfigured, "if the change was on purpose: `fencelock init` with the new URL"),
        ] {
            if self.nodes.iter().any(|node| node.fault == fault) {
                write!(f, "; {advice}")?;
            }
        }
        Ok(())
    }
}

crate::invalid::plain_error!(Unknown);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_is_named_with_its_cause() {
        let unknown = Unknown::of_nodes(vec![
            NodeFault::new("a:1", Fault::Timeout, ""),
            NodeFault::new("b:2", Fault::Denied, "WRONGPASS"),
        ]);
        assert_eq!(unknown.to_string(), "a:1: no answer in time; b:2: access denied (WRONGPASS)");
        assert!(!unknown.is_permanent(), "the other node may recover");
    }

    #[test]
    fn a_cause_of_several_nodes_is_named_once() {
        let node = |name, fault| NodeFault::new(name, fault, "");
        let unknown =
            Unknown::of_nodes(vec![node("a", Fault::Timeout), node("b", Fault::Loading), node("c", Fault::Timeout)]);
        assert_eq!(unknown.to_string(), format!("a, c: no answer in time; {}", node("b", Fault::Loading)));
    }

    #[test]
    fn missing_replicas_are_counted() {
        let unknown = Unknown::new("a:1", Fault::NotReplicated { confirmed: 1, wanted: 2 }, "within 50 ms");
        assert_eq!(unknown.to_string(), "a:1: not replicated: 1 of 2 replicas confirmed (within 50 ms)");
        assert_eq!(unknown.not_replicated(), Some((1, 2)));
        assert_eq!(Unknown::new("a:1", Fault::Busy, "").not_replicated(), None);
        assert!(!unknown.is_permanent(), "replicas come back");
    }

    #[test]
    fn what_only_a_person_can_change_is_permanent() {
        assert!(Unknown::new("a:1", Fault::Denied, "").is_permanent());
        assert!(Unknown::new("a:1", Fault::Misconfigured, "").is_permanent());
        assert!(Unknown::new("a:1", Fault::Unsupported, "").is_permanent());
        assert!(!Unknown::new("a:1", Fault::ReadOnly, "").is_permanent());
        assert!(!Unknown::new("a:1", Fault::Revoked, "").is_permanent());
        assert!(!Unknown::new("a:1", Fault::Quarantined, "").is_permanent());
    }

    #[test]
    fn a_refusal_is_one_only_if_no_node_may_have_done_anything() {
        let node = |fault| NodeFault::new("a:1", fault, "");
        let (kept_out, silent) = (node(Fault::Quarantined), node(Fault::Timeout));
        assert!(Unknown::of_nodes(vec![kept_out.clone(), node(Fault::Misconfigured)]).is_refusal());
        assert!(!Unknown::of_nodes(vec![kept_out.clone(), silent]).is_refusal());
        assert!(!Unknown::of_nodes(Vec::new()).is_refusal());
    }

    #[test]
    fn a_server_that_takes_no_writes_has_changed_nothing() {
        let node = |fault| NodeFault::new("a:1", fault, "");
        let takes_none =
            [Fault::ReadOnly, Fault::Full, Fault::Loading, Fault::Moved, Fault::Quarantined].map(node).to_vec();
        assert!(Unknown::of_nodes(takes_none.clone()).changed_nothing());
        for maybe in [Fault::Timeout, Fault::Unreachable, Fault::Denied, Fault::Busy, Fault::Other] {
            let nodes = [takes_none.clone(), vec![node(maybe)]].concat();
            assert!(!Unknown::of_nodes(nodes).changed_nothing(), "{maybe:?}");
        }
        assert!(!Unknown::of_nodes(Vec::new()).changed_nothing());
    }

    #[test]
    fn what_to_do_is_said_once_for_all_nodes() {
        let node = |name: &str, rest| {
            NodeFault::new(name, Fault::Quarantined, "new").with_passes_in(Duration::from_millis(rest))
        };
        assert_eq!(
            Unknown::of_nodes(vec![node("a:1", 4900), node("b:2", 5000)]).to_string(),
            "a:1, b:2: in quarantine (new; 5.0 s left); servers that are all new: \
             `fencelock init --trust-empty`"
        );
    }
}
