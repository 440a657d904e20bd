//! The waiter's side: ask, stand in line, be woken, ask again, and leave nothing behind.

use crate::client::unreachable;
use crate::core::Core;
use crate::error::Error;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::identity::dice;
use crate::janitor::{Chore, STRAGGLER};
use crate::lock::{Request, Waiting};
use crate::telemetry;
use crate::waiters::Waiter;
use crate::watchdog::FIRST_LOOK;
use fencelock_core::{
    Acquire, Claim, Expiry, Fault, FencingToken, Holder, HolderId, Intent, Lease, LossReason, Moment, Occupant,
    Occupied, RenewalPlan, RetryPlan, Unknown,
};
use std::sync::Arc;
use std::time::Duration;

/// A waiter asks once more when its wait is over, and waits this much longer for the answer: a healthy server needs less.
const LAST_WORD: Duration = Duration::from_millis(50);
/// Attempts in a row that may find themselves out of the line before the next one waits a moment.
const HASTY_ATTEMPTS: u32 = 3;

#[tracing::instrument(level = "debug", name = "acquire", skip_all, fields(key = %request.key))]
pub(crate) async fn acquire(core: &Arc<Core>, request: &Request) -> Result<Guard, Error> {
    let mut search = Search::new(core, request);
    loop {
        core.check_open()?;
        let attempt = Attempt::new(core, request)?;
        if let Some(guard) = attempt.run(&mut search).await? {
            return Ok(guard);
        }
        if search.out_of_line > HASTY_ATTEMPTS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tracing::instrument(level = "debug", name = "resume", skip_all, fields(key = %request.key))]
pub(crate) async fn resume(core: &Arc<Core>, request: &Request, holder: HolderId) -> Result<Guard, Error> {
    core.check_open()?;
    let holder = Holder { id: holder, owner: request.owner.clone() };
    let claim = Claim::new(request.key.clone(), holder, request.ttl, Intent::Poll);
    let sent = core.clock.now();
    match core.backend.acquire(&claim).await {
        Ok(Acquire::Granted { fence }) => {
            let lease = lease_of(core, request, sent);
            Ok(hold(core, request, claim.holder.id, fence, lease, Moment::default()))
        }
        Ok(_) => Err(Error::Lost { key: claim.key, reason: LossReason::Expired }),
        Err(cause) => Err(unreachable(cause, core.clock.now().since(sent), 1)),
    }
}

/// One search for a lock: everything that outlives a single attempt.
struct Search<'a> {
    core: &'a Arc<Core>,
    request: &'a Request,
    started: Moment,
    deadline: Moment,
    attempts: u32,
    out_of_line: u32,
    failing_since: Option<Moment>,
    occupied: Option<Occupied>,
}

impl<'a> Search<'a> {
    fn new(core: &'a Arc<Core>, request: &'a Request) -> Self {
        let started = core.clock.now();
        let deadline = request.wait.map_or(Moment::NEVER, |wait| started + wait);
        Self { core, request, started, deadline, attempts: 0, out_of_line: 0, failing_since: None, occupied: None }
    }

    fn waited(&self) -> Duration {
        self.core.clock.now().since(self.started)
    }

    fn is_over(&self) -> bool {
        self.core.clock.now() >= self.deadline || self.request.retry.is_some_and(|retry| self.attempts >= retry.times)
    }

    /// Whether it waits for a release, rather than asking once or at set times. Where there is no line, the claim tells
    /// the backend that somebody here is worth waking.
    fn lines_up(&self) -> bool {
        self.request.retry.is_none() && self.request.wait != Some(Duration::ZERO)
    }

    fn told(&mut self, ahead: Option<u32>, occupied: Occupied) {
        self.failing_since = None;
        if let Some(on_wait) = &self.request.on_wait {
            on_wait(&Waiting {
                key: self.request.key.clone(),
                ahead,
                holder: occupied.by.clone(),
                expiry: occupied.expiry,
                held_for: occupied.held_for,
                waited: self.waited(),
            });
        }
        self.occupied = Some(occupied);
    }

    /// Nobody answered. `Err` if that is reason enough to give up: it cannot get better, it was the only try, or it
    /// has lasted as long as a lease would.
    fn unanswered(&mut self, cause: Unknown) -> Result<(), Error> {
        let now = self.core.clock.now();
        let since = *self.failing_since.get_or_insert(now);
        if self.is_over() && self.occupied.is_some() && !cause.is_permanent() {
            // Who has it was told before.
            return Err(self.busy());
        }
        if cause.is_permanent() || now.since(since) >= self.request.ttl.get() || self.is_over() {
            return Err(unreachable(cause, self.waited(), self.attempts));
        }
        tracing::debug!(key = %self.request.key, %cause, "no answer, trying again");
        Ok(())
    }

    fn busy(&self) -> Error {
        let waited = self.waited();
        telemetry::busy(&self.request.key, waited);
        // Before the first answer nothing is known about who has it; the deadline came first.
        let occupied = self.occupied.clone().unwrap_or(Occupied {
            by: Occupant::Foreign("no answer yet".into()),
            expiry: Expiry::Never,
            held_for: None,
        });
        Error::Busy {
            key: self.request.key.clone(),
            holder: occupied.by,
            expires_in: occupied.expiry,
            waited,
            attempts: self.attempts,
        }
    }

    fn pause(&self, asked: u32) -> Duration {
        let plan = match self.request.retry {
            Some(retry) => RetryPlan::every(retry.pause),
            None if self.failing_since.is_some() || !self.core.backend.capabilities().queues => RetryPlan::BLIND,
            None => RetryPlan::WOKEN,
        };
        let expiry = self.occupied.as_ref().map_or(Expiry::Never, |occupied| occupied.expiry);
        let expiry = if self.request.retry.is_some() { Expiry::Never } else { expiry };
        let pause = plan.pause(asked, expiry, dice());
        let pause = if self.core.backend.capabilities().fresh_holders && self.request.retry.is_none() {
            anywhere_in(pause, dice())
        } else {
            pause
        };
        pause.min(self.deadline.since(self.core.clock.now()))
    }
}

/// One attempt under one fresh holder. Dropping it gives up whatever it may have got.
struct Attempt<'a> {
    core: &'a Arc<Core>,
    claim: Claim,
    waiter: Arc<Waiter>,
    /// The last claim that was answered with a place in line: when it was sent, and the greatest fencing token then.
    answered: Option<(Moment, u64)>,
    /// Something of this holder may be on the server.
    left_behind: bool,
    /// A request was sent whose answer has not come.
    in_flight: bool,
    /// Until then, a request whose answer never came may still arrive, also after later ones were answered.
    stray_until: Moment,
    asked: u32,
}

impl<'a> Attempt<'a> {
    fn new(core: &'a Arc<Core>, request: &Request) -> Result<Self, Error> {
        let holder = Holder { id: core.identity.fresh_holder()?, owner: request.owner.clone() };
        let waiter = core.waiters.join(&request.key, holder.id, request.retry.is_none());
        let claim = Claim::new(request.key.clone(), holder, request.ttl, Intent::Try);
        telemetry::waiting(&claim.key);
        Ok(Self {
            core,
            claim,
            waiter,
            answered: None,
            left_behind: false,
            in_flight: false,
            stray_until: Moment::default(),
            asked: 0,
        })
    }

    /// `None` if the attempt came to nothing and another should begin.
    async fn run(mut self, search: &mut Search<'_>) -> Result<Option<Guard>, Error> {
        self.claim.intent = if search.lines_up() { Intent::Enqueue } else { Intent::Try };
        loop {
            let sent = self.core.clock.now();
            let answer = self.ask(search).await;
            self.core.check_open()?;
            match answer {
                Ok(Acquire::Granted { fence }) => {
                    let lease = lease_of(self.core, search.request, sent);
                    let guard = self.granted(search, fence, lease, false);
                    if guard.is_none() {
                        search.unanswered(too_late(self.core))?;
                    }
                    return Ok(guard);
                }
                Ok(Acquire::Gone) => {
                    self.left_behind = false;
                    search.out_of_line += 1;
                    return Ok(None);
                }
                Ok(Acquire::Busy(occupied)) => {
                    self.left_behind = false;
                    search.told(None, occupied);
                }
                Ok(Acquire::Queued { ahead, last_fence, occupied }) => {
                    self.answered = Some((sent, last_fence));
                    self.claim.intent = Intent::Poll;
                    search.told(Some(ahead), occupied);
                }
                // It may have been carried out. A poll can tell, without a second place in line.
                Err(cause) => {
                    if self.claim.intent == Intent::Enqueue {
                        self.claim.intent = Intent::Poll;
                    }
                    search.unanswered(cause)?;
                }
            }
            if search.is_over() {
                self.leave().await;
                return Err(search.busy());
            }
            self.sleep(search).await;
            self.core.check_open()?;
            if self.core.backend.capabilities().fresh_holders {
                // A rollback of this claim may still be under way; it must not find the next one under the same holder.
                return Ok(None);
            }
            if let Some(guard) = self.handed(search) {
                return Ok(Some(guard));
            }
        }
    }

    async fn ask(&mut self, search: &mut Search<'_>) -> Result<Acquire, Unknown> {
        search.attempts += 1;
        self.asked += 1;
        self.left_behind = true;
        self.in_flight = true;
        let answer = self.in_time(search).await;
        self.in_flight = false;
        if answer.is_err() {
            self.stray_until = self.core.clock.now() + STRAGGLER;
        }
        answer
    }

    /// An answer that is under way when the wait ends is hardly waited for. Who asks only once leaves that to the backend.
    async fn in_time(&self, search: &Search<'_>) -> Result<Acquire, Unknown> {
        let answer = self.core.backend.acquire(&self.claim);
        let left = search.deadline.since(self.core.clock.now());
        if left == Duration::MAX || search.request.wait == Some(Duration::ZERO) {
            return answer.await;
        }
        tokio::time::timeout(left.max(LAST_WORD), answer).await.unwrap_or_else(|_| {
            Err(Unknown::new(self.core.backend.name(), Fault::Timeout, "the wait was over before an answer came"))
        })
    }

    /// Until somebody rings, or it is time to ask without.
    async fn sleep(&self, search: &Search<'_>) {
        let fresh = self.core.backend.capabilities().fresh_holders;
        let asked = if fresh { search.attempts } else { self.asked };
        let pause = search.pause(asked.saturating_sub(1));
        let woken = async {
            self.waiter.bell.notified().await;
            // Who asks at times of its own is woken by the end of the client only.
            while search.request.retry.is_some() && self.core.check_open().is_ok() {
                self.waiter.bell.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = woken => {}
            () = tokio::time::sleep(pause) => telemetry::fallback_poll(&self.claim.key),
        }
    }

    /// Begins at once on a hand-off message.
    ///
    /// A token greater than the greatest at the last answered claim means that the key was handed over after that claim
    /// was carried out, so after it was sent. Counting the claim TTL from there is therefore safe however late the
    /// message is. The first look of the watchdog makes it a full lease. A message that comes late in its claim TTL is
    /// left to a poll.
    fn handed(&mut self, search: &Search<'_>) -> Option<Guard> {
        let handed = self.waiter.take_handed()?;
        let (sent, last_fence) = self.answered?;
        let lease = lease_for(self.core, handed.claim_ttl, sent);
        if handed.fence.get() <= last_fence || lease.remaining(self.core.clock.now()) < handed.claim_ttl / 4 {
            return None;
        }
        self.granted(search, handed.fence, lease, true)
    }

    fn granted(&mut self, search: &Search<'_>, fence: FencingToken, lease: Lease, handed: bool) -> Option<Guard> {
        if lease.lapsed(self.core.clock.now()) {
            tracing::warn!(key = %self.claim.key, "granted too late, giving it back");
            return None;
        }
        let guard = hold(self.core, search.request, self.claim.holder.id, fence, lease, self.stray_until);
        // From here on the guard sees to both.
        self.left_behind = false;
        self.stray_until = Moment::default();
        telemetry::acquired(guard.hold(), search.waited(), handed);
        Some(guard)
    }

    /// Gives up the place in line, and waits for the server's word, so that whoever is told "busy" leaves nothing.
    async fn leave(&mut self) {
        if self.left_behind && self.core.backend.release(&self.claim.key, &self.claim.holder.id).await.is_ok() {
            self.left_behind = false;
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.core.waiters.leave(&self.waiter);
        telemetry::waited();
        let now = self.core.clock.now();
        let unanswered = self.in_flight || now < self.stray_until;
        if self.left_behind || unanswered {
            self.core.janitor.take(Chore {
                key: self.claim.key.clone(),
                holder: self.claim.holder.id,
                until: now + self.claim.ttl.get(),
                unanswered,
            });
        }
    }
}

/// Attempts that got in each other's way part only if their pauses differ by more than a trip.
fn anywhere_in(pause: Duration, dice: u64) -> Duration {
    let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(micros / 4 + dice % (micros - micros / 4 + 1))
}

fn too_late(core: &Core) -> Unknown {
    Unknown::new(
        core.backend.name(),
        Fault::Timeout,
        "the lock was granted, but the lease was over when the answer came",
    )
}

fn lease_of(core: &Core, request: &Request, sent: Moment) -> Lease {
    lease_for(core, request.ttl.get(), sent)
}

fn lease_for(core: &Core, ttl: Duration, sent: Moment) -> Lease {
    if core.backend.capabilities().expires { Lease::granted(sent, ttl, core.drift) } else { Lease::endless() }
}

fn hold(
    core: &Arc<Core>,
    request: &Request,
    holder: HolderId,
    fence: FencingToken,
    lease: Lease,
    stray_until: Moment,
) -> Guard {
    let now = core.clock.now();
    let ends = request.max_hold.map_or(Moment::NEVER, |max_hold| now + max_hold);
    let first = now + FIRST_LOOK.min(lease.remaining(now) / 3);
    let plan = RenewalPlan::new(lease, request.ttl, core.drift, first, ends);
    let hold = Hold::new(request.key.clone(), holder, fence, request.ttl, plan, stray_until, Arc::clone(&core.clock));
    Guard::new(Arc::clone(core), Arc::new(hold))
}
