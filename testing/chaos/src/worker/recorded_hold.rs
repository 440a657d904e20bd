use crate::Failure;
use crate::history::{HistoryLine, Op, Outcome, SUPERSEDED_BY, SlotOf};
use crate::recorder::{Recorder, assumed_lease, micros};
use crate::resource::{AccessKind, Writer, Written};
use fencelock::{Client, Error, FencingToken, Guard, Held, HolderId, LossReason, Mode};
use std::sync::Arc;
use std::time::Duration;

/// A held lock, and the data to record about it.
#[derive(Debug)]
pub(crate) struct RecordedHold {
    pub(crate) client: String,
    pub(crate) key: String,
    pub(crate) holder: String,
    pub(crate) fence: FencingToken,
    pub(crate) mode: Mode,
    pub(crate) until_us: u64,
    pub(crate) ttl: Duration,
    pub(crate) recorder: Arc<Recorder>,
}

/// Who claims a lock, since when, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) client: &'a str,
    pub(crate) invoke_us: u64,
    pub(crate) ttl: Duration,
    pub(crate) recorder: &'a Arc<Recorder>,
}

impl RecordedHold {
    /// Records the acquisition. The end of the lease is computed from a time *before* the request: a
    /// process that is paused in between must not assume a longer lease than the library does.
    pub(crate) fn take(guard: &Guard, claim: &Claim<'_>, slot: Option<SlotOf>) -> Self {
        let (hold, mut line) = Self::begin(Op::Acquire, &guard.held(), guard.holder().to_string(), claim);
        line.slot = slot;
        hold.recorder.note(&line);
        hold.observe_sharing();
        hold
    }

    /// Records an election. A leader does not show its holder id, and its value is unique.
    pub(super) fn elected(term: &Held, value: &str, claim: &Claim<'_>) -> Self {
        let (hold, mut line) = Self::begin(Op::Acquire, term, value.to_owned(), claim);
        line.value = Some(value.to_owned());
        hold.recorder.note(&line);
        hold
    }

    pub(super) fn observe_sharing(&self) {
        if self.mode == Mode::Exclusive && self.recorder.is_again(&self.key, &self.holder) {
            self.recorder.seen("a lease passed on within a process");
        }
    }

    /// A hold, and the line to record.
    pub(super) fn begin(op: Op, granted: &Held, holder: String, claim: &Claim<'_>) -> (Self, HistoryLine) {
        let Claim { client, invoke_us, ttl, recorder } = *claim;
        let at = recorder.now();
        let until_us = at.saturating_add(recorder.lasts(granted.remaining()));
        let hold = Self {
            client: client.to_owned(),
            key: granted.key().to_string(),
            holder,
            fence: granted.fencing_token(),
            mode: granted.mode(),
            until_us,
            ttl,
            recorder: Arc::clone(recorder),
        };
        let mut line = hold.line(op, invoke_us, at).mode(hold.mode);
        line.valid_until_us = Some(until_us);
        line.ttl_us = Some(micros(ttl));
        (hold, line)
    }

    /// Downgrades the hold, which counts as shared from the request on. `None` if the lock was lost.
    pub(crate) async fn downgrade(self, guard: Guard) -> Option<(Guard, Self)> {
        let invoke_us = self.begin_release();
        match guard.downgrade().await {
            Ok(guard) => {
                let claim = Claim { client: &self.client, invoke_us, ttl: self.ttl, recorder: &self.recorder };
                let (hold, line) = Self::begin(Op::Downgrade, &guard.held(), guard.holder().to_string(), &claim);
                self.recorder.note(&line);
                self.recorder.seen("a downgrade");
                Some((guard, hold))
            }
            Err(error) => {
                let line = self.line(Op::Downgrade, invoke_us, self.recorder.now()).mode(Mode::Shared);
                self.recorder.note(&line.result(Outcome::Info).what(format!("{error:#}")));
                if let Error::Lost { reason, .. } = &error {
                    self.lost(reason);
                }
                None
            }
        }
    }

    pub(super) fn line(&self, op: Op, invoke_us: u64, return_us: u64) -> HistoryLine {
        HistoryLine::new(&self.client, &self.key, op, invoke_us, return_us).hold(&self.holder, Some(self.fence.get()))
    }

    /// Checks whether the watchdog has renewed the lease. The new end shows when the renewal was requested.
    pub(crate) fn record_renewal(&mut self, held: &Held) {
        let at = self.recorder.now();
        let left = held.remaining();
        let until_us = at.saturating_add(self.recorder.lasts(left));
        // The time between the two lines above is less than a millisecond.
        if left.is_zero() || until_us < self.until_us + 1000 {
            return;
        }
        self.until_us = until_us;
        let mut line = self.line(Op::Renew, until_us.saturating_sub(self.recorder.lasts(assumed_lease(self.ttl))), at);
        line.valid_until_us = Some(until_us);
        self.recorder.note(&line);
        self.recorder.seen("renewed by the watchdog");
    }

    /// Renews, and waits for the confirmation.
    pub(crate) async fn renew(&self, client: &Client, id: HolderId) {
        let invoke_us = self.recorder.now();
        let answer = client.renew(&self.key, id, self.ttl).await;
        let line = self.line(Op::Renew, invoke_us, self.recorder.now());
        let line = match &answer {
            Ok(_) => line,
            Err(error @ Error::Lost { .. }) => line.result(Outcome::Fail).what(error.to_string()),
            Err(error) => line.result(Outcome::Info).what(format!("{error:#}")),
        };
        self.recorder.note(&line);
    }

    /// Writes to the resource, or reads from it, whether or not the lock is held: the resource decides. The tokens of
    /// permits do not protect a resource.
    pub(crate) async fn access(&self, writer: &mut Writer) -> Result<(), Failure> {
        let (access, op) = match self.mode {
            Mode::Exclusive => (AccessKind::Write, Op::Write),
            Mode::Shared => (AccessKind::Read, Op::Read),
            _ => return Ok(()),
        };
        let invoke_us = self.recorder.now();
        let written = writer.access(&self.key, access, self.fence).await;
        let mut line = self.line(op, invoke_us, self.recorder.now());
        match written {
            Ok(Written::Taken(seq)) => line.seq = Some(seq),
            Ok(Written::Refused(greatest)) => {
                line = line.result(Outcome::Fail).what(format!("{SUPERSEDED_BY}{greatest}"));
                self.recorder.seen(if access == AccessKind::Read {
                    "a read was refused"
                } else {
                    "a write was refused"
                });
            }
            Err(error) => {
                self.recorder.note(&line.result(Outcome::Info));
                return Err(error);
            }
        }
        self.recorder.note(&line);
        Ok(())
    }

    pub(super) fn note_loss(&self, why: &LossReason) {
        let at = self.recorder.now();
        self.recorder.note(&self.line(Op::Lost, at, at).what(why.to_string()));
    }

    pub(crate) fn lost(&self, why: &LossReason) {
        self.note_loss(why);
        self.recorder.seen(match why {
            LossReason::Expired => "lost by expiry",
            LossReason::Deleted => "lost by deletion",
            LossReason::TakenBy(_) => "lost to another",
            LossReason::MaxHold => "lost at the longest hold",
            _ => "lost otherwise",
        });
    }

    /// Records the end of the assumed hold, before another client can acquire the lock.
    pub(super) fn begin_release(&self) -> u64 {
        let at = self.recorder.now();
        self.recorder.note(&self.line(Op::Yield, at, at));
        at
    }

    /// Releases the lock.
    pub(crate) async fn release(&self, guard: Guard) {
        self.end(guard.release()).await;
    }

    /// Ends the hold by this request.
    pub(crate) async fn end(&self, request: impl Future<Output = Result<(), Error>>) {
        let invoke_us = self.begin_release();
        let answer = request.await;
        let line = self.line(Op::Release, invoke_us, self.recorder.now());
        self.recorder.note(&match &answer {
            Ok(()) => line,
            Err(Error::Lost { reason, .. }) => line.result(Outcome::Fail).what(reason.to_string()),
            Err(error) => line.result(Outcome::Info).what(format!("{error:#}")),
        });
        match answer {
            Err(Error::Lost { reason, .. }) => self.lost(&reason),
            Err(Error::Unreachable { .. }) => self.recorder.seen("unreachable"),
            _ => {}
        }
    }

    /// Drops the guard of the lock or the leadership, so that the lock is released in the background.
    pub(crate) fn drop<G>(&self, guard: G) {
        let invoke_us = self.begin_release();
        drop(guard);
        self.recorder
            .note(&self.line(Op::Release, invoke_us, self.recorder.now()).result(Outcome::Info).what("dropped"));
    }
}
