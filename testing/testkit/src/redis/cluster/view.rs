//! What a node says about a cluster.

use std::ops::RangeInclusive;

/// The number of slots of every cluster.
pub(super) const SLOTS: u16 = 16_384;

/// A node, as it or another one describes it in a line of `CLUSTER NODES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeLine {
    pub(super) id: String,
    pub(super) is_myself: bool,
    /// The id of the master that it replicates.
    pub(super) master: Option<String>,
    /// The epoch of its slots. Of two nodes that claim a slot, the one with the later epoch has it.
    pub(super) epoch: u64,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl NodeLine {
    /// `ID ADDRESS FLAGS MASTER PING PONG EPOCH LINK SLOT...`; `None` for a node whose handshake is not complete.
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let (id, _, flags, master) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let epoch = fields.nth(2)?.parse().ok()?;
        let has = |flag| flags.split(',').any(|of| of == flag);
        if has("handshake") {
            return None;
        }
        // A slot that moves is also listed in brackets, and is listed without them at the node that has it.
        let slots = fields.skip(1).filter(|slot| !slot.starts_with('[')).map(range).collect::<Option<_>>()?;
        let master = (master != "-").then(|| master.to_owned());
        Some(Self { id: id.to_owned(), is_myself: has("myself"), master, epoch, slots })
    }
}

/// `93` or `0-5460`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// All lines; `None` if a handshake is not complete.
pub(super) fn read(text: &str) -> Option<Vec<NodeLine>> {
    text.lines().map(NodeLine::read).collect()
}

/// The owner of each slot, as its index in `ids`.
pub(super) fn owners(lines: &[NodeLine], ids: &[String]) -> Vec<Option<usize>> {
    let mut owners = vec![None; SLOTS.into()];
    let mut lines: Vec<&NodeLine> = lines.iter().collect();
    lines.sort_by_key(|line| line.epoch);
    for line in lines {
        let owner = ids.iter().position(|id| *id == line.id);
        for slot in line.slots.iter().cloned().flatten() {
            owners[usize::from(slot)] = owner;
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
        a1 127.0.0.1:7000@17000 master - 0 1426238316232 2 connected 0-5 7 [8-<-b2]\n\
        b2 127.0.0.1:7001@17001,host myself,master - 0 0 3 connected 5 8 [7->-a1]\n\
        c3 127.0.0.1:7002@17002 slave a1 0 1426238318243 2 connected\n";

    #[test]
    fn the_later_epoch_owns_a_slot_that_two_nodes_claim() {
        let lines = read(NODES).unwrap();
        let owners = owners(&lines, &["a1".into(), "b2".into(), "c3".into()]);
        assert_eq!(owners[..10], [Some(0), Some(0), Some(0), Some(0), Some(0), Some(1), None, Some(0), Some(1), None]);
        assert!(lines[1].is_myself && !lines[0].is_myself);
        assert_eq!(lines[2].master.as_deref(), Some("a1"));
    }

    #[test]
    fn a_handshake_is_not_a_known_node() {
        let line = "d4 127.0.0.1:7003@17003 handshake - 0 0 0 disconnected\n";
        assert_eq!(read(&format!("{NODES}{line}")), None);
    }
}
