//! Clients that require a quarantine.

use crate::scripts::quarantine::{ALONE, Quarantine};
use fencelock_core::Ttl;
use fencelock_model::{Expectation, Gate, Marker, Refusal, Server};
use fencelock_testkit::Reply;
use fencelock_testkit::SplitMix as Rng;
use std::time::Duration;

/// The run and the set that a client expects of the server. Another epoch is that of a restarted server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuarantinedClient {
    epoch: &'static str,
    /// One of [`SETS`].
    set: usize,
    trust: bool,
}

/// The requests of such a client other than claims.
#[derive(Debug, Clone, Copy)]
pub(super) enum Visit {
    Handshake,
    Init { joins: bool },
}

const EPOCHS: [&str; 3] = ["0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98", ""];
/// Nodes, and the longest TTL in ms.
const SETS: [(&str, u64); 5] =
    [(ALONE, 1000), (ALONE, 10_000), (ALONE, 60_000), ("a:1,b:2", 10_000), ("a:1,c:3", 10_000)];

/// Mostly a client that expects the values in the marker.
pub(super) fn quarantined_client(rng: &mut Rng, marker: &Marker) -> QuarantinedClient {
    let mut quarantined_client = QuarantinedClient { epoch: rng.pick(&EPOCHS[..2]), set: 1, trust: rng.percent(35) };
    if let Some(written) = &marker.written {
        quarantined_client.epoch = EPOCHS.into_iter().find(|epoch| **epoch == *written.epoch).unwrap_or(EPOCHS[2]);
        let same = |set: &usize| {
            *QuarantinedClient { set: *set, ..quarantined_client }.quarantine("").quorum == *written.quorum
        };
        quarantined_client.set = (0..SETS.len()).find(same).unwrap();
    }
    match rng.below(40) {
        0..=4 => quarantined_client.epoch = rng.pick(&EPOCHS),
        5..=8 => quarantined_client.set = usize::try_from(rng.below(SETS.len() as u64)).unwrap(),
        9..=11 => {
            quarantined_client.epoch = rng.pick(&EPOCHS);
            quarantined_client.set = usize::try_from(rng.below(SETS.len() as u64)).unwrap();
        }
        _ => {}
    }
    quarantined_client
}

impl QuarantinedClient {
    /// Each key has a separate marker, as if it were a prefix.
    pub(super) fn quarantine(&self, name: &str) -> Quarantine {
        let (nodes, max_ttl) = SETS[self.set];
        let mut quarantine = Quarantine::alone(name, Ttl::new(Duration::from_millis(max_ttl)).unwrap(), self.trust);
        if nodes != ALONE {
            quarantine.join(nodes);
        }
        quarantine
    }

    pub(super) fn gate(&self, quarantine: &Quarantine, marker: &Marker, server: &Server) -> Gate {
        let epoch_check = quarantine.epoch_check(self.epoch);
        marker.gate(server, epoch_check.epoch, &quarantine.quorum)
    }

    pub(super) const fn epoch(&self) -> &'static str {
        self.epoch
    }

    pub(super) const fn trust(&self) -> bool {
        self.trust
    }

    pub(super) fn visitor(&self, quarantine: &Quarantine) -> Expectation {
        Expectation {
            epoch: self.epoch.into(),
            span_ms: u64::try_from(quarantine.span().as_millis()).unwrap(),
            quorum: quarantine.quorum.as_str().into(),
            nodes: quarantine.nodes.as_str().into(),
            trust: self.trust,
        }
    }
}

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

pub(super) fn rest(ms: u64) -> Reply {
    Reply::Int(i64::try_from(ms).unwrap())
}

/// As `acquire` returns it.
pub(super) fn refused(refusal: &Refusal) -> Vec<Reply> {
    match refusal {
        Refusal::Version(version) => vec![text("version"), text(version)],
        Refusal::Handshake => vec![text("handshake")],
        Refusal::Nodeset { quorum, nodes } => vec![text("nodeset"), text(quorum), text(nodes)],
        Refusal::Quarantined { rest_ms } => vec![text("quarantined"), rest(*rest_ms)],
    }
}

/// The fields of a marker as `HGETALL` returns them, by name.
pub(super) fn fields(marker: &Marker) -> Vec<Reply> {
    let Some(written) = &marker.written else { return Vec::new() };
    let (until, span) = (written.until_ms.to_string(), written.span_ms.to_string());
    let fields = [
        ("epoch", &*written.epoch),
        ("nodes", &*written.nodes),
        ("quorum", &*written.quorum),
        ("span", &span),
        ("until", &until),
        ("version", &*written.version),
    ];
    fields.into_iter().flat_map(|(name, value)| [text(name), text(value)]).collect()
}
