//! Clients that ask for a quarantine.

use super::dice::Dice;
use crate::redis::guard::{ALONE, Guard};
use fencelock_conformance::model::{Gate, Marker, Refusal, Server, Visitor};
use fencelock_core::Ttl;
use fencelock_testkit::Reply;
use std::time::Duration;

/// What a client takes the server for. Another epoch is what it would say after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Guest {
    epoch: &'static str,
    /// One of [`SETS`].
    set: usize,
    trust: bool,
}

/// What a guest does beside claiming.
#[derive(Debug, Clone, Copy)]
pub(super) enum Visit {
    Handshake,
    Init { joins: bool },
}

const EPOCHS: [&str; 3] = ["0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98", ""];
/// Nodes, and the longest TTL in ms.
const SETS: [(&str, u64); 5] =
    [(ALONE, 1000), (ALONE, 10_000), (ALONE, 60_000), ("a:1,b:2", 10_000), ("a:1,c:3", 10_000)];

/// Mostly one that knows the server as its marker says.
pub(super) fn guest(dice: &mut Dice, marker: &Marker) -> Guest {
    let mut guest = Guest { epoch: dice.pick(&EPOCHS[..2]), set: 1, trust: dice.percent(35) };
    if let Some(written) = &marker.written {
        guest.epoch = EPOCHS.into_iter().find(|epoch| **epoch == *written.epoch).unwrap_or(EPOCHS[2]);
        let same = |set: &usize| *Guest { set: *set, ..guest }.guard("").quorum == *written.quorum;
        guest.set = (0..SETS.len()).find(same).unwrap();
    }
    match dice.below(40) {
        0..=4 => guest.epoch = dice.pick(&EPOCHS),
        5..=8 => guest.set = usize::try_from(dice.below(SETS.len() as u64)).unwrap(),
        9..=11 => {
            guest.epoch = dice.pick(&EPOCHS);
            guest.set = usize::try_from(dice.below(SETS.len() as u64)).unwrap();
        }
        _ => {}
    }
    guest
}

impl Guest {
    /// Each key has a marker of its own, as if it were a prefix.
    pub(super) fn guard(&self, name: &str) -> Guard {
        let (nodes, max_ttl) = SETS[self.set];
        let mut guard = Guard::alone(name, Ttl::new(Duration::from_millis(max_ttl)).unwrap(), self.trust);
        if nodes != ALONE {
            guard.join(nodes);
        }
        guard
    }

    pub(super) fn gate(&self, guard: &Guard, marker: &Marker, server: &Server) -> Gate {
        let pass = guard.pass(self.epoch);
        marker.gate(server, pass.epoch, &guard.quorum)
    }

    pub(super) const fn epoch(&self) -> &'static str {
        self.epoch
    }

    pub(super) const fn trust(&self) -> bool {
        self.trust
    }

    pub(super) fn visitor(&self, guard: &Guard) -> Visitor {
        Visitor {
            epoch: self.epoch.into(),
            span_ms: u64::try_from(guard.quarantine().as_millis()).unwrap(),
            quorum: guard.quorum.as_str().into(),
            nodes: guard.nodes.as_str().into(),
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

/// As `acquire` answers it.
pub(super) fn refused(refusal: &Refusal) -> Vec<Reply> {
    match refusal {
        Refusal::Version(version) => vec![text("version"), text(version)],
        Refusal::Handshake => vec![text("handshake")],
        Refusal::Nodeset { quorum, nodes } => vec![text("nodeset"), text(quorum), text(nodes)],
        Refusal::Quarantined { rest_ms } => vec![text("quarantined"), rest(*rest_ms)],
    }
}

/// What `HGETALL` says of a marker, by name.
pub(super) fn fields(marker: &Marker) -> Vec<Reply> {
    let Some(written) = &marker.written else { return Vec::new() };
    let (until, span) = (written.until_ms.to_string(), written.span_ms.to_string());
    let fields = [
        ("epoch", &*written.epoch),
        ("nodes", &*written.nodes),
        ("quorum", &*written.quorum),
        ("span", &span),
        ("until", &until),
    ];
    let version = written.version.as_ref().map(|version| ("version", &**version));
    fields.into_iter().chain(version).flat_map(|(name, value)| [text(name), text(value)]).collect()
}
