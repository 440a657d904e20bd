//! A client that wants a key: rounds until one is won, and everything given back that came of the others.

use super::Mutant;
use super::client::{Asking, Client, Phase, Timer};
use super::message::{Answer, Ask, Reply, Request};
use super::sight::Sight;
use super::world::{World, holder_name};
use crate::history::Op;
use crate::luck::Luck as _;
use fencelock_core::{Defeat, Expiry, FencingToken, Lease, NodeSet, Raise, RetryPlan, Round, Verdict, Vote};
use std::mem;
use std::time::Duration;

/// How long equal grants are waited for when a majority of different ones is there.
const GRACE: Duration = Duration::from_millis(1);

impl World<'_> {
    pub(super) fn start(&mut self, client: usize) {
        self.attempts += 1;
        let (attempt, now) = (self.attempts, self.now);
        // Fresh for every attempt.
        let holder = if self.scenario.is(Mutant::TokenReuse) {
            client as u128 + 1
        } else {
            u128::from(attempt) << 8 | client as u128
        };
        let counts = self.scenario.is(Mutant::CounterOnly);
        let asker = &mut self.clients[client];
        (asker.attempt, asker.holder, asker.invoked) = (attempt, holder, now);
        let sent = asker.clock.moment(now);
        let proposal = if counts { 0 } else { asker.wall.micros(now).max(asker.seen) + 1 };
        asker.phase = Phase::Asking(Asking {
            round: Round::new(self.size, sent),
            sent,
            proposal,
            in_grace: false,
            raising: NodeSet::new(),
            busy_for: None,
            granted: Vec::new(),
        });
        self.tell(|| format!("c{client} begins attempt {attempt}, proposing {proposal}"));
        for node in 0..self.nodes.len() {
            self.ask(client, node, Ask::Claim { proposal });
        }
        let limit = 4000 + self.rng.upto(60_000);
        self.after(limit, client, Timer::ClaimLimit);
    }

    /// What is told of an answer where it is given, so that one that is lost counts too.
    pub(super) fn notice(&mut self, reply: &Reply) {
        match reply {
            Reply::Vote(Vote::Refused, _) => self.sights.saw(Sight::Quarantine),
            Reply::Yours => self.sights.saw(Sight::AskedTwice),
            Reply::Raise(Raise::Refused) => self.sights.saw(Sight::RefusedRaise),
            _ => {}
        }
    }

    pub(super) fn hear(&mut self, answer: &Answer) {
        let Answer { node, asked, reply } = *answer;
        if let Reply::Vote(vote, _) = reply {
            let seen = &mut self.clients[asked.client].seen;
            *seen = vote.fence().max(*seen);
        }
        let is_present = asked.attempt == self.clients[asked.client].attempt;
        let is_asking = is_present && matches!(self.clients[asked.client].phase, Phase::Asking(_));
        let is_idle = !is_present || matches!(self.clients[asked.client].phase, Phase::Idle);
        match reply {
            Reply::Vote(vote, left) if is_asking => self.vote(asked.client, node, vote, left),
            Reply::Yours if is_asking => self.confirm(asked.client, node),
            Reply::Raise(answer) if is_asking => {
                self.with_round(asked.client, |asking| asking.round.raised(node, answer));
            }
            Reply::Vote(Vote::Granted(_), _) | Reply::Yours if is_idle => self.give_back_late(node, &asked),
            Reply::Renew(standing) if is_present => {
                if let Ask::Renew { number } = asked.ask {
                    self.renewal_vote(asked.client, number, node, standing);
                }
            }
            _ => {}
        }
    }

    /// A claim that ran twice does not know its time left and its fence, so it asks for them.
    fn confirm(&mut self, client: usize, node: usize) {
        if let Phase::Asking(Asking { proposal, .. }) = self.clients[client].phase {
            self.ask(client, node, Ask::Confirm { proposal });
        }
    }

    fn give_back_late(&mut self, node: usize, asked: &Request) {
        self.sights.saw(Sight::LateGrant);
        if !self.scenario.is(Mutant::NoRollback) {
            self.send(node, Request { ask: Ask::Release, ..*asked });
        }
    }

    fn vote(&mut self, client: usize, node: usize, vote: Vote, left: Option<Duration>) {
        let hasty = self.scenario.is(Mutant::MajorityOff);
        let enough = self.size.majority() - 1;
        self.with_round(client, |asking| {
            asking.busy_for = [asking.busy_for, left].into_iter().flatten().min();
            if let Vote::Granted(tokens) = vote {
                asking.granted.push(tokens.last());
            }
            let verdict = asking.round.vote(node, vote);
            match asking.granted.iter().max() {
                Some(greatest) if hasty && asking.granted.len() >= enough => Verdict::Won((*greatest).into()),
                _ => verdict,
            }
        });
    }

    pub(super) fn claim_limit(&mut self, client: usize) {
        self.with_round(client, |asking| {
            let mut verdict = Verdict::Pending;
            for node in asking.round.silent().iter() {
                verdict = asking.round.vote(node, Vote::Unknown);
                if verdict != Verdict::Pending {
                    break;
                }
            }
            verdict
        });
    }

    pub(super) fn grace_over(&mut self, client: usize) {
        self.with_round(client, |asking| asking.round.grace_over());
    }

    pub(super) fn raise_limit(&mut self, client: usize) {
        self.with_round(client, |asking| {
            let mut verdict = Verdict::Pending;
            for node in asking.raising.iter() {
                verdict = asking.round.raised(node, Raise::Refused);
            }
            verdict
        });
    }

    /// Lets something happen to the open round, if there is one, and does what it says then.
    fn with_round(&mut self, client: usize, happens: impl FnOnce(&mut Asking) -> Verdict) {
        let phase = mem::replace(&mut self.clients[client].phase, Phase::Idle);
        let Phase::Asking(mut asking) = phase else {
            self.clients[client].phase = phase;
            return;
        };
        let was_raising = !asking.raising.is_empty();
        match happens(&mut asking) {
            Verdict::Pending => self.wait(client, asking),
            Verdict::Raise { to, .. } if self.scenario.is(Mutant::NoRound2) => self.won(client, &asking, to),
            Verdict::Raise { to, nodes } => self.raise(client, asking, to, nodes),
            Verdict::Won(tokens) => {
                if !was_raising {
                    self.sights.saw(Sight::EqualGrants);
                }
                self.won(client, &asking, tokens.last());
            }
            Verdict::Lost(defeat) => self.lost(client, &asking, defeat),
        }
    }

    fn wait(&mut self, client: usize, mut asking: Asking) {
        if asking.round.is_split() && !asking.in_grace {
            asking.in_grace = true;
            let clock = self.clients[client].clock;
            let over = clock.when(clock.moment(self.now) + GRACE, self.now);
            self.after(over - self.now, client, Timer::Grace);
        }
        self.clients[client].phase = Phase::Asking(asking);
    }

    fn raise(&mut self, client: usize, mut asking: Asking, to: FencingToken, nodes: NodeSet) {
        self.sights.saw(Sight::Raise);
        self.tell(|| format!("c{client} raises {nodes:?} to {to}"));
        asking.raising = nodes;
        self.clients[client].phase = Phase::Asking(asking);
        for node in nodes.iter() {
            self.ask(client, node, Ask::Raise { to });
        }
        let limit = 4000 + self.rng.upto(60_000);
        self.after(limit, client, Timer::RaiseLimit);
    }

    fn won(&mut self, client: usize, asking: &Asking, fence: FencingToken) {
        let now = self.clients[client].clock.moment(self.now);
        let (ttl, drift) = (self.scenario.ttl.get(), self.scenario.drift());
        let lease = if self.scenario.is(Mutant::ValidityFromReply) {
            Some(Lease::granted(now, ttl, drift))
        } else if self.scenario.is(Mutant::NoRound2) || self.scenario.is(Mutant::MajorityOff) {
            // The round does not know that it was won.
            Some(Lease::granted(asking.sent, ttl, drift)).filter(|lease| !lease.lapsed(now))
        } else {
            asking.round.lease(ttl, drift, now)
        };
        let Some(lease) = lease else {
            self.sights.saw(Sight::TooLate);
            self.give_up(client, None);
            return;
        };
        self.clients[client].asked = 0;
        let Client { invoked, holder, clock, .. } = self.clients[client];
        let until = clock.when(lease.until(), self.now);
        self.tell(|| format!("c{client} HOLDS with {fence} until {until} us"));
        let mut line = self.line(client, Op::Acquire, invoked).hold(&holder_name(holder), Some(fence.get()));
        line.valid_until_us = Some(until);
        line.ttl_us = Some(self.scenario.ttl.as_millis() * 1000);
        self.lines.push(line);
        self.hold(client, asking.sent, lease, fence);
    }

    fn lost(&mut self, client: usize, asking: &Asking, defeat: Defeat) {
        self.tell(|| format!("c{client} lost its round: {defeat:?}"));
        self.sights.saw(match defeat {
            Defeat::Busy => Sight::Busy,
            Defeat::Unreachable => Sight::Unreachable,
            Defeat::Overtaken => Sight::Overtaken,
        });
        self.give_up(client, asking.busy_for);
    }

    /// Back on every node, also where no answer came, and again after a pause.
    fn give_up(&mut self, client: usize, busy_for: Option<Duration>) {
        if !self.scenario.is(Mutant::NoRollback) {
            self.release_everywhere(client);
        }
        let expiry = busy_for.map_or(Expiry::Never, Expiry::In);
        let asked = self.clients[client].asked;
        self.clients[client].asked += 1;
        let pause = RetryPlan::BLIND.pause(asked, expiry, self.rng.u64(..));
        // Two that asked at once should not do so again.
        let more = self.rng.upto(4000);
        self.after(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX / 2) + more, client, Timer::Start);
    }

    pub(super) fn release_everywhere(&mut self, client: usize) {
        self.clients[client].phase = Phase::Idle;
        for node in 0..self.nodes.len() {
            self.ask(client, node, Ask::Release);
        }
    }

    /// The client ends, in order.
    pub(super) fn quit(&mut self, client: usize) {
        match self.clients[client].phase {
            Phase::Idle => {}
            Phase::Asking(_) => self.release_everywhere(client),
            Phase::Holding(_) => self.done(client),
        }
    }
}
