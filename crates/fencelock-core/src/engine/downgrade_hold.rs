use super::{Context, HoldId, KeyEngine, Tenure};
use crate::{Downgrade, Fault, Moment, Renewal, RenewalPlan, Unknown};

/// A writer that becomes a reader: the request is repeated until it is answered, or the hold is over. It has no I/O.
///
/// The request may be executed although its reply is lost, so the hold counts as shared from the beginning.
#[derive(Debug, Clone, Hash)]
pub struct DowngradeHold {
    hold: HoldId,
    tenure: Tenure,
    renewal: Renewal,
    /// When the request without an answer was sent; `None` between two requests.
    sent: Option<Moment>,
}

/// What a driver does next for a [`DowngradeHold`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DowngradeNext {
    /// Send [`DowngradeHold::request`]. If there is no reply until this moment, abandon it, and call [`DowngradeHold::on_time`].
    Send(Moment),
    /// Wait until this moment, and call [`DowngradeHold::on_time`].
    Rest(Moment),
    /// It is a reader, with the token of this tenure.
    Done(Tenure),
    /// The backend refuses permanently.
    Refused(Unknown),
    /// The hold is over.
    Over,
}

impl DowngradeHold {
    /// Begins at `now`. The tenure of the writer ends, and no other task gets the lease. `None` if that tenure has ended already, or is
    /// not exclusive.
    pub fn begin<W: Default, L: Default>(
        hold: HoldId,
        tenure: Tenure,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> Option<(Self, DowngradeNext)> {
        let (tenure, renewal) = engine.downgrade(hold, tenure, cx)?;
        let mut this = Self { hold, tenure, renewal, sent: None };
        let next = this.send(cx.now);
        Some((this, next))
    }

    /// The tenure that reads. It has the token of the writer until the backend has answered.
    pub const fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// The request.
    pub const fn request(&self) -> &Renewal {
        &self.renewal
    }

    /// Whether it waits for a reply.
    pub const fn waits_for_reply(&self) -> bool {
        self.sent.is_some()
    }

    fn send(&mut self, now: Moment) -> DowngradeNext {
        self.sent = Some(now);
        DowngradeNext::Send(now + RenewalPlan::answer_limit(self.renewal.ttl.get()))
    }

    /// The moment of the last step has come.
    pub fn on_time<W: Default, L: Default>(
        &mut self,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> DowngradeNext {
        if !self.waits_for_reply() {
            return self.send(cx.now);
        }
        let text = "no reply to the downgrade within a fifth of the lease";
        self.answered(Err(Unknown::new(cx.config.backend.clone(), Fault::Timeout, text)), engine, cx)
    }

    /// The request was answered.
    pub fn answered<W: Default, L: Default>(
        &mut self,
        answer: Result<Downgrade, Unknown>,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> DowngradeNext {
        let Some(sent) = self.sent.take() else { return self.send(cx.now) };
        engine.downgrade_answered(self.hold, self.tenure, sent, answer, cx)
    }
}
