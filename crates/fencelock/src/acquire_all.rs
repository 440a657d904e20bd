//! Executes the steps of [`AcquireAll`]: claims, releases, and watching the leases that are held.

use crate::driver::{ClientInner, acquire};
use crate::error::Error;
use crate::guard::Guard;
use crate::guards::{Guards, HeldAll};
use crate::loss::Loss;
use crate::request::{OnWait, Request, SetRequest, Waiting};
use fencelock_core::Mode;
use fencelock_core::engine::{AcquireAll, AcquireStep, Claimed, LeaseSharing};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the caller waits for the releases of keys that it does not acquire together. The rest continues in the background.
const RELEASE_LIMIT: Duration = Duration::from_millis(250);

/// An acquisition of several keys. Dropping it releases the keys that are held in the background.
struct Attempt<'a> {
    client: &'a Arc<ClientInner>,
    request: &'a SetRequest,
    all: AcquireAll<Guard, Error>,
}

/// Acquires all keys, or none. The guards are in the order in which the caller passed the keys.
pub(crate) async fn acquire_all(client: &Arc<ClientInner>, request: &SetRequest) -> Result<Vec<Guard>, Error> {
    let all = AcquireAll::new(request.keys.clone(), request.template.options.wait, client.clock.now());
    let mut attempt = Attempt { client, request, all };
    loop {
        match attempt.all.step(client.clock.now()) {
            AcquireStep::TryRest { within } => {
                let rest = attempt.all.remaining().to_vec();
                attempt.claim(&rest, Some(Duration::ZERO), within.unwrap_or(Duration::MAX)).await;
            }
            AcquireStep::Claim { key, wait } => attempt.claim(&[key], wait, Duration::MAX).await,
            AcquireStep::ReleaseAll => {
                // A release that is not confirmed in time continues in the background.
                let _ = timeout(RELEASE_LIMIT, Guards::new(attempt.all.take()).release()).await;
                attempt.all.on_released();
            }
            AcquireStep::Granted => return Ok(attempt.granted()),
            AcquireStep::Refused => {
                let waited = attempt.waited();
                let (error, earlier) = attempt.all.into_error().unwrap_or_else(|| (client.closed_error(), 0));
                return Err(error.after(waited, earlier));
            }
        }
    }
}

impl Attempt<'_> {
    /// Claims one key, or tries several at the same time, and reports the results, or the loss of a key that is held.
    async fn claim(&mut self, keys: &[usize], wait: Option<Duration>, within: Duration) {
        let claims = async {
            let attempt = self.client.telemetry.attempt(self.request.template.options.mode);
            let claims = keys.iter().map(|key| timeout(within, acquire(self.client, self.request_for(*key, wait))));
            let claimed = join_all(claims).await;
            match claimed.as_slice() {
                [Ok(one)] => attempt.ended(one),
                // A key that is refused is claimed again, and that claim counts.
                _ => attempt.ended(&Ok(())),
            }
            claimed
        };
        let held = self.held();
        let claimed = tokio::select! {
            biased;
            loss = held.lost() => return self.on_lost(loss),
            claimed = claims => claimed,
        };
        let ttl = self.request.template.options.ttl.get();
        let results = claimed.into_iter().map(|claimed| match claimed {
            Ok(Ok(guard)) => Claimed::Granted(guard),
            Ok(Err(error)) => Claimed::Failed(error.of_claim(ttl), error),
            Err(_) => Claimed::Unanswered,
        });
        self.all.on_claimed(results.collect(), self.client.clock.now());
        // The other leases were not watched while the last reply was in flight.
        if let Some(loss) = self.held().loss() {
            self.on_lost(loss);
        }
    }

    fn held(&self) -> HeldAll {
        Guards::new(self.all.held().map(Guard::held).collect())
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

    fn on_lost(&mut self, loss: Loss) {
        tracing::debug!(key = %loss.key, reason = %loss.reason, "lost while the other keys were waited for");
        self.all.on_lost(loss.into(), self.client.clock.now());
    }

    fn granted(&mut self) -> Vec<Guard> {
        let guards = self.all.take();
        if let Some(max_hold) = self.request.template.options.max_hold {
            for guard in &guards {
                guard.limit_hold(max_hold);
            }
        }
        guards
    }

    fn waited(&self) -> Duration {
        self.all.waited(self.client.clock.now())
    }
}
