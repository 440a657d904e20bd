use crate::engine::Config;
use crate::engine::config::LONGEST_IDLE;
use crate::{FencingToken, Moment, TokenBlock};
use std::time::Duration;

/// The interval at which the client checks on the server whether another client waits, while tasks share a lease.
const QUESTION: Duration = Duration::from_millis(5);

/// A lease that is passed from task to task, and for how long.
#[derive(Debug, Clone, Hash)]
pub(crate) struct TaskLease {
    next: u64,
    last: u64,
    /// When tasks of this client began to share the key, including the leases just before this one.
    began: Option<Moment>,
    /// The remaining grants and the end of the batch, once another client waits or may wait.
    bound: Option<(u32, Moment)>,
    /// When to check on the server again whether another client waits.
    question: Moment,
    /// The backend will announce the next waiter of another client.
    announced: bool,
}

/// What the end of one task lease means for the next lease of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LeaseHistory {
    /// Another client waited when it was released.
    others_waited: bool,
    /// When sharing of the key began; [`Moment::NEVER`] if a new lease does not continue it.
    began: Moment,
    /// A lease that begins until then continues it.
    until: Moment,
}

impl Default for LeaseHistory {
    fn default() -> Self {
        Self { others_waited: false, began: Moment::NEVER, until: Moment::default() }
    }
}

impl LeaseHistory {
    /// Until when a new lease may continue it.
    pub(crate) fn continues_until(self) -> Moment {
        if self.began == Moment::NEVER { Moment::default() } else { self.until }
    }
}

impl TaskLease {
    /// Creates a lease whose first task uses the first of `tokens`.
    pub(crate) fn new(tokens: TokenBlock, granted: Moment, history: LeaseHistory, config: &Config) -> Self {
        let queues = config.capabilities.queues;
        let (grants, span) = config.limits().batch(&config.capabilities);
        let goes_on = history.began != Moment::NEVER && granted <= history.until;
        Self {
            next: tokens.first().get() + 1,
            last: tokens.last().get(),
            began: goes_on.then_some(history.began),
            bound: (history.others_waited || !queues).then(|| (grants, granted + span)),
            question: Moment::default(),
            announced: false,
        }
    }

    /// The token of the next tenure, if another tenure is possible.
    pub(crate) fn next(&self, config: &Config, now: Moment) -> Option<FencingToken> {
        let over = self.is_used_up() || self.is_over(config, now);
        if over { None } else { FencingToken::new(self.next).ok() }
    }

    /// The token of a reader that joins; `None` if none may join. Readers need no order, so those that come after the
    /// last token of the block share it.
    pub(crate) fn next_reader(&self, now: Moment) -> Option<FencingToken> {
        if self.is_batch_over(now) { None } else { FencingToken::new(self.next.min(self.last)).ok() }
    }

    /// Starts the next tenure. Returns whether it is time to check if another client waits.
    pub(crate) fn passed(&mut self, config: &Config, now: Moment) -> bool {
        self.next += 1;
        self.began.get_or_insert(now);
        if let Some((left, _)) = &mut self.bound {
            *left = left.saturating_sub(1);
        }
        let due = config.capabilities.queues && !self.announced && now >= self.question;
        if due {
            self.question = now + QUESTION;
        }
        due
    }

    /// The lease becomes idle at `since`. Returns whether to check at once if another client waits.
    pub(crate) fn begin_idle(&mut self, since: Moment) -> bool {
        self.began.get_or_insert(since);
        !self.announced
    }

    /// When a lease that is idle since `since` is released. After at most a stretch it leaves the key to clients that
    /// only poll, like a lease that tasks share.
    pub(crate) fn idle_until(&self, since: Moment, config: &Config) -> Moment {
        let limits = config.limits();
        let longest = if self.announced { limits.idle_timeout } else { limits.idle_timeout.min(LONGEST_IDLE) };
        (since + longest).min(self.began.unwrap_or(since) + limits.stretch)
    }

    /// Another lease of the same client checks for waiters on behalf of this lease too.
    pub(crate) const fn inspect_with(&mut self, other: &Self) {
        (self.question, self.announced) = (other.question, other.announced);
    }

    /// The backend may not announce the next waiter: it has announced one, or events may have been lost.
    pub(crate) fn unannounced(&mut self) {
        self.announced = false;
    }

    /// The server reports the number of other waiting clients. A backend without a queue reports nothing.
    pub(crate) fn on_waiters(&mut self, others: u32, announced: bool, config: &Config, now: Moment) {
        let queues = config.capabilities.queues;
        let (grants, span) = config.limits().batch(&config.capabilities);
        self.announced = others == 0 && announced;
        match others {
            _ if !queues => {}
            0 => self.bound = None,
            _ => _ = self.bound.get_or_insert((grants, now + span)),
        }
    }

    /// Whether the batch allows another tenure.
    pub(crate) const fn has_more(&self) -> bool {
        !self.is_used_up() && !matches!(self.bound, Some((0, _)))
    }

    /// Whether there is no token left for another tenure.
    pub(crate) const fn is_used_up(&self) -> bool {
        self.next > self.last
    }

    /// Whether another client is known to wait.
    pub(crate) const fn others_wait(&self, config: &Config) -> bool {
        config.capabilities.queues && self.bound.is_some()
    }

    /// Whether the key must be left free for a moment after this tenure, for clients that only poll, which are
    /// invisible here. Until then, no task of this client may wait at the backend.
    pub(crate) fn yields(&self, config: &Config, now: Moment) -> bool {
        let queues = config.capabilities.queues;
        self.is_over(config, now) && !self.others_wait(config) && !(queues && config.limits().pause.is_zero())
    }

    /// Ends the task lease. `queued` says whether a task of this client already waits at the backend.
    pub(crate) fn ended(&self, queued: bool, config: &Config, now: Moment) -> LeaseHistory {
        let others_waited = self.others_wait(config);
        // After a longer time another client may have had the key, or it was free. If it was handed to a waiting task
        // of this client, it was not free, but the hand-off may take a round trip.
        let until = now + if queued { config.limits().stretch } else { config.limits().pause };
        let goes_on = !others_waited && !self.yields(config, now);
        let began = self.began.filter(|_| goes_on).unwrap_or(Moment::NEVER);
        LeaseHistory { others_waited, began, until }
    }

    fn is_over(&self, config: &Config, now: Moment) -> bool {
        let long =
            config.capabilities.queues && self.began.is_some_and(|began| now.since(began) >= config.limits().stretch);
        long || self.is_batch_over(now)
    }

    fn is_batch_over(&self, now: Moment) -> bool {
        self.bound.is_some_and(|(left, until)| left == 0 || now >= until)
    }
}
