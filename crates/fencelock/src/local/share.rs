//! For how long a lease goes from task to task.

use super::limits::{BLIND_SPAN, LONGEST_SPAN, Limits, QUESTION};
use crate::hold::Hold;
use fencelock_core::{FencingToken, Moment, TokenBlock};
use std::sync::Arc;

/// A lease of this client that its tasks may share.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) hold: Arc<Hold>,
    next: u64,
    last: u64,
    granted: Moment,
    /// When it was passed on for the first time.
    began: Option<Moment>,
    /// Since somebody else is known to wait: how many more grants, and until when.
    bound: Option<(u32, Moment)>,
    /// When the server is to be asked again whether anybody waits.
    question: Moment,
    /// Nobody has it at the moment.
    pub(crate) idle: bool,
}

/// What stands in the way of passing a lease on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// There is no token left.
    Tokens,
    /// It is the turn of others.
    Others,
}

impl Share {
    /// The first of `tokens` is in use. With `company`, others waited when this client had a lease before.
    pub(crate) fn new(hold: Arc<Hold>, tokens: TokenBlock, granted: Moment, company: bool, limits: Limits) -> Self {
        Self {
            hold,
            next: tokens.first().get() + 1,
            last: tokens.last().get(),
            granted,
            began: None,
            bound: company.then(|| (limits.batch, granted + limits.batch_span)),
            question: Moment::default(),
            idle: false,
        }
    }

    /// The token of the next turn, if there may be one.
    pub(crate) fn next(&self, now: Moment, queues: bool) -> Result<FencingToken, Obstacle> {
        let (since, span) = if queues { (self.began, LONGEST_SPAN) } else { (Some(self.granted), BLIND_SPAN) };
        let over = since.is_some_and(|since| now.since(since) >= span);
        if over || self.bound.is_some_and(|(left, until)| left == 0 || now >= until) {
            return Err(Obstacle::Others);
        }
        if self.is_used_up() {
            return Err(Obstacle::Tokens);
        }
        FencingToken::new(self.next).map_err(|_| Obstacle::Tokens)
    }

    /// The next turn has begun. Says whether it is time to ask if anybody else waits.
    pub(crate) fn passed(&mut self, now: Moment, queues: bool) -> bool {
        self.next += 1;
        self.idle = false;
        self.began.get_or_insert(now);
        if let Some((left, _)) = &mut self.bound {
            *left = left.saturating_sub(1);
        }
        let ask = queues && now >= self.question;
        if ask {
            self.question = now + QUESTION;
        }
        ask
    }

    /// The server says how many others wait.
    pub(crate) fn told(&mut self, others: u32, now: Moment, limits: Limits) {
        match others {
            0 => self.bound = None,
            _ => _ = self.bound.get_or_insert((limits.batch, now + limits.batch_span)),
        }
    }

    /// Whether another turn is possible, as far as it depends on the turns before.
    pub(crate) const fn has_more(&self) -> bool {
        !self.is_used_up() && !matches!(self.bound, Some((0, _)))
    }

    /// Whether there is no token left for another turn.
    pub(crate) const fn is_used_up(&self) -> bool {
        self.next > self.last
    }

    /// Whether somebody else is known to wait.
    pub(crate) const fn company(&self) -> bool {
        self.bound.is_some()
    }
}
