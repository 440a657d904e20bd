use super::acquire_key::{KeyReply, KeyRequest};
use super::{AcquireRequest, Config, Context, Grant, KeyEngine};
use crate::{Acquire, Claim, Holder, HolderId, Holding, Intent, Key, Lease, Mode, Modes, Moment, TokenBlock, Unknown};
use std::time::Duration;

/// Continues a hold by the proof of its holder: a claim of that holder id renews it, and an inspection tells its mode.
///
/// As [`super::AcquireKey`], it has no I/O.
#[derive(Debug, Clone, Hash)]
pub struct ResumeKey {
    holder: HolderId,
    request: AcquireRequest,
    called: Moment,
    granted: Option<(TokenBlock, Lease)>,
}

/// What a driver does next to resume a hold.
#[derive(Debug, Clone)]
pub enum ResumeNext {
    /// Send this request, and wait for its reply: [`ResumeKey::answered`].
    Send(KeyRequest),
    /// Call [`ResumeKey::begin`] with the engine for tasks of this mode.
    Begin(Mode),
    /// It cannot be resumed.
    Failed(ResumeFailure),
}

/// Why a hold is not resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumeFailure {
    /// It has ended.
    Ended,
    /// The claim was not answered for this time.
    Unconfirmed(Unknown, Duration),
    /// The inspection was not answered.
    Unreachable(Unknown),
    /// The key is in use in this mode, which the requested one never fits.
    Conflict(Mode),
    /// The hold has this mode, and another one was requested.
    OtherMode(Mode),
}

impl ResumeKey {
    /// The hold of this holder, requested at `now`, and the first step.
    pub fn new(key: Key, holder: HolderId, request: AcquireRequest, now: Moment) -> (Self, ResumeNext) {
        let proof = Holder { id: holder, owner: request.owner.clone() };
        let claim = Claim::new(key, proof, request.ttl, Intent::Poll).with_mode(request.mode);
        let this = Self { holder, request, called: now, granted: None };
        (this, ResumeNext::Send(KeyRequest::Claim(Box::new(claim))))
    }

    /// The request was answered.
    pub fn answered(&mut self, reply: KeyReply, config: &Config, now: Moment) -> ResumeNext {
        let reply = match reply {
            KeyReply::Claim(reply) => reply,
            KeyReply::Inspect(Ok(seen)) => return self.inspected(seen),
            KeyReply::Inspect(Err(cause)) => return ResumeNext::Failed(ResumeFailure::Unreachable(cause)),
            KeyReply::Release(_) => return ResumeNext::Failed(ResumeFailure::Ended),
        };
        let sent = reply.sent_at(self.called).unwrap_or(self.called);
        match reply.answer {
            Ok(Acquire::Granted { tokens }) => {
                self.granted = Some((tokens.last().into(), config.lease(sent, self.request.ttl)));
                let one_mode = config.capabilities.modes == Modes::default();
                if one_mode { ResumeNext::Begin(self.request.mode) } else { ResumeNext::Send(KeyRequest::Inspect) }
            }
            Ok(Acquire::Conflict(present)) => ResumeNext::Failed(ResumeFailure::Conflict(present)),
            Ok(_) => ResumeNext::Failed(ResumeFailure::Ended),
            Err(cause) => ResumeNext::Failed(ResumeFailure::Unconfirmed(cause, now.since(self.called))),
        }
    }

    /// The mode of the hold, which a grant does not contain. A reader must not be resumed as a writer, nor two permits as five. The
    /// limit is that of the server: the semaphore may have been resized.
    fn inspected(&mut self, seen: Option<Holding>) -> ResumeNext {
        let mode = self.request.mode;
        // If the hold has ended in the meantime, its first renewal detects that.
        let Some(seen) = seen.filter(|seen| seen.has(self.holder) || seen.holders.count() > 1) else {
            return ResumeNext::Begin(mode);
        };
        // Of very many holders, only some are listed, and all have the same class.
        let own = seen.holders.iter().find(|held| held.holder_id() == Some(self.holder));
        let held = own.map_or_else(|| seen.first().mode, |own| own.mode);
        self.request.mode = match (held.limit(), mode.limit()) {
            (None, None) if held == mode => mode,
            (Some(_), Some(_)) if own.is_some() && held.weight() == mode.weight() => held,
            (Some(limit), Some(_)) if own.is_none() && mode.weight() <= limit => mode.resized(limit),
            _ => return ResumeNext::Failed(ResumeFailure::OtherMode(held)),
        };
        ResumeNext::Begin(self.request.mode)
    }

    /// Begins the hold. `None` if its lease is over already.
    pub fn begin<W: Default, L: Default>(
        &self,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Grant> {
        let (tokens, lease) = self.granted.as_ref().filter(|(_, lease)| !lease.lapsed(cx.now))?;
        Some(engine.resume(self.holder, &self.request, *tokens, *lease, cx))
    }
}
