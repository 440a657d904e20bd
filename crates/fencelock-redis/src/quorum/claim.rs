//! A claim on all nodes. Unless the round is won and the caller receives the result, every node is released.

use super::Quorum;
use super::ballot::Ballot;
use super::node::{GIVE_UP, Node};
use fencelock_core::quorum::{ClaimVotes, NodePlan, QuorumConfig, proposal};
use fencelock_core::{Acquire, Claim, Clock, Fault, Intent, Sent, Unknown, Verdict};
use futures_util::future::{join, join_all};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

/// How long a lost round waits for its releases, so that the lock is already free when the caller gets "busy".
const CLEANUP_WAIT: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The answer of a node, or `None` when it was released.
type Told = Option<Result<Acquire, Unknown>>;

/// It goes on in the background: requests and releases continue when the caller has gone.
pub(super) async fn claim(quorum: &Quorum, claim: &Claim) -> Result<Acquire, Unknown> {
    let plan = quorum.plan(&claim.key, |node| node.limit(claim.ttl.get() / 10));
    let proposal = proposal(quorum.clock.wall_micros(), quorum.seen.load(Ordering::Relaxed), claim.block);
    let (sent, claim, (told, replies)) = (quorum.clock.now(), Arc::new(claim.clone()), mpsc::unbounded_channel());
    // Closed when the claim has failed, or nobody waits for it.
    let (keep, kept) = watch::channel(false);
    let mut asked = Vec::new();
    for (number, NodePlan { limit, left_out }) in plan.iter().cloned().enumerate() {
        if let Some(cause) = left_out {
            let _ = told.send((number, Some(Err(cause))));
            continue;
        }
        let node = Arc::clone(&quorum.nodes[number]);
        // Now, not in the task: a release of this holder may be called, and run, before the task does.
        let in_flight = node.in_flight(claim.holder.id);
        let (claim, seen, told, mut kept) = (Arc::clone(&claim), Arc::clone(&quorum.seen), told.clone(), kept.clone());
        // Sends the claim, and releases it after its request has ended, unless it is kept.
        asked.push(async move {
            let (mut is_busy, mut was_sent) = (false, true);
            let attempt = claim.with_intent(Intent::Try);
            let request = async {
                let answer = async {
                    let reply = node.backend.acquire_proposed(&attempt, proposal).await;
                    was_sent = reply.sent != Sent::Never;
                    reply.answer
                };
                node.within(limit + GIVE_UP, answer).await
            };
            node.answers(limit, request, |answer| {
                is_busy = matches!(answer, Ok(Acquire::Busy(_) | Acquire::Queued { .. }));
                if let Ok(Acquire::Granted { tokens }) = &answer {
                    seen.fetch_max(tokens.last().get(), Ordering::Relaxed);
                }
                let _ = told.send((number, Some(answer)));
            })
            .await;
            drop(in_flight);
            if kept.wait_for(|kept| *kept).await.is_ok() {
                return;
            }
            if was_sent {
                release(&node, &claim).await;
            }
            let _ = told.send((number, None));
            // Only busy nodes: a free node would report a change immediately, and again each time.
            if is_busy && claim.intent == Intent::Enqueue {
                let _ = timeout(GIVE_UP, node.backend.watch(&claim.key)).await;
            }
        });
    }
    drop(told);
    let nodes = join_all(asked);
    let ballot = Ballot::new(quorum, plan, (claim.key.clone(), claim.holder.id), sent, replies);
    let decision = decide(ballot, claim.ttl.get(), Arc::clone(&quorum.settings), Arc::clone(&quorum.clock), keep);
    let (mut result, answer) = oneshot::channel();
    let decided = async move {
        tokio::select! {
            biased;
            () = result.closed() => {}
            // If the caller goes before it takes the result, what keeps the grants is dropped with it.
            decided = decision => drop(result.send(decided)),
        }
    };
    tokio::spawn(join(decided, nodes));
    let ended = |_| Unknown::new(quorum.settings.backend.clone(), Fault::Other, "the runtime has ended");
    let (answer, keep) = answer.await.map_err(ended)?;
    let _ = keep.map(|keep| keep.send_replace(true));
    answer
}

/// The result, and what keeps the grants.
async fn decide(
    mut ballot: Ballot<Told>,
    ttl: Duration,
    settings: Arc<QuorumConfig>,
    clock: Arc<dyn Clock>,
    keep: watch::Sender<bool>,
) -> (Result<Acquire, Unknown>, Option<watch::Sender<bool>>) {
    let mut votes = ClaimVotes::new(Arc::clone(&settings));
    while ballot.verdict == Verdict::Pending {
        match ballot.next().await {
            Ok(Some((number, Some(answer)))) => ballot.vote(number, votes.vote(number, answer, true)),
            Ok(_) => {}
            Err(ended) => return (Err(ended), None),
        }
    }
    let defeat = match ballot.verdict {
        Verdict::Won(tokens) if !settings.expires || ballot.round.lease(ttl, settings.drift, clock.now()).is_some() => {
            return (Ok(Acquire::Granted { tokens }), Some(keep));
        }
        Verdict::Lost(defeat) => Some(defeat),
        Verdict::Won(_) | Verdict::Pending | Verdict::Raise { .. } => None,
    };
    drop(keep);
    let released = async {
        while !votes.is_clean() {
            match ballot.replies.recv().await {
                Some((number, Some(answer))) => drop(votes.vote(number, answer, false)),
                Some((number, None)) => votes.released(number),
                None => break,
            }
        }
    };
    let _ = timeout(CLEANUP_WAIT, released).await;
    (votes.failed(defeat), None)
}

/// Repeats the release until the node answers or the lease is over.
async fn release(node: &Node, claim: &Claim) {
    let (until, mut pause) = (Instant::now() + claim.ttl.get(), FIRST_PAUSE);
    let send = || timeout(GIVE_UP, node.backend.release(&claim.key, &claim.holder.id));
    while !matches!(send().await, Ok(Ok(_))) && Instant::now() + pause < until {
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
