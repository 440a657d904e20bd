//! Executes the steps of [`AcquireAll`]: claims, releases, and watching the leases that are held.

use super::{ClientInner, acquire};
use crate::error::Error;
use crate::guard::Guard;
use crate::guards::{Guards, HeldAll};
use crate::loss::Loss;
use crate::request::{OnWait, Request, SetRequest, Waiting};
use fencelock_core::engine::{AcquireAll, AcquireStep, LeaseSharing};
use fencelock_core::{Mode, Moment};
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// How long the caller waits for the releases of keys that it does not acquire together. The rest continues in the background.
const RELEASE_LIMIT: Duration = Duration::from_millis(250);

/// An acquisition of several keys. Dropping it releases the keys that are held in the background.
struct Attempt<'a> {
    client: &'a Arc<ClientInner>,
    request: &'a SetRequest,
    all: AcquireAll,
    begun: Moment,
    /// In the order in which the caller passed the keys.
    held: Vec<Option<Guard>>,
    /// The keys that were busy when they were tried last.
    busy: Vec<Option<Error>>,
}

/// Acquires all keys, or none. The guards are in the order in which the caller passed the keys.
pub(crate) async fn acquire_all(client: &Arc<ClientInner>, request: &SetRequest) -> Result<Vec<Guard>, Error> {
    let begun = client.clock.now();
    let all = AcquireAll::new(request.keys.clone(), request.template.options.wait, begun);
    let (held, busy) = request.keys.keys().iter().map(|_| (None, None)).unzip();
    let mut attempt = Attempt { client, request, all, begun, held, busy };
    let mut last = None;
    loop {
        match attempt.all.step(client.clock.now()) {
            AcquireStep::TryRest { within } => {
                let rest = attempt.all.remaining().to_vec();
                last = attempt.claim(&rest, Some(Duration::ZERO), within).await.or(last);
            }
            AcquireStep::Claim { key, wait } => last = attempt.claim(&[key], wait, None).await.or(last),
            AcquireStep::ReleaseAll => {
                attempt.release().await;
                attempt.all.on_released();
            }
            AcquireStep::Granted => return Ok(attempt.granted()),
            // Only an error refuses a claim.
            AcquireStep::Refused => return Err(attempt.total(last.unwrap_or_else(|| client.closed_error()))),
        }
    }
}

impl Attempt<'_> {
    /// Claims one key, or tries several at the same time, and reports the outcome to the state machine. Returns the error of the claim,
    /// or the loss of a key that is held.
    async fn claim(&mut self, keys: &[usize], wait: Option<Duration>, within: Option<Duration>) -> Option<Error> {
        let tries = keys.len() > 1;
        let claims = async {
            let attempt = self.client.telemetry.attempt(self.request.template.options.mode);
            let claims = keys.iter().map(|key| {
                let claim = acquire(self.client, self.request_for(*key, wait));
                tokio::time::timeout(within.unwrap_or(Duration::MAX), claim).map(Result::ok)
            });
            let claimed = join_all(claims).await;
            match claimed.first() {
                Some(Some(one)) if !tries => attempt.ended(one),
                // A key that is refused is claimed again, and that claim counts.
                _ => attempt.ended(&Ok(())),
            }
            claimed
        };
        let claimed = match self.unless_lost(claims).await {
            Ok(claimed) => claimed,
            Err(loss) => return Some(self.on_lost(loss)),
        };
        let (mut kept, mut refused) = (0, None);
        for (place, (key, claimed)) in keys.iter().zip(claimed).enumerate() {
            match claimed {
                Some(Ok(guard)) if kept == place => {
                    (self.held[*key], self.busy[*key]) = (Some(guard), None);
                    kept += 1;
                }
                Some(Err(error)) if tries => self.busy[*key] = Some(error).filter(Error::is_busy),
                Some(Err(error)) => refused = Some(error),
                // What was granted is dropped, which releases it.
                Some(Ok(_)) | None => self.busy[*key] = None,
            }
        }
        if let Some(error) = refused {
            self.all.on_refused();
            let silent = error.is_silence() && self.all.is_over(self.client.clock.now());
            // A holder was reported before.
            return self.busy.iter_mut().find_map(|busy| busy.take_if(|_| silent)).or(Some(error));
        }
        if tries {
            self.all.on_tried(kept);
        } else {
            self.all.on_granted();
        }
        // The other leases were not watched while the last reply was in flight.
        self.views().loss().map(|loss| self.on_lost(loss))
    }

    /// The output of `claims`, unless a lease is lost before.
    async fn unless_lost<T>(&self, claims: impl Future<Output = T>) -> Result<T, Loss> {
        let held = self.views();
        tokio::select! {
            biased;
            loss = held.lost() => Err(loss),
            output = claims => Ok(output),
        }
    }

    /// What is held.
    fn views(&self) -> HeldAll {
        Guards::new(self.held.iter().flatten().map(Guard::held).collect())
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

    async fn release(&mut self) {
        let held = Guards::new(self.held.iter_mut().filter_map(Option::take).collect());
        // A release that is not confirmed in time continues in the background.
        let _ = tokio::time::timeout(RELEASE_LIMIT, held.release()).await;
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

    /// The error of the last claim, with the wait and the attempts of all rounds.
    fn total(&self, error: Error) -> Error {
        error.after(self.waited(), self.all.rounds() - 1)
    }
}
