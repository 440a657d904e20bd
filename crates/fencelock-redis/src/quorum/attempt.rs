//! One round: a claim to every node at once, a verdict at the vote that decides, and nothing left behind by a loss.

use super::Quorum;
use super::node::{Node, RELEASE_TIMEOUT};
use fencelock_core::{
    Acquire, Claim, Defeat, Event, Fault, FencingToken, Intent, Lease, NodeFault, NodeSet, Occupied, Raise, Round,
    TokenBlock, Unknown, Verdict, Vote,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long equal grants are waited for when a majority of different ones is there: they save a trip.
const GRACE: Duration = Duration::from_millis(1);
/// How long a lost round waits until what it got is given back, so that whoever is told "busy" has left nothing.
const CLEANUP_WAIT: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a node's task tells the round.
#[derive(Debug)]
enum NodeReply {
    Answered(usize, Result<Acquire, Unknown>),
    Raised(usize, Raise),
    Released(usize),
}

/// What becomes of the claims. The tasks of the nodes outlive the round: if it goes away without a word, also by being
/// dropped, they give back what they got, each when its own claim has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimOutcome {
    Open,
    Kept,
}

pub(super) struct Attempt<'a> {
    quorum: &'a Quorum,
    claim: Arc<Claim>,
    round: Round,
    replies: mpsc::UnboundedSender<NodeReply>,
    inbox: mpsc::UnboundedReceiver<NodeReply>,
    outcome: watch::Sender<ClaimOutcome>,
    asked: NodeSet,
    /// Where something was got, or may yet be: a lost round waits a moment until they have given it back.
    owing: NodeSet,
    occupied: Vec<Occupied>,
    causes: Vec<Option<Unknown>>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(quorum: &'a Quorum, claim: &Claim) -> Self {
        let (replies, inbox) = mpsc::unbounded_channel();
        let attempt = Self {
            quorum,
            round: Round::new(quorum.size, quorum.clock.now()),
            claim: Arc::new(claim.with_intent(Intent::Try).with_proposal(quorum.proposal(claim.block))),
            replies,
            inbox,
            outcome: watch::channel(ClaimOutcome::Open).0,
            asked: NodeSet::new(),
            owing: NodeSet::new(),
            occupied: Vec::new(),
            causes: vec![None; quorum.nodes.len()],
        };
        attempt.send_claims(claim.intent == Intent::Enqueue)
    }

    fn send_claims(mut self, wake: bool) -> Self {
        for (number, (node, left_out)) in self.quorum.asked(&self.claim.key).into_iter().enumerate() {
            if let Some(cause) = left_out {
                self.reply(NodeReply::Answered(number, Err(cause)));
                continue;
            }
            self.asked.insert(number);
            self.owing.insert(number);
            let (claim, replies, mut outcome) =
                (Arc::clone(&self.claim), self.replies.clone(), self.outcome.subscribe());
            let in_flight = node.in_flight(claim.holder.id);
            tokio::spawn(async move {
                let busy = claim_on(&node, number, &claim, &replies).await;
                drop(in_flight);
                if outcome.wait_for(|outcome| *outcome == ClaimOutcome::Kept).await.is_err() {
                    release_claim(&node, &claim).await;
                    let _ = replies.send(NodeReply::Released(number));
                    // Only where it was busy: a node that is free would tell of a change at once, and again each time.
                    if wake && busy {
                        let _ = timeout(RELEASE_TIMEOUT, node.backend.watch(&claim.key)).await;
                    }
                }
            });
        }
        self
    }

    fn reply(&self, reply: NodeReply) {
        // The inbox is our own.
        let _ = self.replies.send(reply);
    }

    pub(super) async fn run(mut self) -> Result<Acquire, Unknown> {
        let mut grace = None;
        loop {
            let verdict = tokio::select! {
                biased;
                Some(reply) = self.inbox.recv() => self.on_reply(reply),
                () = sleep_until(grace.unwrap_or_else(Instant::now)), if grace.is_some() => self.round.grace_over(),
            };
            self.quorum.saw(self.round.last_fence());
            match verdict {
                Verdict::Pending if self.round.is_split() => grace = grace.or(Some(Instant::now() + GRACE)),
                Verdict::Pending => grace = None,
                Verdict::Raise { to, nodes } => {
                    grace = None;
                    self.raise(to, nodes);
                }
                Verdict::Won(tokens) => return self.won(tokens).await,
                Verdict::Lost(defeat) => return self.lost(defeat).await,
            }
        }
    }

    fn on_reply(&mut self, reply: NodeReply) -> Verdict {
        match reply {
            NodeReply::Answered(node, answer) => {
                let vote = self.vote(node, answer);
                self.round.vote(node, vote)
            }
            NodeReply::Raised(node, answer) => self.round.raised(node, answer),
            // Nothing is given back while the round is open.
            NodeReply::Released(_) => Verdict::Pending,
        }
    }

    fn vote(&mut self, node: usize, answer: Result<Acquire, Unknown>) -> Vote {
        self.causes[node] = None;
        self.owing = without(self.owing, node, &answer);
        match answer {
            Ok(Acquire::Granted { tokens }) => Vote::Granted(tokens),
            Ok(Acquire::Busy(occupied)) => {
                self.occupied.push(occupied);
                Vote::Busy { last_fence: 0 }
            }
            Ok(Acquire::Queued { last_fence, occupied, .. }) => {
                self.occupied.push(occupied);
                Vote::Busy { last_fence }
            }
            Ok(Acquire::Gone) => {
                let name = self.quorum.nodes[node].backend.name();
                self.causes[node] = Some(Unknown::new(name, Fault::Other, "the lock disappeared during the claim"));
                Vote::Unknown
            }
            Err(cause) => {
                let vote = if cause.is_refusal() { Vote::Refused } else { Vote::Unknown };
                self.causes[node] = Some(cause);
                vote
            }
        }
    }

    fn raise(&self, to: FencingToken, nodes: NodeSet) {
        for number in nodes.iter() {
            if !self.asked.contains(number) {
                self.reply(NodeReply::Raised(number, Raise::Refused));
                continue;
            }
            let (node, claim) = (Arc::clone(&self.quorum.nodes[number]), Arc::clone(&self.claim));
            let replies = self.replies.clone();
            tokio::spawn(async move {
                let limit = node.limit(claim.ttl.get() / 10);
                let raise = node.with_timeout(limit, node.backend.raise(&claim.key, &claim.holder.id, to)).await;
                let _ = replies.send(NodeReply::Raised(number, raise.unwrap_or(Raise::Refused)));
            });
        }
    }

    async fn won(self, tokens: TokenBlock) -> Result<Acquire, Unknown> {
        let quorum = self.quorum;
        let endless = Some(Lease::endless()).filter(|_| !quorum.expires);
        let lease = endless.or_else(|| self.round.lease(self.claim.ttl.get(), quorum.drift, quorum.clock.now()));
        if lease.is_some() {
            self.outcome.send_replace(ClaimOutcome::Kept);
            return Ok(Acquire::Granted { tokens });
        }
        let cause = Unknown::new(
            quorum.name_of_all(),
            Fault::Timeout,
            "a majority granted the lock, but the lease had already expired",
        );
        self.cleaned_up().await;
        Err(cause)
    }

    async fn lost(self, defeat: Defeat) -> Result<Acquire, Unknown> {
        let occupied = most_reported(&self.occupied);
        let (quorum, name) = (self.quorum, self.quorum.name_of_all());
        let causes = self.cleaned_up().await;
        let causes: Vec<NodeFault> = causes.iter().flatten().flat_map(|cause| cause.nodes().to_vec()).collect();
        match (defeat, occupied) {
            (Defeat::Busy | Defeat::Overtaken, Some(occupied)) => Ok(Acquire::Busy(occupied)),
            _ if causes.is_empty() => {
                Err(Unknown::new(name, Fault::Busy, "a majority granted the lock, but not for long enough to agree"))
            }
            _ => Err(quorum.unknown(causes)),
        }
    }

    /// Lets the nodes' tasks give back what they got, and waits a moment for those that have got something, or have yet to
    /// answer. Why each of the others did not grant.
    async fn cleaned_up(self) -> Vec<Option<Unknown>> {
        let Self { outcome, mut inbox, mut owing, replies, mut causes, .. } = self;
        drop((outcome, replies));
        let released = async {
            while !owing.is_empty() {
                match inbox.recv().await {
                    Some(NodeReply::Released(node)) => owing = owing.without([node].into_iter().collect()),
                    Some(NodeReply::Answered(node, answer)) => {
                        owing = without(owing, node, &answer);
                        causes[node] = answer.err().or_else(|| causes[node].take());
                    }
                    Some(NodeReply::Raised(..)) => {}
                    None => return,
                }
            }
        };
        let _ = timeout(CLEANUP_WAIT, released).await;
        causes
    }
}

/// A node that was busy has nothing to give back, and one that does not answer is not waited for.
fn without(owing: NodeSet, node: usize, answer: &Result<Acquire, Unknown>) -> NodeSet {
    match answer {
        Ok(Acquire::Granted { .. }) => owing,
        _ => owing.without([node].into_iter().collect()),
    }
}

/// The claim to one node, until it has ended there; whether somebody else has the key.
async fn claim_on(node: &Node, number: usize, claim: &Claim, replies: &mpsc::UnboundedSender<NodeReply>) -> bool {
    let say = |answer| {
        // Nobody may listen any more; the fate says what to do then.
        let _ = replies.send(NodeReply::Answered(number, answer));
    };
    let limit = node.limit(claim.ttl.get() / 10);
    let answer = node.carried_out(limit, node.backend.acquire(claim), say).await;
    matches!(answer, Ok(Acquire::Busy(_) | Acquire::Queued { .. }))
}

/// Releases, again and again until the node answers or the lease is over anyway.
async fn release_claim(node: &Node, claim: &Claim) {
    let over = Instant::now() + claim.ttl.get();
    let mut pause = FIRST_PAUSE;
    loop {
        let released = timeout(RELEASE_TIMEOUT, node.backend.release(&claim.key, &claim.holder.id)).await;
        if matches!(released, Ok(Ok(_))) || Instant::now() + pause >= over {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The occupant that most nodes report.
fn most_reported(occupied: &[Occupied]) -> Option<Occupied> {
    let names = |by: &Occupied| occupied.iter().filter(|other| other.holders == by.holders).count();
    let most = occupied.iter().map(names).max()?;
    occupied.iter().find(|by| names(by) == most).cloned()
}

impl Quorum {
    /// Tells this process's own waiters: a server does not tell a connection of what it changed itself.
    pub(super) fn changed(&self, key: &fencelock_core::Key) {
        self.listeners.send(&Event::Changed { key: key.clone() });
    }
}
