use super::{NodeVote, Outcome, Quorum, Settings, Tally};
use crate::{Downgrade, Fault, Foreign, Holders, NodeFault, Occupant, Release, Renew, Unknown};

/// The replies of all nodes about one hold: their [`Tally`], and its meaning for the caller.
#[derive(Debug, Clone, Hash)]
pub(super) struct Count {
    tally: Tally,
    pub(super) outcome: Outcome,
    causes: Vec<Option<Unknown>>,
    taken_by: Option<Holders>,
}

impl Count {
    pub(super) fn new(size: Quorum) -> Self {
        Self { tally: Tally::new(size), outcome: Outcome::Pending, causes: vec![None; size.nodes()], taken_by: None }
    }

    pub(super) fn on_renewal(&mut self, node: usize, answer: Result<Renew, Unknown>) {
        let node_vote = answer.as_ref().map(NodeVote::from).map_err(Clone::clone);
        if let Ok(Renew::TakenBy(by)) = answer {
            self.taken_by.get_or_insert(by);
        }
        self.on_node_vote(node, node_vote);
    }

    pub(super) fn on_downgrade(&mut self, node: usize, answer: Result<Downgrade, Unknown>) {
        let node_vote = answer.as_ref().map(NodeVote::from).map_err(Clone::clone);
        if let Ok(Downgrade::TakenBy(by)) = answer {
            self.taken_by.get_or_insert(by);
        }
        self.on_node_vote(node, node_vote);
    }

    pub(super) fn on_release(&mut self, node: usize, answer: Result<Release, Unknown>) {
        let node_vote = answer.as_ref().map(NodeVote::from).map_err(Clone::clone);
        if let Ok(Release::TakenBy(by)) = answer {
            self.taken_by.get_or_insert(by);
        }
        self.on_node_vote(node, node_vote);
    }

    fn on_node_vote(&mut self, node: usize, node_vote: Result<NodeVote, Unknown>) {
        let vote = *node_vote.as_ref().unwrap_or(&NodeVote::Unknown);
        if let Some(cause) = self.causes.get_mut(node) {
            *cause = node_vote.err();
        }
        self.outcome = self.tally.vote(node, vote);
    }

    pub(super) fn renewed(&self) -> Result<Renew, Unknown> {
        match self.outcome {
            Outcome::Ours => Ok(Renew::Renewed { waiters: 0 }),
            Outcome::Absent => Ok(Renew::Absent),
            Outcome::Taken => Ok(Renew::TakenBy(self.taken_by())),
            Outcome::Unknown | Outcome::Pending => Err(self.unknown()),
        }
    }

    pub(super) fn released(&self) -> Result<Release, Unknown> {
        match self.outcome {
            Outcome::Ours => Ok(Release::Released),
            Outcome::Absent => Ok(Release::Absent),
            Outcome::Taken => Ok(Release::TakenBy(self.taken_by())),
            Outcome::Unknown | Outcome::Pending => Err(self.unknown()),
        }
    }

    /// The result of a downgrade whose round was not won.
    pub(super) fn downgraded(&self, settings: &Settings) -> Result<Downgrade, Unknown> {
        match self.outcome {
            Outcome::Absent => Ok(Downgrade::Absent),
            Outcome::Taken => Ok(Downgrade::TakenBy(self.taken_by())),
            Outcome::Ours | Outcome::Unknown | Outcome::Pending if self.causes.iter().any(Option::is_some) => {
                Err(settings.unknown(self.faults()))
            }
            Outcome::Ours | Outcome::Unknown | Outcome::Pending => {
                let text = "a majority shares the lock, but did not agree on its token";
                Err(Unknown::new(settings.backend.clone(), Fault::Busy, text))
            }
        }
    }

    fn unknown(&self) -> Unknown {
        Unknown::of_nodes(self.faults())
    }

    fn faults(&self) -> Vec<NodeFault> {
        self.causes.iter().flatten().flat_map(|cause| cause.nodes().to_vec()).collect()
    }

    fn taken_by(&self) -> Holders {
        // If a tally is "taken", it has counted a reply that names a holder.
        self.taken_by.clone().unwrap_or_else(|| Occupant::Foreign(Foreign::other("another holder")).into())
    }
}
