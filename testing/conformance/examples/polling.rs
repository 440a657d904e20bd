//! The skeleton of a backend: exclusive locks with leases, in a map, for which clients poll. It passes the suite.
//!
//! Replace the map by your store. Each request is one atomic step there, by its clock.

use fencelock_conformance::{Fixture, FixtureFactory, run};
use fencelock_core::{
    Acquire, Backend, BoxFuture, Capabilities, Claim, Clock, Expiry, Fault, FencingToken, Holder, HolderId, HolderInfo,
    Holders, Holding, Key, Listener, ManualClock, Moment, Occupant, Occupied, Release, Renew, Renewal, Reply, Request,
    RetryPlan, Unknown, next_block,
};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the store keeps of a key. The last token stays when the key is free: the next one must be greater.
#[derive(Debug, Default)]
struct Row {
    last_token: u64,
    hold: Option<Hold>,
}

#[derive(Debug)]
struct Hold {
    holder: Holder,
    token: FencingToken,
    end: Moment,
}

impl Hold {
    fn expiry(&self, now: Moment) -> Expiry {
        Expiry::In(self.end.since(now))
    }

    fn holders(&self) -> Holders {
        Holders::one(Occupant::Holder(self.holder.clone()))
    }

    fn shown(&self, key: &Key, now: Moment) -> Holding {
        let info = HolderInfo::new(Occupant::Holder(self.holder.clone()), self.expiry(now));
        Holding::new(key.clone(), info.with_fence(Some(self.token)))
    }
}

#[derive(Debug)]
struct Polling {
    clock: Arc<ManualClock>,
    rows: Mutex<HashMap<Key, Row>>,
}

impl Polling {
    /// One atomic step on a key, from which an expired hold is removed first.
    fn step<T>(&self, key: &Key, step: impl FnOnce(&mut Row, Moment) -> T) -> T {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let (row, now) = (rows.entry(key.clone()).or_default(), self.clock.now());
        row.hold = row.hold.take().filter(|hold| hold.end > now);
        step(row, now)
    }

    fn claim(&self, claim: &Claim, row: &mut Row, now: Moment) -> Result<Acquire, Unknown> {
        match &mut row.hold {
            // The same claim again: its reply was lost.
            Some(hold) if hold.holder.id == claim.holder.id => {
                hold.end = hold.end.max(now + claim.ttl.get());
                Ok(Acquire::Granted { tokens: hold.token.into() })
            }
            Some(hold) => Ok(Acquire::Busy(Occupied::new(hold.holders(), hold.expiry(now)))),
            None if claim.is_poll() => Ok(Acquire::Gone),
            None => {
                let tokens = next_block(row.last_token, self.clock.wall_micros(), claim.block)
                    .map_err(|full| Unknown::new(self.name(), Fault::Full, full.to_string()))?;
                row.last_token = tokens.last().get();
                let (holder, token) = (claim.holder.clone(), tokens.last());
                row.hold = Some(Hold { holder, token, end: now + claim.ttl.get() });
                Ok(Acquire::Granted { tokens })
            }
        }
    }

    fn renew_one(&self, renewal: &Renewal) -> Renew {
        self.step(&renewal.key, |row, now| match &mut row.hold {
            Some(hold) if hold.holder.id == renewal.holder => {
                hold.end = hold.end.max(now + renewal.ttl.get());
                Renew::Renewed { waiters: 0 }
            }
            Some(hold) => Renew::TakenBy(hold.holders()),
            None => Renew::Absent,
        })
    }
}

impl Backend for Polling {
    fn capabilities(&self) -> Capabilities {
        let mut facts = Capabilities::default();
        (facts.expires, facts.portable) = (true, true);
        facts.polls = RetryPlan::new(Duration::from_millis(10), Duration::from_secs(1));
        facts
    }

    fn name(&self) -> String {
        "polling:".into()
    }

    fn listen(&self, _: Arc<dyn Listener>) {}

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            match request {
                Request::Claim(claim, _) => self.step(&claim.key, |row, now| self.claim(claim, row, now)).into(),
                Request::Renew(renewals) => {
                    let renew = |renewal| Ok(self.renew_one(renewal));
                    renewals.iter().map(renew).collect::<Vec<_>>().into()
                }
                Request::Release(key, holder) => self.step(key, |row, _| release(row, *holder)).into(),
                Request::Inspect(key) => self.step(key, |row, now| Some(row.hold.as_ref()?.shown(key, now))).into(),
                _ => request.unsupported(self.name()),
            }
        })
    }
}

fn release(row: &mut Row, holder: HolderId) -> Release {
    match row.hold.take_if(|hold| hold.holder.id == holder) {
        Some(_) => Release::Released,
        None => row.hold.as_ref().map_or(Release::Absent, |hold| Release::TakenBy(hold.holders())),
    }
}

/// Each case of the suite has locks of its own, and moves their clock. A backend with a server does not: see [`Fixture`].
struct Locks(Arc<Polling>);

impl Fixture for Locks {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::clone(&self.0) as _ })
    }

    fn let_time_pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.0.clock.advance(span);
        Box::pin(async {})
    }
}

fn main() -> ExitCode {
    run(vec![FixtureFactory::new("polling", || {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
        Ok(Box::new(Locks(Arc::new(Polling { clock, rows: Mutex::default() }))))
    })])
}
