//! What a server is used for.

/// Whether a server is standalone, or one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Alone,
    /// A node of a quorum. It always has a quarantine.
    Member,
    /// A node of a Redis Cluster. It never has a quarantine.
    ClusterNode,
}
