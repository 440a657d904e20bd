use crate::Mode;
use std::fmt;
use std::time::Duration;

/// Why one node could not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// No answer in time. The request may have been carried out all the same.
    Timeout,
    /// No connection, or it broke. The request may have been carried out all the same.
    Unreachable,
    /// The credentials are wrong, or do not suffice. Trying again changes nothing.
    Denied,
    /// A replica, or a master demoted to one.
    ReadOnly,
    /// The server is starting and reads its data.
    Loading,
    /// The server takes no writes: it is out of memory, cannot write to its disk, or lacks the replicas that it must have.
    Full,
    /// The server is busy with a script or a fail-over, and asks to try again.
    Busy,
    /// It was carried out, but fewer replicas than wanted confirmed in time that they have it too.
    NotReplicated {
        /// How many did.
        confirmed: u32,
        /// How many must.
        wanted: u32,
    },
    /// It is well, but may have forgotten what it granted, and so grants nothing for a while. Nothing was carried out, and it
    /// passes by itself: the detail says when.
    Quarantined,
    /// It is well, but belongs to another set of nodes, or allows another longest TTL. Nothing was carried out, and trying
    /// again changes nothing.
    Misconfigured,
    /// Something answers, but these locks cannot live there: a node of a Redis Cluster, a database that it does not have,
    /// another protocol. Trying again changes nothing, and the detail says what does.
    Unsupported,
    /// The place has no locks of this mode. Nothing was carried out. Trying again changes nothing.
    ModeUnsupported(Mode),
    /// Anything else: the detail says what.
    Other,
}

impl Fault {
    /// Whether trying again cannot help.
    pub const fn is_permanent(self) -> bool {
        matches!(self, Self::Denied | Self::Misconfigured | Self::Unsupported | Self::ModeUnsupported(_))
    }

    /// Whether the node answered, and takes no part: nothing was carried out.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Quarantined | Self::Misconfigured)
    }

    /// Whether the node answered before it changed anything.
    const fn changed_nothing(self) -> bool {
        self.is_refusal() || matches!(self, Self::ReadOnly | Self::Loading | Self::Full | Self::ModeUnsupported(_))
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Timeout => "no answer in time",
            Self::Unreachable => "not reachable",
            Self::Denied => "access denied",
            Self::ReadOnly => "read-only: a replica, or a master demoted to one",
            Self::Loading => "still loading its data",
            Self::Full => "cannot store anything",
            Self::Busy => "busy",
            Self::NotReplicated { .. } => "not replicated",
            Self::Quarantined => "in quarantine",
            Self::Misconfigured => "set up otherwise",
            Self::Unsupported => "cannot hold these locks",
            Self::ModeUnsupported(_) => "does not offer",
            Self::Other => "failed",
        }
    }

    /// What to do about it, where it is the same for every node.
    const fn advice(self) -> Option<&'static str> {
        match self {
            Self::Quarantined => Some("servers that are all new: `fencelock init --trust-empty`"),
            Self::Misconfigured => Some("if the change was on purpose: `fencelock init` with the new URL"),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())?;
        match self {
            Self::NotReplicated { confirmed, wanted } => write!(f, ": {confirmed} of {wanted} replicas confirmed"),
            Self::ModeUnsupported(mode) => write!(f, " {mode}"),
            _ => Ok(()),
        }
    }
}

/// A [`Fault`] with its place and the words of whoever reported it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NodeFault {
    /// Host and port, or a directory. Never a password.
    pub node: String,
    /// What kind.
    pub fault: Fault,
    /// The words of the server or the operating system; may be empty.
    pub detail: String,
    /// When it passes by itself, where that is known: the rest of a quarantine.
    pub passes_in: Option<Duration>,
}

impl NodeFault {
    /// `node` is an address without a password, or a directory; `detail` may be empty.
    pub fn new(node: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self { node: node.into(), fault, detail: detail.into(), passes_in: None }
    }

    /// The same with when it passes by itself.
    #[must_use]
    pub const fn with_passes_in(mut self, passes_in: Duration) -> Self {
        self.passes_in = Some(passes_in);
        self
    }
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.fault)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

/// The backend could not tell: the request may or may not have been carried out.
///
/// It is neither "held" nor "lost". Only a later answer or the end of the lease decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unknown {
    nodes: Vec<NodeFault>,
    unsent: bool,
}

impl Unknown {
    /// One node, one cause.
    pub fn new(node: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self { nodes: vec![NodeFault::new(node, fault, detail)], unsent: false }
    }

    /// Several nodes, each with its cause.
    pub const fn of_nodes(nodes: Vec<NodeFault>) -> Self {
        Self { nodes, unsent: false }
    }

    /// The same, of a request that was not sent: there was no connection for it.
    #[must_use]
    pub fn unsent(mut self) -> Self {
        self.unsent = true;
        self
    }

    /// Whether it is known that the request reached no node: then nothing was carried out, and nothing has to be given back.
    pub const fn is_unsent(&self) -> bool {
        self.unsent
    }

    /// The causes, one for each node that failed.
    pub fn nodes(&self) -> &[NodeFault] {
        &self.nodes
    }

    /// How many replicas confirmed and how many must, if that is the cause.
    pub fn not_replicated(&self) -> Option<(u32, u32)> {
        self.nodes.iter().find_map(|node| match node.fault {
            Fault::NotReplicated { confirmed, wanted } => Some((confirmed, wanted)),
            _ => None,
        })
    }

    /// The mode that the place does not have, if that is the cause.
    pub fn unsupported_mode(&self) -> Option<Mode> {
        self.nodes.iter().find_map(|node| match node.fault {
            Fault::ModeUnsupported(mode) => Some(mode),
            _ => None,
        })
    }

    /// Whether trying again cannot help: no node can get better by itself.
    pub fn is_permanent(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.fault.is_permanent())
    }

    /// Whether every node that failed answered that it takes no part. Then, whatever "unknown" says, nothing was carried out,
    /// or a quorum is giving it back.
    pub fn is_refusal(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.fault.is_refusal())
    }

    /// Whether every node that failed answered before it changed anything: no part of the request is under way, and none was
    /// carried out there.
    pub fn changed_nothing(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.fault.changed_nothing())
    }

    /// Whether a node is in quarantine, so that it is worth waiting for the end of that.
    pub fn is_quarantine(&self) -> bool {
        self.nodes.iter().any(|node| node.fault == Fault::Quarantined)
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{node}", if i == 0 { "" } else { "; " })?;
        }
        for fault in [Fault::Quarantined, Fault::Misconfigured] {
            if let Some(advice) = fault.advice().filter(|_| self.nodes.iter().any(|node| node.fault == fault)) {
                write!(f, "; {advice}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Unknown {}

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
    fn missing_replicas_are_counted() {
        let unknown = Unknown::new("a:1", Fault::NotReplicated { confirmed: 1, wanted: 2 }, "within 50 ms");
        assert_eq!(unknown.to_string(), "a:1: not replicated: 1 of 2 replicas confirmed (within 50 ms)");
        assert_eq!(unknown.not_replicated(), Some((1, 2)));
        assert_eq!(Unknown::new("a:1", Fault::Busy, "").not_replicated(), None);
        assert!(!unknown.is_permanent(), "replicas come back");
    }

    #[test]
    fn a_mode_that_is_not_offered_is_named_and_refused_for_good() {
        let mode = Mode::permits(2, 10).unwrap();
        let unknown = Unknown::new("file:/x", Fault::ModeUnsupported(mode), "use another place");
        assert_eq!(unknown.to_string(), "file:/x: does not offer 2 of 10 permits (use another place)");
        assert_eq!(unknown.unsupported_mode(), Some(mode));
        assert!(unknown.is_permanent() && unknown.changed_nothing() && !unknown.is_refusal());
        assert_eq!(Unknown::new("a:1", Fault::Unsupported, "").unsupported_mode(), None);
    }

    #[test]
    fn what_only_a_person_can_change_is_permanent() {
        assert!(Unknown::new("a:1", Fault::Denied, "").is_permanent());
        assert!(Unknown::new("a:1", Fault::Misconfigured, "").is_permanent());
        assert!(Unknown::new("a:1", Fault::Unsupported, "").is_permanent());
        assert!(!Unknown::new("a:1", Fault::ReadOnly, "").is_permanent());
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
    fn only_who_says_so_has_sent_nothing() {
        let unknown = Unknown::new("a:1", Fault::Unreachable, "");
        assert!(!unknown.is_unsent() && unknown.unsent().is_unsent());
    }

    #[test]
    fn a_server_that_takes_no_writes_has_changed_nothing() {
        let node = |fault| NodeFault::new("a:1", fault, "");
        let takes_none = [Fault::ReadOnly, Fault::Full, Fault::Loading, Fault::Quarantined].map(node).to_vec();
        assert!(Unknown::of_nodes(takes_none.clone()).changed_nothing());
        for maybe in [Fault::Timeout, Fault::Unreachable, Fault::Denied, Fault::Busy, Fault::Other] {
            let nodes = [takes_none.clone(), vec![node(maybe)]].concat();
            assert!(!Unknown::of_nodes(nodes).changed_nothing(), "{maybe:?}");
        }
        assert!(!Unknown::of_nodes(Vec::new()).changed_nothing());
    }

    #[test]
    fn what_to_do_is_said_once_for_all_nodes() {
        let node = |name: &str| NodeFault::new(name, Fault::Quarantined, "5 s left");
        assert_eq!(
            Unknown::of_nodes(vec![node("a:1"), node("b:2")]).to_string(),
            "a:1: in quarantine (5 s left); b:2: in quarantine (5 s left); servers that are all new: \
             `fencelock init --trust-empty`"
        );
    }
}
