//! Runs requests sequentially.

use super::job::{LiveJob, Tally};
use super::ledger::Ledger;
use super::library::{Library, SECOND_WAIT};
use super::program::{PAUSE, Program};
use super::request::Request;
use super::work::{AttemptResult, Host, Work};
use super::{LockMethodKind, NotRun, WorkloadKind};
use crate::load::Holds;
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment, blocking};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A lock is stalled if no client acquires it for this time.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct RequestWorker<'j> {
    requests: Vec<Request>,
    work: Work<'j>,
    method: LockMethod,
    workload: WorkloadKind,
    patience: Duration,
    /// How long to wait for the other request of a pair.
    partner_timeout: Duration,
    /// A partner has timed out once, so later requests do not wait for one.
    no_partner: bool,
    /// A worker of this process has found its only lock stalled, or has failed.
    over: &'j AtomicBool,
}

enum LockMethod {
    Open,
    Program(Box<Program>),
    Library(Library),
}

impl<'j> RequestWorker<'j> {
    pub(super) fn new(
        job: &'j LiveJob,
        worker: u32,
        way: &LockMethodKind,
        client: Option<blocking::Client>,
        shared: (&'j AtomicBool, &'j dyn Host, &'j Holds),
    ) -> Result<Self, NotRun> {
        let load = &job.load;
        let longest = load.sleep.unwrap_or_default().max(load.work) + load.ttl;
        let patience = STALL_TIMEOUT.max(longest * 4);
        // The partners of a killed process never arrive.
        let partner_timeout = if load.crash { STALL_TIMEOUT / 4 } else { patience * 2 };
        let method = match (way, client) {
            (LockMethodKind::Program(scheme), _) => {
                LockMethod::Program(Box::new(Program::new(scheme.clone(), job, worker)?))
            }
            (LockMethodKind::Library { fenced, one_by_one }, Some(client)) => {
                LockMethod::Library(Library::new(client, job, *fenced, *one_by_one, patience))
            }
            (LockMethodKind::Open | LockMethodKind::Library { .. }, _) => LockMethod::Open,
        };
        let ledger = Ledger::open(job.connect()?, &job.prefix, way.is_fenced());
        let work = Work::new(job, ledger, shared);
        let (requests, over) = (load.requests_of(job.process, worker), shared.0);
        Ok(Self { requests, work, method, workload: load.workload, patience, partner_timeout, no_partner: false, over })
    }

    pub(super) fn serve(mut self) -> Result<Tally, NotRun> {
        let mut tally = Tally::default();
        for request in std::mem::take(&mut self.requests) {
            let served = self.wait_for_partner(request).and_then(|()| self.request(request, &mut tally));
            if served.is_err() {
                // The workload has failed, so stop the other workers.
                self.over.store(true, Ordering::Relaxed);
            }
            served?;
        }
        tally.torn = self.work.torn;
        Ok(tally)
    }

    /// Waits for the other request to the same account, so that both start together.
    fn wait_for_partner(&mut self, request: Request) -> Result<(), NotRun> {
        if self.workload.has_one_lock() {
            return Ok(());
        }
        let begun = BootClock.now();
        let mut there = self.work.ledger.arrive(request.pair(), true)?;
        while there < 2 && !self.no_partner && !self.is_over() {
            self.no_partner = BootClock.now().since(begun) > self.partner_timeout;
            std::thread::sleep(Duration::from_micros(500));
            there = self.work.ledger.arrive(request.pair(), false)?;
        }
        Ok(())
    }

    /// Retries until the request is served, or the lock is stalled.
    fn request(&mut self, request: Request, tally: &mut Tally) -> Result<(), NotRun> {
        let mut detector = StallDetector { since: BootClock.now(), entered: None };
        while !self.is_over() {
            let mut pause = PAUSE;
            match self.attempt(request)? {
                AttemptResult::Served => {
                    tally.answered += 1;
                    return Ok(());
                }
                AttemptResult::Busy => tally.busy += 1,
                AttemptResult::Refused => tally.refused += 1,
                AttemptResult::GivenUp => tally.given_up += 1,
                AttemptResult::Deadlock => {
                    tally.deadlocks += 1;
                    // Without a random pause, both would lock their own accounts again at the same time.
                    pause += SECOND_WAIT.mul_f64(fastrand::f64());
                }
            }
            if detector.is_stalled(&mut self.work.ledger, request.pair(), self.patience)? {
                // All requests of a sale or of a pool wait for the same lock.
                self.over.fetch_or(self.workload.has_one_lock(), Ordering::Relaxed);
                return Ok(());
            }
            std::thread::sleep(pause);
        }
        Ok(())
    }

    fn attempt(&mut self, request: Request) -> Result<AttemptResult, NotRun> {
        self.work.of(request);
        match &mut self.method {
            LockMethod::Open => {
                self.work.begin(&[], &mut || Ok(()))?;
                self.work.end()?;
                Ok(AttemptResult::Served)
            }
            LockMethod::Program(program) => program.attempt(request.account, &mut self.work),
            LockMethod::Library(library) => library.attempt(request, &mut self.work),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Detects a lock that no client acquires any more.
struct StallDetector {
    since: Moment,
    /// The number of entries at that time, if known.
    entered: Option<i64>,
}

impl StallDetector {
    fn is_stalled(&mut self, ledger: &mut Ledger, account: u32, patience: Duration) -> Result<bool, NotRun> {
        let now = BootClock.now();
        if now.since(self.since) < patience {
            return Ok(false);
        }
        let entered = Some(ledger.entered(account)?);
        let is_dead = entered == self.entered;
        *self = Self { since: now, entered };
        Ok(is_dead)
    }
}
