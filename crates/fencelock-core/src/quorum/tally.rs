use super::Quorum;

/// The reply of a node to a renewal, a downgrade or a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeVote {
    /// The holder had the key: the lease was renewed, the hold was downgraded, or it was released.
    Ours,
    /// The key is free.
    Absent,
    /// Another holder has the key.
    Taken,
    /// No reply, or an inconclusive one.
    Unknown,
}

/// The combined result of all nodes for one hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Wait for more replies.
    Pending,
    /// The holder had a majority, so no other claim can have won in between.
    Ours,
    /// Too few nodes have the hold for a majority: it is lost. Most of the other nodes report that the key is free.
    Absent,
    /// The hold is lost, and at least half of the other nodes report another holder.
    Taken,
    /// Undecided, unless the nodes that have not answered still answer.
    Unknown,
}

/// Counts the replies to a renewal or a release. It decides as soon as no further reply could change the result.
///
/// - **Renewal**: [`Outcome::Ours`] counts only if the *old* lease has not expired by then: [`crate::Lease::renewed`].
/// - **Release**: a single node that frees the key does not make it [`Released`](crate::Release::Released), which means that the holder had
///   the key until now; this needs a majority. The other nodes are released in the background.
///
/// A missing reply is neither: it does not end a hold; only the end of its lease does.
#[derive(Debug, Clone, Hash)]
pub struct Tally {
    quorum: Quorum,
    votes: Vec<Option<NodeVote>>,
    outcome: Outcome,
}

impl Tally {
    /// No reply yet.
    pub fn new(quorum: Quorum) -> Self {
        Self { quorum, votes: vec![None; quorum.nodes()], outcome: Outcome::Pending }
    }

    /// Records the reply of a node. Only its first reply counts, but any reply replaces [`NodeVote::Unknown`].
    pub fn vote(&mut self, node: usize, vote: NodeVote) -> Outcome {
        if let (Outcome::Pending | Outcome::Unknown, Some(slot @ (None | Some(NodeVote::Unknown)))) =
            (self.outcome, self.votes.get_mut(node))
        {
            *slot = Some(vote);
            self.outcome = self.decide();
        }
        self.outcome
    }

    /// The result of the replies so far.
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    fn decide(&self) -> Outcome {
        let (majority, spare) = (self.quorum.majority(), self.quorum.spare());
        let count = |vote| self.votes.iter().filter(|found| **found == vote).count();
        let (pending, ours) = (count(None), count(Some(NodeVote::Ours)));
        let (absent, taken) = (count(Some(NodeVote::Absent)), count(Some(NodeVote::Taken)));
        if ours >= majority {
            Outcome::Ours
        } else if absent + taken > spare {
            if taken >= absent { Outcome::Taken } else { Outcome::Absent }
        } else if ours + pending < majority && absent + taken + pending <= spare {
            Outcome::Unknown
        } else {
            Outcome::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node_vote(symbol: char) -> NodeVote {
        match symbol {
            'o' => NodeVote::Ours,
            'a' => NodeVote::Absent,
            't' => NodeVote::Taken,
            '-' => NodeVote::Unknown,
            other => panic!("{other:?} is no answer"),
        }
    }

    /// `n=3 o-o` are the answers of nodes 1 to 3: ours, none, ours.
    fn outcome(nodes: usize, answers: &str) -> Outcome {
        let mut tally = Tally::new(Quorum::new(nodes).unwrap());
        answers.chars().enumerate().fold(Outcome::Pending, |_, (node, symbol)| tally.vote(node, node_vote(symbol)))
    }

    #[test]
    fn the_table_reads_as_the_rule() {
        let table = [
            (1, "o", Outcome::Ours),
            (1, "a", Outcome::Absent),
            (1, "-", Outcome::Unknown),
            (2, "o", Outcome::Pending),
            (2, "o-", Outcome::Unknown),
            (2, "a", Outcome::Absent),
            (3, "o", Outcome::Pending),
            (3, "oo", Outcome::Ours),
            (3, "oa", Outcome::Pending),
            (3, "oao", Outcome::Ours),
            (3, "oaa", Outcome::Absent),
            (3, "ota", Outcome::Taken),
            (3, "--", Outcome::Unknown),
            (3, "o-a", Outcome::Unknown),
            (4, "oo-", Outcome::Pending),
            (4, "ooa", Outcome::Pending),
            (4, "aa", Outcome::Absent),
            (5, "oo-a", Outcome::Pending),
            (5, "oo-ao", Outcome::Ours),
            (5, "taa", Outcome::Absent),
        ];
        for (nodes, answers, expected) in table {
            assert_eq!(outcome(nodes, answers), expected, "n={nodes} {answers}");
        }
    }

    #[test]
    fn a_node_that_answers_twice_counts_once() {
        let mut tally = Tally::new(Quorum::new(3).unwrap());
        tally.vote(0, NodeVote::Ours);
        assert_eq!(tally.vote(0, NodeVote::Ours), Outcome::Pending);
        assert_eq!(tally.vote(9, NodeVote::Ours), Outcome::Pending, "there is no such node");
    }

    #[test]
    fn late_answers_decide_what_was_unknown() {
        let mut tally = Tally::new(Quorum::new(3).unwrap());
        tally.vote(0, NodeVote::Unknown);
        assert_eq!(tally.vote(1, NodeVote::Unknown), Outcome::Unknown);
        assert_eq!(tally.vote(0, NodeVote::Ours), Outcome::Pending, "the third is still to answer");
        assert_eq!(tally.vote(1, NodeVote::Ours), Outcome::Ours);
    }

    proptest! {
        #[test]
        fn when_all_have_answered_it_is_decided_and_not_wrongly(answers in "[oat-]{1,9}") {
            let quorum = Quorum::new(answers.len()).unwrap();
            let count = |symbols: &str| answers.chars().filter(|c| symbols.contains(*c)).count();
            match outcome(answers.len(), &answers) {
                Outcome::Pending => prop_assert!(false, "{answers}"),
                Outcome::Ours => prop_assert!(count("o") >= quorum.majority()),
                Outcome::Absent | Outcome::Taken => prop_assert!(count("at") > quorum.spare()),
                Outcome::Unknown => prop_assert!(count("o") < quorum.majority() && count("at") <= quorum.spare()),
            }
        }
    }
}
