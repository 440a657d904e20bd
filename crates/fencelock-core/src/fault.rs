use std::fmt;

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
    /// The server is out of memory, or cannot write to its disk.
    Full,
    /// The server is busy with a script or a fail-over, and asks to try again.
    Busy,
    /// Anything else: the detail says what.
    Other,
}

impl Fault {
    /// Whether trying again cannot help.
    pub const fn is_permanent(self) -> bool {
        matches!(self, Self::Denied)
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
            Self::Other => "failed",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// A [`Fault`] with its place and the words of whoever reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFault {
    /// Host and port, or a directory. Never a password.
    pub node: String,
    /// What kind.
    pub fault: Fault,
    /// The words of the server or the operating system; may be empty.
    pub detail: String,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    nodes: Vec<NodeFault>,
}

impl Unknown {
    /// One node, one cause.
    pub fn new(node: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self { nodes: vec![NodeFault { node: node.into(), fault, detail: detail.into() }] }
    }

    /// Several nodes, each with its cause.
    pub const fn of_nodes(nodes: Vec<NodeFault>) -> Self {
        Self { nodes }
    }

    /// The causes, one for each node that failed.
    pub fn nodes(&self) -> &[NodeFault] {
        &self.nodes
    }

    /// Whether trying again cannot help: every node denies access.
    pub fn is_permanent(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.fault.is_permanent())
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{node}", if i == 0 { "" } else { "; " })?;
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
            NodeFault { node: "a:1".into(), fault: Fault::Timeout, detail: String::new() },
            NodeFault { node: "b:2".into(), fault: Fault::Denied, detail: "WRONGPASS".into() },
        ]);
        assert_eq!(unknown.to_string(), "a:1: no answer in time; b:2: access denied (WRONGPASS)");
        assert!(!unknown.is_permanent(), "the other node may recover");
    }

    #[test]
    fn only_refused_credentials_are_permanent() {
        assert!(Unknown::new("a:1", Fault::Denied, "").is_permanent());
        assert!(!Unknown::new("a:1", Fault::ReadOnly, "").is_permanent());
    }
}
