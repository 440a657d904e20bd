//! What a backend consists of, what works there, and what follows from it.

use crate::{ClockOffset, Finding};
use std::time::Duration;

/// The servers of a backend, what works on each of them, the options in effect, and what follows for the locks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendReport {
    /// The servers, in the order of the URL. Empty if the backend has none.
    pub servers: Vec<ServerReport>,
    /// The options in effect by their names in the URL, without passwords.
    pub options: Vec<(&'static str, String)>,
    /// The version of the format in which clients share locks on this backend; `None` if there is none.
    pub wire: Option<u32>,
    /// One for each check, for people. [`ServerReport::features`] has the same for programs.
    pub findings: Vec<Finding>,
}

impl BackendReport {
    /// Of a backend with one server, without options.
    pub fn of_server(server: ServerReport) -> Self {
        Self { servers: vec![server], ..Self::default() }
    }

    /// Of a backend whose only server did not reply.
    pub fn unreachable(node: impl Into<String>, why: impl Into<String>, advice: &str) -> Self {
        let why = why.into();
        let findings = vec![Finding::failure("connection", why.clone(), advice)];
        Self { findings, ..Self::of_server(ServerReport::failed(node, why)) }
    }

    /// Of a backend without servers.
    pub fn of_findings(findings: Vec<Finding>) -> Self {
        Self { findings, ..Self::default() }
    }
}

/// One server of a backend. A quorum compares its nodes by what they report of themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// Its name, without secrets.
    pub node: String,
    /// `Redis`, `Valkey`; `None` if it is unknown.
    pub product: Option<String>,
    /// The version of the product; `None` if it is unknown.
    pub version: Option<String>,
    /// What it is part of.
    pub topology: Topology,
    /// Why it did not reply; `None` if it replied.
    pub failure: Option<String>,
    /// Its features. Empty if it did not reply.
    pub features: Vec<Feature>,
    /// Identifies the server, independent of its address.
    pub identity: Option<String>,
    /// The machine that its address names.
    pub host: Option<String>,
    /// Its wall clock, relative to that of this process.
    pub clock: Option<ClockOffset>,
    /// The time since it started.
    pub up_for: Option<Duration>,
}

impl ServerReport {
    /// A report with a name only.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), ..Self::default() }
    }

    /// A report on a server that did not reply.
    pub fn failed(node: impl Into<String>, why: impl Into<String>) -> Self {
        Self { failure: Some(why.into()), ..Self::new(node) }
    }
}

/// The deployment that a server belongs to, as far as it reports this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// A server of its own, with or without replicas.
    Single,
    /// A replica.
    Replica,
    /// A master that sentinels name.
    SentinelMaster,
    /// A node of a cluster.
    ClusterNode,
    /// A server behind a proxy, which answers in its place.
    Proxy,
    /// The server does not say.
    #[default]
    Unknown,
}

impl Topology {
    /// A word for programs: `single`, `sentinel_master`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Replica => "replica",
            Self::SentinelMaster => "sentinel_master",
            Self::ClusterNode => "cluster_node",
            Self::Proxy => "proxy",
            Self::Unknown => "unknown",
        }
    }
}

/// Something that a server may be able to do for its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Feature {
    /// A name for programs: `shared_locks`.
    pub name: &'static str,
    /// Whether it works there.
    pub works: bool,
    /// Why it does not work; empty if it does.
    pub reason: String,
}

impl Feature {
    /// It works if there is no reason why not.
    pub fn new(name: &'static str, checked: Result<(), String>) -> Self {
        let (works, reason) = checked.map_or_else(|reason| (false, reason), |()| (true, String::new()));
        Self { name, works, reason }
    }
}
