use super::Quorum;

/// The holder that one node reports. `H` is the type of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<H> {
    /// This holder.
    Held(H),
    /// The key is free.
    Free,
    /// No answer, or one that says nothing.
    Unknown,
}

/// The holder that all nodes together report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InspectionResult<H> {
    /// Wait for more answers.
    Pending,
    /// A majority reports this holder.
    Held(H),
    /// No holder can have a majority, and a majority of the nodes may be free: a claim may win.
    Free,
    /// No holder can have a majority, and too many nodes are taken for a claim to get one: by conflicting attempts, or by
    /// failed ones. This ends with their leases.
    Contested,
    /// Unknown: it depends on the nodes that did not answer.
    Unknown,
}

/// Inspects one key on all nodes. The answers are from different moments, so they are for display, not for decisions.
#[derive(Debug, Clone)]
pub struct Inspection<H> {
    quorum: Quorum,
    seen: Vec<Option<Seen<H>>>,
}

impl<H: Clone + Eq> Inspection<H> {
    /// No answer yet.
    pub fn new(quorum: Quorum) -> Self {
        Self { quorum, seen: vec![None; quorum.nodes()] }
    }

    /// A node's answer. Only its first one counts, but any answer replaces [`Seen::Unknown`].
    pub fn vote(&mut self, node: usize, seen: Seen<H>) -> InspectionResult<H> {
        if let Some(slot @ (None | Some(Seen::Unknown))) = self.seen.get_mut(node) {
            *slot = Some(seen);
        }
        self.decide()
    }

    fn decide(&self) -> InspectionResult<H> {
        let majority = self.quorum.majority();
        let holders = || {
            self.seen.iter().filter_map(|seen| match seen {
                Some(Seen::Held(holder)) => Some(holder),
                _ => None,
            })
        };
        let nodes_of = |holder: &H| holders().filter(|other| *other == holder).count();
        let most = holders().map(nodes_of).max().unwrap_or(0);
        if let Some(holder) = holders().find(|holder| nodes_of(holder) >= majority) {
            return InspectionResult::Held(holder.clone());
        }
        let taken = holders().count();
        let pending = self.seen.iter().filter(|seen| seen.is_none()).count();
        let unknown = self.seen.iter().filter(|seen| **seen == Some(Seen::Unknown)).count();
        let no_majority = most + pending + unknown < majority;
        if no_majority && taken > self.quorum.spare() {
            InspectionResult::Contested
        } else if no_majority && (pending == 0 || taken + pending <= self.quorum.spare()) {
            InspectionResult::Free
        } else if most + pending < majority && most + unknown >= majority {
            InspectionResult::Unknown
        } else {
            InspectionResult::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `A.-` are the answers of nodes 1 to 3: held by A, free, none.
    fn sight(nodes: usize, answers: &str) -> InspectionResult<char> {
        let mut inspection = Inspection::new(Quorum::new(nodes).unwrap());
        let seen = |symbol| match symbol {
            '.' => Seen::Free,
            '-' => Seen::Unknown,
            holder => Seen::Held(holder),
        };
        answers
            .chars()
            .enumerate()
            .fold(InspectionResult::Pending, |_, (node, symbol)| inspection.vote(node, seen(symbol)))
    }

    #[test]
    fn the_table_reads_as_the_rule() {
        let table = [
            (1, "A", InspectionResult::Held('A')),
            (1, ".", InspectionResult::Free),
            (1, "-", InspectionResult::Unknown),
            (2, "AB", InspectionResult::Contested),
            (2, "A.", InspectionResult::Contested),
            (3, "A", InspectionResult::Pending),
            (3, "AA", InspectionResult::Held('A')),
            (3, "A.A", InspectionResult::Held('A')),
            (3, ".", InspectionResult::Pending),
            (3, "..", InspectionResult::Free),
            (3, "..A", InspectionResult::Free),
            (3, "AB.", InspectionResult::Contested),
            (3, "ABC", InspectionResult::Contested),
            (3, "A.-", InspectionResult::Unknown),
            (3, "..-", InspectionResult::Free),
            (3, "--", InspectionResult::Unknown),
            (5, "AAB-A", InspectionResult::Held('A')),
            (5, "AAB.-", InspectionResult::Unknown),
        ];
        for (nodes, answers, expected) in table {
            assert_eq!(sight(nodes, answers), expected, "n={nodes} {answers}");
        }
    }

    #[test]
    fn a_node_that_answers_twice_counts_once() {
        let mut inspection = Inspection::new(Quorum::new(3).unwrap());
        inspection.vote(0, Seen::Held('A'));
        assert_eq!(inspection.vote(0, Seen::Held('A')), InspectionResult::Pending);
    }
}
