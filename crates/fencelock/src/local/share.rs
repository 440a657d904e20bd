//! For how long a lease goes from task to task.

use super::limits::{Limits, QUESTION};
use crate::hold::Hold;
use fencelock_core::{FencingToken, Moment, TokenBlock};
use std::sync::Arc;

/// A lease of this client that its tasks may share.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) hold: Arc<Hold>,
    next: u64,
    last: u64,
    /// The client's own, for very many leases would have as many copies.
    limits: Arc<Limits>,
    /// Whether the place tells how many wait.
    queues: bool,
    /// Since when tasks of this client have passed the key on, with this lease and those just before it.
    began: Option<Moment>,
    /// Since somebody else is known to wait, or may: how many more grants, and until when.
    bound: Option<(u32, Moment)>,
    /// When the server is to be asked again whether anybody waits.
    question: Moment,
    /// Nobody has it at the moment.
    pub(crate) idle: bool,
}

/// What one lease of a room leaves to the next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Past {
    /// Others waited when it went back.
    company: bool,
    /// Since when the key was passed on, and until when it may come back for that to go on.
    stretch: Option<(Moment, Moment)>,
}

impl Share {
    /// The first of `tokens` is in use.
    pub(crate) fn new(
        hold: Arc<Hold>,
        tokens: TokenBlock,
        granted: Moment,
        past: Past,
        limits: &Arc<Limits>,
        queues: bool,
    ) -> Self {
        let (grants, span) = limits.batch(queues);
        let recent = |(_, until): &(Moment, Moment)| granted <= *until;
        Self {
            hold,
            next: tokens.first().get() + 1,
            last: tokens.last().get(),
            limits: Arc::clone(limits),
            queues,
            began: past.stretch.filter(recent).map(|(began, _)| began),
            bound: (past.company || !queues).then(|| (grants, granted + span)),
            question: Moment::default(),
            idle: false,
        }
    }

    /// The token of the next turn, if there may be one.
    pub(crate) fn next(&self, now: Moment) -> Option<FencingToken> {
        let over = self.is_used_up() || self.is_over(now);
        if over { None } else { FencingToken::new(self.next).ok() }
    }

    /// The next turn has begun. Says whether it is time to ask if anybody else waits.
    pub(crate) fn passed(&mut self, now: Moment) -> bool {
        self.next += 1;
        self.idle = false;
        self.began.get_or_insert(now);
        if let Some((left, _)) = &mut self.bound {
            *left = left.saturating_sub(1);
        }
        let ask = self.queues && now >= self.question;
        if ask {
            self.question = now + QUESTION;
        }
        ask
    }

    /// The server says how many others wait. Where there is no line, it says nothing.
    pub(crate) fn told(&mut self, others: u32, now: Moment) {
        let (grants, span) = self.limits.batch(self.queues);
        match others {
            _ if !self.queues => {}
            0 => self.bound = None,
            _ => _ = self.bound.get_or_insert((grants, now + span)),
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
        self.queues && self.bound.is_some()
    }

    /// Whether the key must be free for a moment after this turn: others may wait for it of whom nobody knows. Then nobody
    /// here may line up before that.
    pub(crate) fn gives_way(&self, now: Moment) -> bool {
        self.is_over(now) && !self.company() && !(self.queues && self.limits.pause.is_zero())
    }

    /// It goes back now. `ahead` says whether somebody of this room stands in line at the place already.
    pub(crate) fn ended(self, now: Moment, ahead: bool) -> Past {
        let company = self.company();
        // After a longer while it was somebody else's, or free for all. But it was not free if it was handed to one in line,
        // though that takes as long as the way to the place and back.
        let until = now + if ahead { self.limits.stretch } else { self.limits.pause };
        Past { company, stretch: self.began.filter(|_| !company && !self.gives_way(now)).map(|began| (began, until)) }
    }

    fn is_over(&self, now: Moment) -> bool {
        let long = self.queues && self.began.is_some_and(|began| now.since(began) >= self.limits.stretch);
        long || self.bound.is_some_and(|(left, until)| left == 0 || now >= until)
    }
}
