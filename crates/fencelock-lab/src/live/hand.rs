//! Serves one request after the other.

use super::account::Request;
use super::books::Books;
use super::job::{Job, Tally};
use super::library::Library;
use super::program::{PAUSE, Program};
use super::work::{Host, Outcome, Work};
use super::{NotRun, Story, Way};
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment, blocking};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A lock is dead if nobody at all came in for so long, however long holders may take.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Hand<'j> {
    requests: Vec<Request>,
    work: Work<'j>,
    door: Door,
    story: Story,
    patience: Duration,
    /// How long the other one of a pair is waited for.
    company: Duration,
    /// The other one of a pair has not come once, so nobody waits for it again.
    alone: bool,
    /// A hand of this process has found its only lock dead, or failed.
    over: &'j AtomicBool,
}

enum Door {
    Open,
    Program(Box<Program>),
    Library(Library),
}

impl<'j> Hand<'j> {
    pub(super) fn new(
        job: &'j Job,
        hand: u32,
        way: &Way,
        client: Option<blocking::Client>,
        (over, host): (&'j AtomicBool, &'j dyn Host),
    ) -> Result<Self, NotRun> {
        let load = &job.load;
        let longest = load.sleep.unwrap_or_default().max(load.work) + load.ttl;
        let patience = PATIENCE.max(longest * 4);
        // Where a process is killed, the others of its pairs never come.
        let company = if load.crash { PATIENCE / 4 } else { patience * 2 };
        let door = match (way, client) {
            (Way::Program(scheme), _) => Door::Program(Box::new(Program::new(scheme.clone(), job, hand)?)),
            (Way::Library { fenced }, Some(client)) => Door::Library(Library::new(client, job, *fenced, patience)),
            (Way::Open | Way::Library { .. }, _) => Door::Open,
        };
        let books = Books::open(job.connect()?, &job.prefix, way.is_fenced());
        let work = Work::new(job, books, over, host);
        let requests = load.requests_of(job.process, hand);
        Ok(Self { requests, work, door, story: load.story, patience, company, alone: false, over })
    }

    pub(super) fn serve(mut self) -> Result<Tally, NotRun> {
        let mut tally = Tally::default();
        for request in std::mem::take(&mut self.requests) {
            let served = self.meet(request).and_then(|()| self.request(request, &mut tally));
            if served.is_err() {
                // The others need not go on for a story that has failed.
                self.over.store(true, Ordering::Relaxed);
            }
            served?;
        }
        Ok(tally)
    }

    /// The two who want the same account's money begin together.
    fn meet(&mut self, request: Request) -> Result<(), NotRun> {
        if self.story == Story::Stock {
            return Ok(());
        }
        let begun = BootClock.now();
        let mut there = self.work.books.arrive(request.account, true)?;
        while there < 2 && !self.alone && !self.is_over() {
            self.alone = BootClock.now().since(begun) > self.company;
            std::thread::sleep(Duration::from_micros(500));
            there = self.work.books.arrive(request.account, false)?;
        }
        Ok(())
    }

    /// Asks until there is an answer, or until the lock is known to be dead.
    fn request(&mut self, request: Request, tally: &mut Tally) -> Result<(), NotRun> {
        let mut watch = Watch { since: BootClock.now(), entered: None };
        while !self.is_over() {
            match self.attempt(request)? {
                Outcome::Served => {
                    tally.answered += 1;
                    return Ok(());
                }
                Outcome::Busy => tally.busy += 1,
                Outcome::Refused => tally.refused += 1,
                Outcome::GivenUp => tally.given_up += 1,
            }
            if watch.finds_dead(&mut self.work.books, request.account, self.patience)? {
                // All requests of a sale wait for the same lock.
                self.over.fetch_or(self.story == Story::Stock, Ordering::Relaxed);
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn attempt(&mut self, request: Request) -> Result<Outcome, NotRun> {
        self.work.of(request);
        match &mut self.door {
            Door::Open => {
                self.work.begin(None, &mut || Ok(()))?;
                self.work.end()?;
                Ok(Outcome::Served)
            }
            Door::Program(program) => program.attempt(request.account, &mut self.work),
            Door::Library(library) => library.attempt(request.account, &mut self.work),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Looks whether anybody comes in.
struct Watch {
    since: Moment,
    /// How many had come in then, if that is known.
    entered: Option<i64>,
}

impl Watch {
    fn finds_dead(&mut self, books: &mut Books, account: u32, patience: Duration) -> Result<bool, NotRun> {
        let now = BootClock.now();
        if now.since(self.since) < patience {
            return Ok(false);
        }
        let entered = Some(books.entered(account)?);
        let is_dead = entered == self.entered;
        *self = Self { since: now, entered };
        Ok(is_dead)
    }
}
