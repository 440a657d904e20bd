//! What a server is used for.

/// Whether a server is standalone, or one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Alone,
    /// Of a quorum. Always has a quarantine.
    Member,
    /// Of a Redis Cluster. Never has a quarantine.
    ClusterNode,
}
