//! The client: one attempt, from its claims to its end.

use super::{Action, Attempt, Flaw, Holds, NODES, Stage, State};
use fencelock_core::{Drift, FencingToken, Lease, Moment, NodeVote, Outcome, Quorum, Round, Tally, Verdict, Vote};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);
const DRIFT: Drift = Drift { ppm: 10_000, fixed: Duration::from_millis(2) };
const SENT: Moment = Moment::from_micros(0);

/// A moment at which a lease sent at [`SENT`] has lapsed or not: all that a flag says.
fn moment(late: bool) -> Moment {
    if late { Lease::granted(SENT, TTL, DRIFT).until() } else { SENT }
}

impl Holds {
    /// Whether the grants in hand make a hold.
    fn won(self, state: &State, who: u8) -> bool {
        let mut round = Round::new(quorum(), SENT);
        let fence = FencingToken::new(1).expect("one is a token");
        let mut verdict = Verdict::Pending;
        for (node, _) in state.nodes.iter().enumerate().filter(|(_, node)| node.links[usize::from(who)].ok) {
            verdict = round.vote(node, Vote::Granted(fence.into()));
        }
        let lapsed = round.lease(TTL, DRIFT, moment(state.attempts[usize::from(who)].late[0])).is_none();
        matches!(verdict, Verdict::Won(_)) && (!lapsed || self.has(Flaw::IgnoresValidity))
    }

    /// Whether the lease can take it.
    fn renewal_counts(self, attempt: Attempt) -> bool {
        let lease = Lease::granted(SENT, TTL, DRIFT);
        let in_time = lease.renewed(SENT, TTL, DRIFT, moment(attempt.late[0])).is_some();
        in_time || self.has(Flaw::RevivesLapsed) && !attempt.late[1]
    }

    pub(crate) fn client_actions(self, state: &State, who: u8, into: &mut Vec<Action>) {
        let attempt = state.attempts[usize::from(who)];
        match attempt.stage {
            Stage::Idle if self.holder(who) == who || state.attempts[0].stage == Stage::Over => {
                into.push(Action::Begin(who));
            }
            Stage::Idle | Stage::Over => {}
            Stage::Claiming => {
                if self.won(state, who) {
                    into.push(Action::Hold(who));
                }
                into.push(Action::Leave(who));
            }
            Stage::Holding => {
                into.push(Action::Leave(who));
                if self.scope.downgrades && !attempt.reads && !attempt.downgrading {
                    into.push(Action::Downgrade(who));
                }
                if self.scope.renews && !attempt.renewing {
                    into.push(Action::Renew(who));
                }
                if !attempt.renewed && renewal_won(state, who) && self.renewal_counts(attempt) {
                    into.push(Action::Renewed(who));
                }
            }
        }
        if attempt.stage != Stage::Idle && !attempt.late[0] {
            into.push(Action::ClaimPasses(who));
        }
        if attempt.renewing && !attempt.late[1] {
            into.push(Action::RenewalPasses(who));
        }
        for (number, node) in (0..).zip(&state.nodes) {
            let link = &node.links[usize::from(who)];
            let received = attempt.stage == Stage::Claiming && self.owns(node, who) && !link.ok;
            let granted = self.has_room(state, who, node);
            if attempt.stage != Stage::Idle && !node.out && link.runs < self.scope.runs && (granted || received) {
                into.push(Action::Run(who, number));
            }
            let frees = self.owns(node, who) || self.has(Flaw::PlainDelete) && node.holders().next().is_some();
            if attempt.stage == Stage::Over && frees {
                into.push(Action::RunRelease(who, number));
            }
            let renewable = link.held > 0 || self.scope.heals && granted && !node.out;
            if attempt.renewing && !link.renewed && renewable {
                into.push(Action::RunRenewal(who, number));
            }
            if attempt.downgrading && link.alone {
                into.push(Action::RunDowngrade(who, number));
            }
        }
    }
}

/// Whether a majority has renewed.
pub(crate) fn renewal_won(state: &State, who: u8) -> bool {
    let mut tally = Tally::new(quorum());
    let renewed = state.nodes.iter().enumerate().filter(|(_, node)| node.links[usize::from(who)].renewed);
    renewed.fold(Outcome::Pending, |_, (node, _)| tally.vote(node, NodeVote::Ours)) == Outcome::Ours
}

fn quorum() -> Quorum {
    Quorum::new(NODES).expect("a few nodes")
}
