use super::Quorum;

/// What one node says of who has the key. `H` names a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<H> {
    /// This one.
    Held(H),
    /// Nobody.
    Free,
    /// No answer, or one that says nothing.
    Unknown,
}

/// What all nodes together say of who has the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight<H> {
    /// Wait for more answers.
    Pending,
    /// A majority names this one.
    Held(H),
    /// Nobody can have a majority, and a majority of the nodes may be free: a claim may win.
    Free,
    /// Nobody can have a majority, but so many nodes are taken that nobody can get one: attempts that got in each other's
    /// way, or what failed ones left behind. It passes when their leases end.
    Contested,
    /// It cannot be told: those that did not answer make the difference.
    Unknown,
}

/// Looks at one key on all nodes. The answers are of different moments, so this is for people, not for decisions.
#[derive(Debug, Clone)]
pub struct Inspection<H> {
    quorum: Quorum,
    seen: Vec<Option<Seen<H>>>,
}

impl<H: Clone + Eq> Inspection<H> {
    /// Nothing seen yet.
    pub fn new(quorum: Quorum) -> Self {
        Self { quorum, seen: vec![None; quorum.nodes()] }
    }

    /// A node's answer. Only its first one counts, but any answer replaces [`Seen::Unknown`].
    pub fn vote(&mut self, node: usize, seen: Seen<H>) -> Sight<H> {
        if let Some(slot @ (None | Some(Seen::Unknown))) = self.seen.get_mut(node) {
            *slot = Some(seen);
        }
        self.decide()
    }

    fn decide(&self) -> Sight<H> {
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
            return Sight::Held(holder.clone());
        }
        let taken = holders().count();
        let pending = self.seen.iter().filter(|seen| seen.is_none()).count();
        let unknown = self.seen.iter().filter(|seen| **seen == Some(Seen::Unknown)).count();
        let nobody = most + pending + unknown < majority;
        if nobody && taken > self.quorum.spare() {
            Sight::Contested
        } else if nobody && (pending == 0 || taken + pending <= self.quorum.spare()) {
            Sight::Free
        } else if most + pending < majority && most + unknown >= majority {
            Sight::Unknown
        } else {
            Sight::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `A.-` are the answers of nodes 1 to 3: held by A, free, none.
    fn sight(nodes: usize, answers: &str) -> Sight<char> {
        let mut inspection = Inspection::new(Quorum::new(nodes).unwrap());
        let seen = |symbol| match symbol {
            '.' => Seen::Free,
            '-' => Seen::Unknown,
            holder => Seen::Held(holder),
        };
        answers.chars().enumerate().fold(Sight::Pending, |_, (node, symbol)| inspection.vote(node, seen(symbol)))
    }

    #[test]
    fn the_table_reads_as_the_rule() {
        let table = [
            (1, "A", Sight::Held('A')),
            (1, ".", Sight::Free),
            (1, "-", Sight::Unknown),
            (2, "AB", Sight::Contested),
            (2, "A.", Sight::Contested),
            (3, "A", Sight::Pending),
            (3, "AA", Sight::Held('A')),
            (3, "A.A", Sight::Held('A')),
            (3, ".", Sight::Pending),
            (3, "..", Sight::Free),
            (3, "..A", Sight::Free),
            (3, "AB.", Sight::Contested),
            (3, "ABC", Sight::Contested),
            (3, "A.-", Sight::Unknown),
            (3, "..-", Sight::Free),
            (3, "--", Sight::Unknown),
            (5, "AAB-A", Sight::Held('A')),
            (5, "AAB.-", Sight::Unknown),
        ];
        for (nodes, answers, expected) in table {
            assert_eq!(sight(nodes, answers), expected, "n={nodes} {answers}");
        }
    }

    #[test]
    fn a_node_that_answers_twice_counts_once() {
        let mut inspection = Inspection::new(Quorum::new(3).unwrap());
        inspection.vote(0, Seen::Held('A'));
        assert_eq!(inspection.vote(0, Seen::Held('A')), Sight::Pending);
    }
}
