use crate::driver::{ClientInner, acquire};
use crate::error::Error;
use crate::guard::Guard;
use crate::guards::{Guards, HeldAll};
use crate::loss::Loss;
use crate::request::{OnWait, Request, SetRequest, Waiting};
use fencelock_core::engine::{LeaseSharing, WaitLimit};
use fencelock_core::{KeySet, Mode};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the caller waits for the releases of keys that it does not acquire together. The rest continues in the background.
const RELEASE_LIMIT: Duration = Duration::from_millis(250);

/// An acquisition of several keys.
struct Attempt<'a> {
    client: &'a Arc<ClientInner>,
    request: &'a SetRequest,
    wait: WaitLimit,
}

/// Why a round ends without all keys.
enum Ended {
    /// A key that was held, while the others were claimed.
    Lost(Loss),
    Failed(Error),
}

/// Acquires all keys, or none. The guards are in the order in which the caller passed the keys. Dropping the future releases the keys
/// that are held in the background.
///
/// Four rules prevent deadlocks and partly held guards:
///
/// - A claim that waits is sent when all earlier keys are held and no later one is, in the same order by all clients. It waits
///   in the queue of its own key.
/// - Before a claim waits, the keys that are not held are tried at the same time, so that free keys cost one round trip. Of the
///   keys that are granted, those before the first refused one are kept. The others are released: a client that waited for a
///   key and held a later one could deadlock.
/// - While a claim is not answered, the leases already held are watched. If one is lost, the claim is cancelled, all keys are
///   released, and the first key is claimed again if the wait is not over.
/// - A claim that is refused releases all keys.
///
/// An acquisition that does not wait claims one key after another. Then one of several clients that try the same keys at the
/// same time always succeeds.
pub(crate) async fn acquire_all(client: &Arc<ClientInner>, request: &SetRequest) -> Result<Vec<Guard>, Error> {
    let wait = WaitLimit::new(request.template.options.wait, client.clock.now());
    let attempt = Attempt { client, request, wait };
    let mut rounds = 0_u32;
    loop {
        let mut held = Vec::new();
        let Err(ended) = attempt.round(&mut held).await else { return Ok(attempt.granted(held)) };
        let (error, again) = match ended {
            Ended::Lost(loss) => {
                tracing::debug!(key = %loss.key, reason = %loss.reason, "lost while the other keys were waited for");
                (loss.into(), wait.allows_another_round(client.clock.now()))
            }
            Ended::Failed(error) => (error, false),
        };
        // A release that is not confirmed in time continues in the background.
        let _ = timeout(RELEASE_LIMIT, Guards::new(held).release()).await;
        if !again {
            return Err(error.after(wait.waited(client.clock.now()), rounds));
        }
        rounds = rounds.saturating_add(1);
    }
}

impl Attempt<'_> {
    /// Claims all keys. What it holds is in the order of the claims, also if it fails.
    async fn round(&self, held: &mut Vec<Guard>) -> Result<(), Ended> {
        let (keys, template) = (&self.request.keys, &self.request.template);
        // The errors of the keys that were busy when they were tried last, in the order in which the caller passed the keys.
        let mut busy = vec![None; keys.keys().len()];
        let mut rest_is_tried = !self.wait.is_try();
        loop {
            // The other leases were not watched while the last reply was in flight.
            if let Some(loss) = views(held).loss() {
                return Err(Ended::Lost(loss));
            }
            match &keys.claim_order()[held.len()..] {
                [] => return Ok(()),
                rest @ [_, _, ..] if rest_is_tried => {
                    rest_is_tried = false;
                    let tried = while_held(held, self.try_all(rest)).await?;
                    let kept = KeySet::kept(tried.iter().map(|tried| matches!(tried, Some(Ok(_)))));
                    for (index, (key, tried)) in rest.iter().zip(tried).enumerate() {
                        busy[*key] = match tried {
                            Some(Ok(guard)) if index < kept => {
                                held.push(guard);
                                None
                            }
                            // Any other error is found again by the claim that follows. A guard that is not kept is dropped.
                            Some(Err(error)) if error.is_busy() => Some(error),
                            _ => None,
                        };
                    }
                }
                [key, ..] => match while_held(held, self.claim(*key)).await? {
                    Ok(guard) => {
                        held.push(guard);
                        (busy[*key], rest_is_tried) = (None, !self.wait.is_try());
                    }
                    Err(error) => {
                        let is_over = self.wait.is_over(self.client.clock.now());
                        let better = error.of_claim(template.options.ttl.get()).replaces_earlier(is_over);
                        let reported = busy.into_iter().flatten().next().filter(|_| !better);
                        return Err(Ended::Failed(reported.unwrap_or(error)));
                    }
                },
            }
        }
    }

    /// Tries several keys at the same time; `None` if the wait has ended before the reply.
    async fn try_all(&self, keys: &[usize]) -> Vec<Option<Result<Guard, Error>>> {
        let attempt = self.client.telemetry.attempt(self.request.template.options.mode);
        let within = self.wait.left(self.client.clock.now()).unwrap_or(Duration::MAX);
        let try_one = async |key: &usize| {
            timeout(within, acquire(self.client, self.request_for(*key, Some(Duration::ZERO)))).await.ok()
        };
        let tried = join_all(keys.iter().map(try_one)).await;
        // A key that is refused is claimed again, and that claim counts.
        attempt.ended(&Ok(()));
        tried
    }

    /// Claims this key, and waits for it.
    async fn claim(&self, key: usize) -> Result<Guard, Error> {
        let attempt = self.client.telemetry.attempt(self.request.template.options.mode);
        let wait = self.wait.left(self.client.clock.now());
        let claimed = acquire(self.client, self.request_for(key, wait)).await;
        attempt.ended(&claimed);
        claimed
    }

    fn request_for(&self, key: usize, wait: Option<Duration>) -> Request {
        let mut request = self.request.template.clone();
        request.key = self.request.keys.keys()[key].clone();
        request.options.wait = wait;
        // The limit begins when all keys are held, so that a long wait for one of them does not use it up.
        if request.options.max_hold.take().is_some() && request.options.mode == Mode::Shared {
            // The end of these holds would end all readers that share the lease.
            request.options.lease_sharing = LeaseSharing::Never;
        }
        let before = self.wait.waited(self.client.clock.now());
        request.on_wait = request.on_wait.map(|on_wait| -> OnWait {
            Arc::new(move |waiting| on_wait(&Waiting { waited: before + waiting.waited, ..waiting.clone() }))
        });
        request
    }

    /// The guards in the order in which the caller passed the keys.
    fn granted(&self, held: Vec<Guard>) -> Vec<Guard> {
        let mut guards: Vec<_> = self.request.keys.claim_order().iter().zip(held).collect();
        guards.sort_unstable_by_key(|(position, _)| **position);
        let guards: Vec<_> = guards.into_iter().map(|(_, guard)| guard).collect();
        if let Some(max_hold) = self.request.template.options.max_hold {
            for guard in &guards {
                guard.limit_hold(max_hold);
            }
        }
        guards
    }
}

fn views(held: &[Guard]) -> HeldAll {
    Guards::new(held.iter().map(Guard::held).collect())
}

/// The claims, unless a lease that is held is lost before they are answered.
async fn while_held<T>(held: &[Guard], claims: impl Future<Output = T>) -> Result<T, Ended> {
    let held = views(held);
    tokio::select! {
        biased;
        loss = held.lost() => Err(Ended::Lost(loss)),
        claimed = claims => Ok(claimed),
    }
}
