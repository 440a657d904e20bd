//! Carries out what [`AcquireAll`] decides: claims, watches the leases that are held, releases.

use super::{ClientInner, acquire};
use crate::error::Error;
use crate::guard::Guard;
use crate::guards::loss_of;
use crate::loss::Loss;
use crate::request::{OnWait, Request, SetRequest, Waiting};
use fencelock_core::engine::{AcquireAll, AcquireStep, LeaseSharing};
use fencelock_core::{Mode, Moment};
use futures_util::future::{join_all, select_all};
use std::sync::Arc;
use std::time::Duration;

/// The caller waits this long for the releases of a set that it does not get. What is left of them goes on in the background.
const RELEASE_LIMIT: Duration = Duration::from_millis(250);

/// A set of keys on its way. Dropping it releases in the background what is held.
struct Attempt<'a> {
    client: &'a Arc<ClientInner>,
    request: &'a SetRequest,
    all: AcquireAll,
    begun: Moment,
    /// By the position of the key in the order of the caller.
    held: Vec<Option<Guard>>,
}

/// Acquires every key, in the order of the caller, or none.
pub(crate) async fn acquire_all(client: &Arc<ClientInner>, request: &SetRequest) -> Result<Vec<Guard>, Error> {
    let begun = client.clock.now();
    let all = AcquireAll::new(request.keys.clone(), request.template.options.wait, begun);
    let held = request.keys.keys().iter().map(|_| None).collect();
    let mut attempt = Attempt { client, request, all, begun, held };
    let mut last = None;
    loop {
        match attempt.all.step(client.clock.now()) {
            AcquireStep::TryRest { within } => {
                if let Some(loss) = attempt.try_rest(within).await {
                    last = Some(loss);
                }
            }
            AcquireStep::Claim { key, wait } => {
                if let Some(error) = attempt.claim(key, wait).await {
                    last = Some(error);
                }
            }
            AcquireStep::ReleaseAll => {
                attempt.release().await;
                attempt.all.on_released();
            }
            AcquireStep::Granted => return Ok(attempt.granted()),
            // A claim is refused with an error only.
            AcquireStep::Refused => return Err(attempt.total(last.unwrap_or_else(|| client.closed_error()))),
        }
    }
}

impl Attempt<'_> {
    /// Claims one key, and reports the outcome to the state machine. Returns the error of a claim that was not granted.
    async fn claim(&mut self, key: usize, wait: Option<Duration>) -> Option<Error> {
        let request = self.request_for(key, wait);
        let claim = async {
            let attempt = self.client.telemetry.attempt(self.request.template.options.mode);
            let claimed = acquire(self.client, &request).await;
            attempt.ended(&claimed);
            claimed
        };
        match self.unless_lost(claim).await {
            Ok(Ok(guard)) => {
                self.held[key] = Some(guard);
                self.all.on_granted();
                // The other leases were not watched while the answer was in flight.
                self.first_loss().map(|loss| self.on_lost(loss))
            }
            Ok(Err(error)) => {
                self.all.on_refused();
                Some(error)
            }
            Err(loss) => Some(self.on_lost(loss)),
        }
    }

    /// Tries all keys that are not held, at the same time. Returns the loss of a key that is held.
    async fn try_rest(&mut self, within: Option<Duration>) -> Option<Error> {
        let keys = self.all.remaining().to_vec();
        let tries = async {
            let attempt = self.client.telemetry.attempt(self.request.template.options.mode);
            let requests: Vec<_> = keys.iter().map(|key| self.request_for(*key, Some(Duration::ZERO))).collect();
            let tries = join_all(requests.iter().map(|request| acquire(self.client, request)));
            let granted = match within {
                Some(within) => tokio::time::timeout(within, tries).await.unwrap_or_default(),
                None => tries.await,
            };
            // A key that is refused is claimed again, and that claim counts.
            attempt.ended(&Ok(()));
            granted
        };
        match self.unless_lost(tries).await {
            Ok(granted) => {
                // The rest is dropped, and so released.
                let kept: Vec<_> = granted.into_iter().map_while(Result::ok).collect();
                self.all.on_tried(kept.len());
                for (key, guard) in keys.into_iter().zip(kept) {
                    self.held[key] = Some(guard);
                }
                self.first_loss().map(|loss| self.on_lost(loss))
            }
            Err(loss) => Some(self.on_lost(loss)),
        }
    }

    /// The output of `claims`, unless a lease is lost before.
    async fn unless_lost<T>(&self, claims: impl Future<Output = T>) -> Result<T, Loss> {
        let losses: Vec<_> = self.held.iter().flatten().map(|guard| Box::pin(loss_of(guard.held()))).collect();
        if losses.is_empty() {
            return Ok(claims.await);
        }
        tokio::select! {
            biased;
            (loss, ..) = select_all(losses) => Err(loss),
            output = claims => Ok(output),
        }
    }

    fn request_for(&self, key: usize, wait: Option<Duration>) -> Request {
        let mut request = self.request.template.clone();
        request.key = self.request.keys.keys()[key].clone();
        request.options.wait = wait;
        // It begins when all keys are held: a long wait for one of them must not use it up.
        if request.options.max_hold.take().is_some() && request.options.mode == Mode::Shared {
            // The end of this set would be that of all readers that share the lease.
            request.options.lease_sharing = LeaseSharing::Never;
        }
        let before = self.waited();
        request.on_wait = request.on_wait.map(|on_wait| -> OnWait {
            Arc::new(move |waiting| on_wait(&Waiting { waited: before + waiting.waited, ..waiting.clone() }))
        });
        request
    }

    fn on_lost(&mut self, loss: Loss) -> Error {
        tracing::debug!(key = %loss.key, reason = %loss.reason, "lost while the other keys were waited for");
        self.all.on_lost(self.client.clock.now());
        loss.into()
    }

    fn first_loss(&self) -> Option<Loss> {
        self.held.iter().flatten().find_map(|guard| guard.held().loss())
    }

    async fn release(&mut self) {
        let releases = self.held.iter_mut().filter_map(Option::take).map(Guard::release);
        // What is not confirmed in time goes on in the background.
        let _ = tokio::time::timeout(RELEASE_LIMIT, join_all(releases)).await;
    }

    fn granted(&mut self) -> Vec<Guard> {
        let guards: Vec<_> = self.held.iter_mut().filter_map(Option::take).collect();
        if let Some(max_hold) = self.request.template.options.max_hold {
            for guard in &guards {
                guard.limit_hold(max_hold);
            }
        }
        guards
    }

    fn waited(&self) -> Duration {
        self.client.clock.now().since(self.begun)
    }

    /// The error of the last claim, with the wait and the tries of all rounds.
    fn total(&self, mut error: Error) -> Error {
        if let Error::Busy { waited, attempts, .. } | Error::Unreachable { waited, attempts, .. } = &mut error {
            *waited = self.waited();
            *attempts = attempts.saturating_add(self.all.rounds() - 1);
        }
        error
    }
}
