use super::Quorum;

/// What one node reports about a key. `H` is the type of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<H> {
    /// It is held.
    Held {
        /// The holders, without duplicates; several only for a shared lock.
        holders: Vec<H>,
        /// The number of holders that the node counts and does not list.
        unnamed: u32,
    },
    /// The key is free.
    Free,
    /// No reply, or an inconclusive one.
    Unknown,
}

/// The combined result of all nodes. The replies are from different moments, so it is for display, not for decisions.
///
/// A node lists only some of very many readers. If it counts more readers than it lists, it counts for each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InspectionResult<H> {
    /// Wait for more answers.
    Pending,
    /// A majority reports each of these holders.
    Held {
        /// The holders.
        holders: Vec<H>,
        /// The number of holders that a majority counts beyond those listed.
        unnamed: u32,
    },
    /// No holder can have a majority, and a majority of the nodes may be free: a claim may win.
    Free,
    /// No holder can have a majority, but conflicting or failed attempts hold so many nodes that no claim can win. This
    /// ends with their leases.
    Contested,
    /// Unknown: it depends on the nodes that did not answer.
    Unknown,
}

impl<H: Clone + Eq> InspectionResult<H> {
    /// The result of these replies, one for each node that has replied.
    pub fn of(quorum: Quorum, seen: &[Seen<H>]) -> Self {
        let (majority, pending) = (quorum.majority(), quorum.nodes() - seen.len());
        let unknown = seen.iter().filter(|seen| **seen == Seen::Unknown).count();
        let reported = reported(seen);
        // For a shared lock, the nodes that have not answered may decide whether another reader has a majority.
        let is_open = |nodes: usize| nodes < majority && nodes + pending >= majority;
        if is_open(0) || reported.iter().any(|(_, nodes)| is_open(*nodes)) {
            return Self::Pending;
        }
        let most = reported.iter().map(|(_, nodes)| *nodes).max().unwrap_or(0);
        if most >= majority {
            let held = reported.into_iter().filter(|(_, nodes)| *nodes >= majority);
            return Self::held(quorum, seen, held.map(|(holder, _)| holder.clone()).collect());
        }
        let taken = lists(seen).count();
        let no_majority = most + pending + unknown < majority;
        if no_majority && taken > quorum.spare() {
            Self::Contested
        } else if no_majority && (pending == 0 || taken + pending <= quorum.spare()) {
            Self::Free
        } else if most + unknown >= majority {
            Self::Unknown
        } else {
            Self::Pending
        }
    }

    fn held(quorum: Quorum, seen: &[Seen<H>], holders: Vec<H>) -> Self {
        let length = |holders: &[H]| u32::try_from(holders.len()).unwrap_or(u32::MAX);
        let counts = lists(seen).map(|(holders, unnamed)| length(holders).saturating_add(unnamed));
        let count = quorum.reached(counts).unwrap_or(0);
        Self::Held { unnamed: count.saturating_sub(length(&holders)), holders }
    }
}

/// Each holder that a node lists, and the number of nodes that report it.
fn reported<H: Eq>(seen: &[Seen<H>]) -> Vec<(&H, usize)> {
    let mut reported: Vec<(&H, usize)> = Vec::new();
    for holder in lists(seen).flat_map(|(holders, _)| holders) {
        if reported.iter().all(|(other, _)| *other != holder) {
            let nodes = lists(seen).filter(|(holders, unnamed)| *unnamed > 0 || holders.contains(holder));
            reported.push((holder, nodes.count()));
        }
    }
    reported
}

/// The replies of the nodes on which the key is held.
fn lists<H>(seen: &[Seen<H>]) -> impl Iterator<Item = (&[H], u32)> {
    seen.iter().filter_map(|seen| match seen {
        Seen::Held { holders, unnamed } => Some((holders.as_slice(), *unnamed)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspection(nodes: usize, seen: impl Iterator<Item = Seen<char>>) -> InspectionResult<char> {
        InspectionResult::of(Quorum::new(nodes).unwrap(), &seen.collect::<Vec<_>>())
    }

    /// `A.-` are the answers of nodes 1 to 3: held by A, free, none.
    fn sight(nodes: usize, answers: &str) -> InspectionResult<char> {
        let seen = |symbol| match symbol {
            '.' => Seen::Free,
            '-' => Seen::Unknown,
            holder => Seen::Held { holders: vec![holder], unnamed: 0 },
        };
        inspection(nodes, answers.chars().map(seen))
    }

    /// `AB B -` are the answers of nodes 1 to 3: held by A and B, by B, none. `A+9` lists A and counts nine others.
    fn readers(nodes: usize, answers: &str) -> InspectionResult<char> {
        let seen = |word: &str| match (word, word.split_once('+')) {
            (".", _) => Seen::Free,
            ("-", _) => Seen::Unknown,
            (_, Some((listed, unnamed))) => {
                Seen::Held { holders: listed.chars().collect(), unnamed: unnamed.parse().unwrap() }
            }
            (listed, None) => Seen::Held { holders: listed.chars().collect(), unnamed: 0 },
        };
        inspection(nodes, answers.split_whitespace().map(seen))
    }

    fn held(holders: &str, unnamed: u32) -> InspectionResult<char> {
        InspectionResult::Held { holders: holders.chars().collect(), unnamed }
    }

    #[test]
    fn the_table_reads_as_the_rule() {
        let table = [
            (1, "A", held("A", 0)),
            (1, ".", InspectionResult::Free),
            (1, "-", InspectionResult::Unknown),
            (2, ".", InspectionResult::Pending),
            (2, "AB", InspectionResult::Contested),
            (2, "A.", InspectionResult::Contested),
            (3, "A", InspectionResult::Pending),
            (3, "AA", held("A", 0)),
            (3, "A.A", held("A", 0)),
            (3, ".", InspectionResult::Pending),
            (3, "..", InspectionResult::Free),
            (3, "..A", InspectionResult::Free),
            (3, "AB.", InspectionResult::Contested),
            (3, "ABC", InspectionResult::Contested),
            (3, "A.-", InspectionResult::Unknown),
            (3, "..-", InspectionResult::Free),
            (3, "--", InspectionResult::Unknown),
            (5, "AAB-A", held("A", 0)),
            (5, "AAB.-", InspectionResult::Unknown),
            (5, "AB..", InspectionResult::Pending),
            (5, "--..", InspectionResult::Pending),
        ];
        for (nodes, answers, expected) in table {
            assert_eq!(sight(nodes, answers), expected, "n={nodes} {answers}");
        }
    }

    #[test]
    fn a_reader_counts_if_a_majority_lists_it() {
        let table = [
            (1, "AB", held("AB", 0)),
            (3, "AB AB", held("AB", 0)),
            (3, "AB BA .", held("AB", 0)),
            (3, "AB A", InspectionResult::Pending),
            (3, "AB A .", held("A", 0)),
            (3, "AB A B", held("AB", 0)),
            (3, "AB A -", held("A", 0)),
            (3, "A B C", InspectionResult::Contested),
            (3, "A B -", InspectionResult::Unknown),
            (3, "A . .", InspectionResult::Free),
            (3, "AB CD AC", held("AC", 0)),
            (5, "AB AB A . .", held("A", 0)),
        ];
        for (nodes, answers, expected) in table {
            assert_eq!(readers(nodes, answers), expected, "n={nodes} {answers}");
        }
    }

    #[test]
    fn readers_that_a_node_only_counts_may_be_any() {
        let table = [
            (3, "AB+8 CD+8", held("ABCD", 6)),
            (3, "AB+8 AB+9 AB+7", held("AB", 8)),
            (3, "AB+8 . .", InspectionResult::Free),
            (3, "AB+8 A A", held("A", 0)),
        ];
        for (nodes, answers, expected) in table {
            assert_eq!(readers(nodes, answers), expected, "n={nodes} {answers}");
        }
    }
}
