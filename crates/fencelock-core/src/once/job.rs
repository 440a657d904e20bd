use super::judge::{CountedSuccess, Doubt, Judgement, judge};
use super::{Completion, CompletionRead, Window, WriteCompletion};
use crate::{FencingToken, Owner};

/// When a run counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Runs {
    /// When it succeeds: a window has at most one success, and a failure leaves the window open.
    #[default]
    Succeed,
    /// When it starts: a window has at most one start.
    Start,
}

/// One attempt to do the work of a window.
///
/// It has no clock and sends nothing. A driver carries out its [`OnceStep`] and reports the result. The rules:
///
/// - A completion is read before the lock is acquired, which saves the lock, and again under the lock, which decides.
/// - The window is the one of the read under the lock. A run that ends in a later window still completes its own.
/// - The completion is written while the lock is held, and before it is released. A backend refuses the write of a client that
///   does not hold the lock.
/// - A completion that was read is confirmed before the work counts as done: on a quorum, it may be on too few nodes, and its run may
///   have named a shorter window, so that a backend would forget it within the window of this caller.
/// - With [`Runs::Start`] it is written before the run. If it is unknown whether it was written, nothing is run.
/// - A run counts only if its lock was held when the write was confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OnceJob {
    window: Window,
    runs: Runs,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Reading,
    Acquiring,
    ReadingAgain(Run),
    Writing(Completion),
    Running(Completion),
    Finished(Completion),
    Confirming(CountedSuccess),
    Over(Option<Completion>, OnceStep),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Run {
    token: FencingToken,
    owner: Owner,
}

/// What a driver has to do. Exhaustive: it must carry out each step, so a new one must break its build.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OnceStep {
    /// Read the completion.
    Read,
    /// Acquire the lock.
    Acquire,
    /// Write this completion, for as long as the lock is held.
    Write(Completion),
    /// Run the work.
    Run,
    /// The work is done already. Confirm the completion, so that no later read before the end of the window misses it.
    Confirm(CountedSuccess),
    /// The run counts. Release the lock.
    Done,
    /// The work is done already. Release the lock if it is held.
    AlreadyDone(CountedSuccess),
    /// The run does not count. Release the lock if it is held.
    GiveUp,
}

impl OnceJob {
    /// An attempt that has not started.
    pub const fn new(window: Window, runs: Runs) -> Self {
        Self { window, runs, state: State::Reading }
    }

    /// What to do now.
    pub fn step(&self) -> OnceStep {
        match &self.state {
            State::Reading | State::ReadingAgain(_) => OnceStep::Read,
            State::Acquiring => OnceStep::Acquire,
            State::Writing(completion) | State::Finished(completion) => OnceStep::Write(completion.clone()),
            State::Running(_) => OnceStep::Run,
            State::Confirming(done) => OnceStep::Confirm(done.clone()),
            State::Over(_, step) => step.clone(),
        }
    }

    /// The completion of this run, once its window is known.
    pub const fn completion(&self) -> Option<&Completion> {
        match &self.state {
            State::Writing(completion) | State::Running(completion) | State::Finished(completion) => Some(completion),
            State::Over(completion, _) => completion.as_ref(),
            State::Reading | State::Acquiring | State::ReadingAgain(_) | State::Confirming(_) => None,
        }
    }

    /// The reply to a read. Returns what the user should know about it.
    pub fn on_read(&mut self, read: &CompletionRead) -> Option<Doubt> {
        let Judgement { done, doubt } = judge(Some(self.window), read);
        let state = std::mem::replace(&mut self.state, State::Acquiring);
        self.state = match (done, state) {
            (Some(done), _) => State::Confirming(done),
            (None, State::ReadingAgain(Run { token, owner })) => {
                let now = read.now_micros;
                let completion = Completion::new(self.window.end_of(now), token, now, owner);
                match self.runs {
                    Runs::Start => State::Writing(completion),
                    Runs::Succeed => State::Running(completion),
                }
            }
            (None, _) => State::Acquiring,
        };
        doubt
    }

    /// The first read, or the confirmation of what it found, had no reply. The read under the lock decides anyway.
    pub fn on_unread(&mut self) {
        self.state = match self.state {
            State::Reading | State::Confirming(_) => State::Acquiring,
            _ => self.given_up(),
        };
    }

    /// The completion is confirmed.
    pub fn on_confirmed(&mut self) {
        if let State::Confirming(done) = &self.state {
            self.state = State::Over(None, OnceStep::AlreadyDone(done.clone()));
        }
    }

    /// The lock is acquired, with this token.
    pub fn on_acquired(&mut self, token: FencingToken, owner: Owner) {
        self.state = State::ReadingAgain(Run { token, owner });
    }

    /// The reply to the write. `held` is whether the lock was held when the reply arrived.
    pub fn on_written(&mut self, reply: WriteCompletion, held: bool) {
        let written = reply == WriteCompletion::Written && held;
        self.state = match std::mem::replace(&mut self.state, State::Acquiring) {
            State::Writing(completion) if written => State::Running(completion),
            State::Finished(completion) if written => State::Over(Some(completion), OnceStep::Done),
            state => {
                self.state = state;
                self.given_up()
            }
        };
    }

    /// The work succeeded.
    pub fn on_success(&mut self) {
        if let State::Running(completion) = &self.state {
            let completion = completion.clone();
            self.state = match self.runs {
                Runs::Start => State::Over(Some(completion), OnceStep::Done),
                Runs::Succeed => State::Finished(completion),
            };
        }
    }

    /// The work failed, the lock was refused or lost, or a reply stays unknown.
    pub fn on_failure(&mut self) {
        self.state = self.given_up();
    }

    fn given_up(&self) -> State {
        State::Over(self.completion().cloned(), OnceStep::GiveUp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOUR: u64 = 3_600_000_000;

    fn job(runs: Runs) -> OnceJob {
        OnceJob::new(Window::new(Duration::from_secs(3600)).unwrap(), runs)
    }

    fn token() -> FencingToken {
        FencingToken::new(7).unwrap()
    }

    fn owner() -> Owner {
        Owner::from_text("web-1:42")
    }

    /// Of a run that got the lock at this moment.
    fn completion(granted: u64) -> Completion {
        Completion::new((granted / HOUR + 1) * HOUR, token(), granted, owner())
    }

    fn read(granted: Option<u64>, now: u64) -> CompletionRead {
        CompletionRead::new(granted.map(completion), now)
    }

    fn done(granted: u64) -> CountedSuccess {
        CountedSuccess { completion: completion(granted), until_micros: HOUR }
    }

    fn under_the_lock(runs: Runs) -> OnceJob {
        let mut job = job(runs);
        job.on_read(&read(None, 5));
        assert_eq!(job.step(), OnceStep::Acquire);
        job.on_acquired(token(), owner());
        assert_eq!(job.step(), OnceStep::Read, "the first read was before the lock");
        job
    }

    #[test]
    fn work_that_is_done_needs_no_lock() {
        let mut job = job(Runs::Succeed);
        assert_eq!(job.step(), OnceStep::Read);
        job.on_read(&read(Some(5), HOUR - 1));
        assert_eq!(job.step(), OnceStep::Confirm(done(5)));
        job.on_confirmed();
        assert_eq!(job.step(), OnceStep::AlreadyDone(done(5)));
    }

    #[test]
    fn work_that_was_done_while_the_lock_was_waited_for_is_not_repeated() {
        let mut job = under_the_lock(Runs::Succeed);
        job.on_read(&read(Some(5), 9));
        job.on_confirmed();
        assert_eq!(job.step(), OnceStep::AlreadyDone(done(5)));
    }

    #[test]
    fn a_success_is_written_before_it_counts() {
        let mut job = under_the_lock(Runs::Succeed);
        job.on_read(&read(Some(5), HOUR));
        assert_eq!(job.step(), OnceStep::Run, "that window is over");
        job.on_success();
        assert_eq!(job.step(), OnceStep::Write(completion(HOUR)));
        job.on_written(WriteCompletion::Written, true);
        assert_eq!(job.step(), OnceStep::Done);
    }

    #[test]
    fn a_start_is_written_before_the_run() {
        let mut job = under_the_lock(Runs::Start);
        job.on_read(&read(None, 5));
        assert_eq!(job.step(), OnceStep::Write(completion(5)));
        job.on_written(WriteCompletion::Written, true);
        assert_eq!(job.step(), OnceStep::Run);
        job.on_success();
        assert_eq!(job.step(), OnceStep::Done);
    }

    #[test]
    fn a_write_that_is_refused_unknown_or_late_does_not_count() {
        for runs in [Runs::Succeed, Runs::Start] {
            for (reply, held) in [(WriteCompletion::NotHeld, true), (WriteCompletion::Written, false)] {
                let mut job = under_the_lock(runs);
                job.on_read(&read(None, 5));
                job.on_success();
                job.on_written(reply, held);
                assert_eq!(job.step(), OnceStep::GiveUp, "{runs:?} {reply:?} {held}");
            }
            let mut job = under_the_lock(runs);
            job.on_unread();
            assert_eq!(job.step(), OnceStep::GiveUp, "the read under the lock decides");
        }
    }

    #[test]
    fn the_first_read_may_fail() {
        let mut job = job(Runs::Start);
        job.on_unread();
        assert_eq!(job.step(), OnceStep::Acquire);
        let mut job = OnceJob::new(Window::new(Duration::from_secs(3600)).unwrap(), Runs::Succeed);
        job.on_read(&read(Some(5), 9));
        job.on_unread();
        assert_eq!(job.step(), OnceStep::Acquire, "what was found is not confirmed");
    }

    #[test]
    fn a_failure_writes_nothing() {
        let mut job = under_the_lock(Runs::Succeed);
        job.on_read(&read(None, 5));
        job.on_failure();
        assert_eq!(job.step(), OnceStep::GiveUp);
        job.on_success();
        assert_eq!(job.step(), OnceStep::GiveUp);
    }
}
