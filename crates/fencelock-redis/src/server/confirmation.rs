//! With `acks`, a grant counts when replicas have confirmed it.

use super::Redis;
use crate::connection::session::Session;
use crate::scripts::quarantine::Refusal;
use crate::scripts::reply::{self, Remaining};
use crate::scripts::script::{self, Requested};
use fencelock_core::{Acquire, Claim, Downgrade, Fault, Renew, Renewal, Unknown};

impl Redis {
    /// A grant is renewed immediately on the connection that confirms renewals, and counts if the renewal does.
    pub(crate) async fn confirmed(
        &self,
        session: &Session,
        claim: &Claim,
        answer: Acquire,
    ) -> Result<Acquire, Unknown> {
        if session.acks.is_some() && matches!(answer, Acquire::Granted { .. }) {
            // No lease is too long for it: a poll may have a shorter TTL than the last renewal of its holder.
            let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
            self.confirm(session, &renewal).await?;
        }
        Ok(answer)
    }

    async fn confirm(&self, session: &Session, renewal: &Renewal) -> Result<(), Unknown> {
        let wire = self.link.target.wire(&renewal.key);
        let call = script::renew(&wire, &renewal.holder, renewal.ttl.get(), renewal.assumed);
        match self.renew_calls(session, vec![call]).await.pop() {
            Some(Ok(Renew::Renewed { .. })) => Ok(()),
            Some(Err(unknown)) => Err(self.after_the_grant(unknown)),
            // Only a poll can determine the current state.
            Some(Ok(Renew::Absent | Renew::TakenBy(_))) | None => {
                Err(Unknown::new(self.link.node(), Fault::Timeout, "the lease ended before replicas confirmed it"))
            }
        }
    }

    /// The master has granted the lock, even if replicas did not confirm it.
    fn after_the_grant(&self, cause: Unknown) -> Unknown {
        if !cause.changed_nothing() {
            return cause;
        }
        Unknown::new(self.link.node(), Fault::Timeout, format!("granted, but not confirmed: {cause}"))
    }

    /// Turns an exclusive hold into a shared one.
    pub(crate) async fn share(&self, renewal: &Renewal, token: Requested) -> Result<Downgrade, Unknown> {
        let (node, wire) = (self.link.node(), self.link.target.wire(&renewal.key));
        if let Some(quarantine) = self.quarantine() {
            quarantine.check(node, renewal.ttl)?;
        }
        let session = self.session().await?;
        let call = script::downgrade(&wire, &renewal.holder, renewal.ttl.get(), token, self.epoch_check(&session));
        let answer = self.call_over(&session, &call).await?;
        Refusal::check(node, self.quarantine(), &answer)?;
        self.link.note_unread(&wire, &answer);
        let (answer, left) = reply::read_downgrade(node, answer)?;
        if left == Remaining::More {
            self.continue_hand_off(&renewal.key).await;
        }
        if session.acks.is_some() && matches!(answer, Downgrade::Downgraded { .. }) {
            self.confirm(&session, renewal).await?;
        }
        Ok(answer)
    }
}
