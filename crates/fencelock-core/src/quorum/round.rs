use super::{NodeSet, Quorum, Raise, Vote};
use crate::{Drift, FencingToken, Lease, Moment, TokenBlock};
use std::time::Duration;

/// An attempt of a new holder id to get a majority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Round {
    quorum: Quorum,
    sent: Moment,
    votes: Vec<Option<Vote>>,
    grace_over: bool,
    raise: Option<Raising>,
    /// Won, lost, or pending.
    verdict: Verdict,
}

/// What the nodes answer to a raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Raising {
    to: FencingToken,
    unanswered: NodeSet,
    acked: NodeSet,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Wait for more replies; [`Round::is_split`] says how long.
    Pending,
    /// The key is held with these tokens, unless the lease has expired meanwhile: [`Round::lease`].
    Won(TokenBlock),
    /// Send raises to these nodes. Returned once; pass each reply to [`Round::raised`].
    Raise {
        /// The fence to raise to.
        to: FencingToken,
        /// Every node that this holder may have locked, unless it granted exactly this fence.
        nodes: NodeSet,
    },
    /// No majority is possible. Release on every node, even on those that did not answer.
    Lost(Defeat),
}

/// Why a round was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Defeat {
    /// Contention: the key is held, or several attempts ran at once and none got a majority.
    Busy,
    /// Fewer than a majority of the nodes answered, so the holder of the key does not matter.
    Unreachable,
    /// A majority granted, but did not ack the raise: leases expired meanwhile, or nodes became unreachable.
    Overtaken,
}

impl Round {
    /// Creates a round whose first request is sent just after `sent`.
    pub fn new(quorum: Quorum, sent: Moment) -> Self {
        let (votes, verdict) = (vec![None; quorum.nodes()], Verdict::Pending);
        Self { quorum, sent, votes, grace_over: false, raise: None, verdict }
    }

    /// Records the reply of a node to the claim. Only its first reply counts, but any reply replaces [`Vote::Unknown`].
    pub fn vote(&mut self, node: usize, vote: Vote) -> Verdict {
        let Some(slot @ (None | Some(Vote::Unknown))) = self.votes.get_mut(node) else { return self.verdict };
        *slot = Some(vote);
        if let Some(raise) = self.raise.as_mut().filter(|raise| vote.ends_with(raise.to)) {
            raise.acked.insert(node);
        }
        self.decide()
    }

    /// Ends the grace period: from now on, a majority of different grants is raised at once.
    pub fn grace_over(&mut self) -> Verdict {
        self.grace_over = true;
        self.decide()
    }

    /// Records the reply of a node to the raise; if there is none, [`Raise::Refused`]. Only its first reply counts.
    pub fn raised(&mut self, node: usize, answer: Raise) -> Verdict {
        if let Some(raise) = self.raise.as_mut().filter(|raise| raise.unanswered.contains(node)) {
            raise.unanswered.remove(node);
            if answer == Raise::Acked {
                raise.acked.insert(node);
            }
        }
        self.decide()
    }

    /// Whether a majority has granted different fences and other nodes have not answered: a short grace period, about a
    /// millisecond, is worthwhile, because an equal majority saves the second round trip.
    pub fn is_split(&self) -> bool {
        self.verdict == Verdict::Pending && self.raise.is_none() && self.granted().count() >= self.quorum.majority()
    }

    /// Until when the holder of a won round may rely on it; `None` if it was not won, or took longer than its lease.
    pub fn lease(&self, ttl: Duration, drift: Drift, now: Moment) -> Option<Lease> {
        let lease = Lease::granted(self.sent, ttl, drift);
        (matches!(self.verdict, Verdict::Won(_)) && !lease.lapsed(now)).then_some(lease)
    }

    fn decide(&mut self) -> Verdict {
        match self.raise {
            _ if self.verdict != Verdict::Pending => self.verdict,
            None => self.count_votes(),
            Some(raise) => self.count_acks(raise),
        }
    }

    fn count_votes(&mut self) -> Verdict {
        let majority = self.quorum.majority();
        let pending = self.votes.iter().filter(|vote| vote.is_none()).count();
        let granted = self.granted().count();
        if let Some(tokens) = self.equal_majority() {
            self.verdict = Verdict::Won(tokens);
        } else if granted + pending < majority {
            self.verdict = Verdict::Lost(self.cause_of_loss());
        } else if granted >= majority && (pending == 0 || self.grace_over) {
            return self.begin_raise();
        }
        self.verdict
    }

    fn begin_raise(&mut self) -> Verdict {
        let Some(to) = self.granted().map(TokenBlock::last).max() else { return Verdict::Pending };
        let acked = self.nodes_where(|vote| vote.is_some_and(|vote| vote.ends_with(to)));
        let useless = self.nodes_where(|vote| matches!(vote, Some(Vote::Busy { .. } | Vote::Refused)));
        let nodes = self.nodes_where(|_| true).without(acked).without(useless);
        self.raise = Some(Raising { to, unanswered: nodes, acked });
        Verdict::Raise { to, nodes }
    }

    fn count_acks(&mut self, Raising { to, unanswered, acked }: Raising) -> Verdict {
        let majority = self.quorum.majority();
        if acked.len() >= majority {
            // Only one token: a node whose grant is unknown, or differs, may have granted the lower ones to others.
            self.verdict = Verdict::Won(to.into());
        } else if acked.len() + unanswered.without(acked).len() < majority {
            self.verdict = Verdict::Lost(Defeat::Overtaken);
        }
        self.verdict
    }

    fn granted(&self) -> impl Iterator<Item = TokenBlock> {
        self.votes.iter().filter_map(|vote| match vote {
            Some(Vote::Granted(tokens)) => Some(*tokens),
            _ => None,
        })
    }

    /// The tokens that a majority granted: the smallest of the blocks with the same end. There is at most one such end.
    fn equal_majority(&self) -> Option<TokenBlock> {
        let ending = |last| self.granted().filter(move |tokens| tokens.last() == last);
        let last = self.granted().map(TokenBlock::last).find(|&last| ending(last).count() >= self.quorum.majority())?;
        ending(last).min_by_key(|tokens| tokens.count())
    }

    fn cause_of_loss(&self) -> Defeat {
        let absent = self.nodes_where(|vote| matches!(vote, Some(Vote::Refused | Vote::Unknown)));
        if absent.len() > self.quorum.spare() { Defeat::Unreachable } else { Defeat::Busy }
    }

    fn nodes_where(&self, which: impl Fn(Option<Vote>) -> bool) -> NodeSet {
        self.votes.iter().enumerate().filter(|(_, vote)| which(**vote)).map(|(node, _)| node).collect()
    }
}
