//! The quarantine of a server that may have lost locks.
//!
//! A *marker* on the server names the run of the server that has all its locks, and the set of nodes that it belongs to. A claim
//! contains the run id that the client expects. The script compares it with the marker, so the next claim of any client detects a
//! restart, a flush or a failover. The script then writes a new marker with the end of the quarantine: the time at which every
//! lease that the server may have lost has expired.

use super::reply::Reply;
use super::wire::WIRE;
use fencelock_core::{Drift, Fault, NodeFault, Span, Ttl, Unknown, quarantine};
use hmac_sha256::Hash;
use redis::Value;
use std::time::Duration;

/// Twice the default TTL.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(60);

/// Several times the interval at which the sentinels are queried, so that a slow reply has no effect. An outage of most sentinels
/// stops the locks after this time.
pub(crate) const MASTER_WINDOW: Duration = Duration::from_secs(5);

/// The set of nodes of a standalone Redis server.
pub(crate) const ALONE: &str = "single";

/// The quarantine that a client requires of a server.
#[derive(Debug, Clone)]
pub(crate) struct Quarantine {
    /// The name of the marker. Each prefix has separate locks and a separate marker.
    pub(crate) marker: String,
    pub(crate) max_ttl: Ttl,
    /// How long a replaced master may continue to grant: see [`fencelock_core::MasterLease`]. Zero without sentinels.
    pub(crate) window: Duration,
    /// Whether an unknown server is trusted to have lost no data.
    pub(crate) trust: bool,
    pub(crate) nodes: String,
    /// `<longest TTL, ms> <hash of the nodes>`: clients that differ in it must not share a lock.
    pub(crate) quorum: String,
}

/// The run id and the marker that the server checks before it grants or hands over a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EpochCheck<'a> {
    /// The run id of the server when the connection was opened.
    pub(crate) epoch: &'a str,
    /// Whether the server lets a script use keys that its call does not name.
    pub(crate) derives_keys: bool,
    /// Whether the server is a node of a cluster, which must reject the script while the slot of the lock is moved.
    pub(crate) guards_slot: bool,
    /// The marker that the server must have, if any.
    pub(crate) mark: Option<&'a Quarantine>,
}

impl<'a> EpochCheck<'a> {
    /// For a server without a quarantine.
    pub(crate) fn without_marker(run_id: &'a str) -> Self {
        let epoch = if run_id.is_empty() { UNKNOWN_RUN_ID } else { run_id };
        Self { epoch, derives_keys: false, guards_slot: false, mark: None }
    }
}

/// Represents an unknown run id. No marker contains it, so the server grants nothing, and no message is taken as a grant.
pub(crate) const UNKNOWN_RUN_ID: &str = "-";

impl Quarantine {
    /// For a standalone server.
    pub(crate) fn alone(prefix: &str, max_ttl: Ttl, trust: bool) -> Self {
        let marker = if prefix.is_empty() { "fencelock:node".to_owned() } else { format!("fencelock:node:{prefix}") };
        let quorum = format!("{} {ALONE}", max_ttl.as_millis());
        Self { marker, max_ttl, window: Duration::ZERO, trust, nodes: ALONE.to_owned(), quorum }
    }

    /// For one of several servers.
    pub(crate) fn join(&mut self, nodes: &str) {
        self.quorum = format!("{} {}", self.max_ttl.as_millis(), sha256(nodes, 16));
        nodes.clone_into(&mut self.nodes);
    }

    /// For a master with sentinels.
    pub(crate) fn monitor(&mut self, deployment: &str) {
        self.window = MASTER_WINDOW;
        self.join(deployment);
    }

    /// How long a server that may have lost data is excluded.
    pub(crate) fn span(&self) -> Duration {
        quarantine(self.max_ttl.get() + self.window, Drift::default())
    }

    /// The error for a marker of a later version, whose meaning is unknown.
    fn later(&self, node: &str, version: &str) -> Unknown {
        let detail = format!(
            "its marker {:?} has wire version {:?}, and this program reads version {WIRE}: use a later fencelock; or, if none is \
             in use any more, delete the marker and run `fencelock init`",
            self.marker,
            shown(version)
        );
        Unknown::new(node, Fault::Unsupported, detail)
    }

    /// The difference between the set of a server and that of this client.
    fn difference(&self, quorum: &str, nodes: &str) -> String {
        let max =
            |quorum: &str| quorum.split_once(' ').and_then(|(max, _)| max.parse().ok()).map(Duration::from_millis);
        let theirs = max(quorum);
        if quorum.is_empty() {
            return "its marker does not name a set of nodes".to_owned();
        }
        let mut differences = Vec::new();
        if theirs != Some(self.max_ttl.get()) {
            let theirs = theirs.unwrap_or_default();
            differences.push(format!(
                "its max_ttl= is {}, and that of this URL is {}",
                Span(theirs),
                Span(self.max_ttl.get())
            ));
        }
        if nodes != self.nodes {
            differences.push(format!("it belongs to {}, and this URL names {}", shown(nodes), shown(&self.nodes)));
        }
        if differences.is_empty() {
            differences.push(format!("its marker says {:?} and not {:?}", shown(quorum), self.quorum));
        }
        differences.join("; ")
    }
}

/// Limits the length: any client may write the marker, and a set of nodes has a few hundred characters at most.
pub(crate) fn shown(nodes: &str) -> String {
    const SHOWN: usize = 300;
    match nodes.char_indices().nth(SHOWN) {
        _ if nodes == ALONE => "a standalone Redis server".to_owned(),
        Some((end, _)) => format!("{}...", &nodes[..end]),
        None => nodes.to_owned(),
    }
}

/// The first digits of the SHA-256 of a text.
pub(crate) fn sha256(text: &str, digits: usize) -> String {
    let halves = Hash::hash(text.as_bytes()).into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.filter_map(|half| char::from_digit(half.into(), 16)).take(digits).collect()
}

/// The state of a server according to its marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MarkerState {
    /// The server may grant.
    Serving,
    /// The server must not grant for this time.
    Quarantined(Duration),
    /// The server belongs to this set, and may have lost data since; a claim starts its quarantine.
    Restarted,
    /// The server has no marker: it is new, or was flushed or restarted empty.
    Unmarked,
}

impl MarkerState {
    /// The reply of `handshake.lua`. A server of another set is an error.
    pub(crate) fn read(node: &str, quarantine: &Quarantine, answer: Value) -> Result<Self, Unknown> {
        needs_handshake(node, Some(quarantine), &answer)?;
        let mut reply = Reply::new(node, answer)?;
        let rest = reply.millis()?;
        let (quorum, nodes) = (reply.text()?, reply.text()?);
        if quorum != quarantine.quorum {
            return Err(Unknown::new(node, Fault::Misconfigured, quarantine.difference(&quorum, &nodes)));
        }
        Ok(if rest.is_zero() { Self::Serving } else { Self::Quarantined(rest) })
    }

    /// The state of a marker with these [`FIELDS`] that was read without a handshake. A server of another set is an error.
    pub(crate) fn seen(
        node: &str,
        quarantine: &Quarantine,
        run_id: &str,
        [epoch, until, quorum, nodes, version]: &[Option<String>; 5],
        now_ms: u64,
    ) -> Result<Self, Unknown> {
        if let Some(version) = version.as_ref().filter(|version| *version != WIRE) {
            return Err(quarantine.later(node, version));
        }
        let Some(quorum) = quorum else { return Ok(Self::Unmarked) };
        if *quorum != quarantine.quorum {
            let difference = quarantine.difference(quorum, nodes.as_deref().unwrap_or_default());
            return Err(Unknown::new(node, Fault::Misconfigured, difference));
        }
        let until: Option<u64> = until.as_ref().and_then(|until| until.parse().ok());
        Ok(match until.filter(|_| epoch.as_deref() == Some(run_id)) {
            None => Self::Restarted,
            Some(until) if until > now_ms => Self::Quarantined(Duration::from_millis(until - now_ms)),
            Some(_) => Self::Serving,
        })
    }
}

/// The known fields of a marker.
pub(crate) const FIELDS: [&str; 5] = ["epoch", "until", "quorum", "nodes", "version"];

/// Whether the answer to a claim or an inspection asks for a handshake first (those about a marker do not): the marker belongs to another run, or there is none.
///
/// # Errors
/// The server has refused, for a while or for ever.
pub(crate) fn needs_handshake(node: &str, quarantine: Option<&Quarantine>, answer: &Value) -> Result<bool, Unknown> {
    let (Some(quarantine), Value::Array(words)) = (quarantine, answer) else { return Ok(false) };
    // A lock may have any value, and its reply has more words.
    if words.len() > 3 {
        return Ok(false);
    }
    let mut reply = Reply::new(node, answer.clone())?;
    Err(match reply.text().as_deref() {
        Ok("handshake") => return Ok(true),
        Ok("quarantined") => quarantined(node, reply.millis()?),
        Ok("version") => quarantine.later(node, &reply.text()?),
        Ok("nodeset") => {
            Unknown::new(node, Fault::Misconfigured, quarantine.difference(&reply.text()?, &reply.text()?))
        }
        _ => return Ok(false),
    })
}

pub(crate) fn quarantined(node: &str, rest: Duration) -> Unknown {
    let fault = NodeFault::new(node, Fault::Quarantined, FORGOTTEN);
    Unknown::of_nodes(vec![fault.with_passes_in(rest)])
}

/// Of a server whose quarantine has not started.
pub(crate) const NOT_BEGUN: &str = "it may have lost its locks: restarted, promoted, flushed or new; its quarantine starts with `fencelock init` or the next claim";

const FORGOTTEN: &str = "it may have lost its locks: restarted, promoted, flushed or new";

#[cfg(test)]
mod tests {
    use super::*;

    fn quarantine(nodes: &str, max_ttl: Duration) -> Quarantine {
        let mut quarantine = Quarantine::alone("", Ttl::new(max_ttl).unwrap(), false);
        quarantine.join(nodes);
        quarantine
    }

    #[test]
    fn a_list_of_nodes_is_known_by_16_digits_of_its_hash() {
        // The first test vector of SHA-256 in FIPS 180-2.
        assert_eq!(sha256("abc", 16), "ba7816bf8f01cfea");
    }

    #[test]
    fn a_different_list_or_longest_ttl_is_a_different_quorum() {
        let one = quarantine("a:1,b:2", LONGEST_TTL).quorum;
        assert_eq!(one, quarantine("a:1,b:2", LONGEST_TTL).quorum);
        assert_ne!(one, quarantine("a:1,c:3", LONGEST_TTL).quorum);
        assert_ne!(one, quarantine("a:1,b:2", Duration::from_secs(10)).quorum);
        assert_ne!(one, Quarantine::alone("", Ttl::new(LONGEST_TTL).unwrap(), false).quorum);
    }

    #[test]
    fn each_prefix_has_a_marker_with_a_name_that_is_no_side_key() {
        let marker = |prefix| Quarantine::alone(prefix, Ttl::default(), false).marker;
        assert_eq!((marker("").as_str(), marker("app:").as_str()), ("fencelock:node", "fencelock:node:app:"));
        for (prefix, what) in [("{", "fence"), ("{a}:fence", "fence"), ("key:a", "fence")] {
            assert_eq!(crate::scripts::side_key::key_of_side_key(&marker(prefix), what), None);
        }
    }

    #[test]
    fn the_difference_is_reported() {
        let ours = quarantine("a:1,b:2", LONGEST_TTL);
        let nodes = ours.difference(&quarantine("a:1,c:3", LONGEST_TTL).quorum, "a:1,c:3");
        assert_eq!(nodes, "it belongs to a:1,c:3, and this URL names a:1,b:2");
        let max = ours.difference(&quarantine("a:1,b:2", Duration::from_secs(10)).quorum, "a:1,b:2");
        assert_eq!(max, "its max_ttl= is 10 s, and that of this URL is 1 min");
    }

    #[test]
    fn a_long_marker_is_truncated_in_messages() {
        let ours = quarantine("a:1,b:2", LONGEST_TTL);
        let difference = ours.difference(&quarantine("x", LONGEST_TTL).quorum, &"锁".repeat(1_000_000));
        assert!(difference.contains("锁...") && difference.len() < 2000, "{}", difference.len());
    }

    #[test]
    fn an_unknown_run_id_fails_every_check() {
        assert_eq!(EpochCheck::without_marker("").epoch, "-");
    }
}
