use super::{NodeVote, Outcome, Quorum, QuorumConfig, Tally, Vote};
use crate::{Downgrade, Fault, Foreign, Holders, NodeFault, Occupant, Release, Renew, Unknown};

/// The replies of the nodes about one hold, to a renewal, a release or a downgrade: their [`Tally`], and its meaning for the caller.
#[derive(Debug, Clone)]
pub struct HoldVotes {
    tally: Tally,
    causes: Vec<Option<Unknown>>,
    taken_by: Option<Holders>,
}

/// The reply of a node that answers; the holders are those of [`NodeVote::Taken`].
pub trait HoldReply {
    /// What it says about the hold.
    fn node_vote(self) -> (NodeVote, Option<Holders>);
}

macro_rules! hold_replies {
    ($($reply:ident::$ours:ident),*) => {$(
        impl HoldReply for $reply {
            fn node_vote(self) -> (NodeVote, Option<Holders>) {
                match self {
                    Self::$ours { .. } => (NodeVote::Ours, None),
                    Self::Absent => (NodeVote::Absent, None),
                    Self::TakenBy(by) => (NodeVote::Taken, Some(by)),
                }
            }
        }
    )*};
}
hold_replies!(Renew::Renewed, Downgrade::Downgraded, Release::Released);

impl HoldVotes {
    /// No reply yet.
    pub fn new(size: Quorum) -> Self {
        Self { tally: Tally::new(size), causes: vec![None; size.nodes()], taken_by: None }
    }

    /// Records the reply of a node, as [`Tally::vote`] does.
    pub fn vote(&mut self, node: usize, answer: Result<impl HoldReply, Unknown>) -> Outcome {
        let (vote, cause) = match answer.map(HoldReply::node_vote) {
            Ok((vote, by)) => {
                self.taken_by = self.taken_by.take().or(by);
                (vote, None)
            }
            Err(cause) => (NodeVote::Unknown, Some(cause)),
        };
        self.causes[node] = cause;
        self.tally.vote(node, vote)
    }

    /// The outcome of the replies so far.
    pub const fn outcome(&self) -> Outcome {
        self.tally.outcome()
    }

    /// The result of a renewal.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn renewed(&self) -> Result<Renew, Unknown> {
        self.result(Renew::Renewed { waiters: 0 }, Renew::Absent, Renew::TakenBy)
    }

    /// The result of a release.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn released(&self) -> Result<Release, Unknown> {
        self.result(Release::Released, Release::Absent, Release::TakenBy)
    }

    /// The result of a downgrade whose round was not won.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn not_downgraded(&self, settings: &QuorumConfig) -> Result<Downgrade, Unknown> {
        let faults = self.faults();
        let unknown = if faults.is_empty() {
            let text = "a majority shares the lock, but did not agree on its token";
            Unknown::new(settings.backend.clone(), Fault::Busy, text)
        } else {
            settings.unknown(faults)
        };
        self.lost(Downgrade::Absent, Downgrade::TakenBy).ok_or(unknown)
    }

    fn result<T>(&self, ours: T, absent: T, taken_by: impl FnOnce(Holders) -> T) -> Result<T, Unknown> {
        let ours = (self.outcome() == Outcome::Ours).then_some(ours);
        ours.or_else(|| self.lost(absent, taken_by)).ok_or_else(|| Unknown::of_nodes(self.faults()))
    }

    fn lost<T>(&self, absent: T, taken_by: impl FnOnce(Holders) -> T) -> Option<T> {
        match self.outcome() {
            Outcome::Absent => Some(absent),
            // If a tally is "taken", it has counted a reply that names a holder.
            Outcome::Taken => Some(taken_by(
                self.taken_by.clone().unwrap_or_else(|| Occupant::Foreign(Foreign::other("another holder")).into()),
            )),
            Outcome::Ours | Outcome::Unknown | Outcome::Pending => None,
        }
    }

    fn faults(&self) -> Vec<NodeFault> {
        self.causes.iter().flatten().flat_map(|cause| cause.nodes().to_vec()).collect()
    }
}

impl Vote {
    /// What the reply to a downgrade means for its round.
    pub fn of_downgrade(answer: &Result<Downgrade, Unknown>) -> Self {
        match answer {
            Ok(Downgrade::Downgraded { token }) => Self::Granted((*token).into()),
            Ok(Downgrade::Absent | Downgrade::TakenBy(_)) => Self::Busy { last_fence: 0 },
            Err(cause) if cause.is_refusal() => Self::Refused,
            Err(_) => Self::Unknown,
        }
    }
}
