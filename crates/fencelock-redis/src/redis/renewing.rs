//! Renewals, which may open a second connection: a lease would end while the client waits for a lost request.

use super::Redis;
use super::script::{self, Call};
use super::session::Session;
use fencelock_core::{Renew, Renewal, Unknown};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A batch without a reply after this fraction of its shortest lease is also sent over a new connection. It was sent after
/// a third of the lease, so half of the lease is left: enough to connect, and to stop a command in time if that fails.
const PART: u32 = 6;
/// No connection is considered dead sooner: a pause of a scheduler is as long.
const SOONEST: Duration = Duration::from_millis(25);

type Answers = Vec<Result<Renew, Unknown>>;

impl Redis {
    pub(super) async fn renew_all(&self, renewals: &[Renewal]) -> Answers {
        let session = match self.session().await {
            Ok(session) => session,
            Err(unknown) => return vec![Err(unknown); renewals.len()],
        };
        if let Some(quarantine) = self.quarantine()
            && let Some(Err(unknown)) =
                renewals.iter().map(|one| quarantine.check(self.link.node(), one.ttl)).find(Result::is_err)
        {
            return vec![Err(unknown); renewals.len()];
        }
        let asked = Instant::now();
        let mut first = pin!(self.renew_over(&session, renewals));
        if let Ok(answers) = timeout(self.patience(&session, renewals), first.as_mut()).await {
            return answers;
        }
        if !session.liveness.end_if_silent_since(asked) {
            return first.await;
        }
        self.link.check(&session);
        // A repeated renewal is harmless, so the first request continues.
        let again = pin!(async {
            match self.session().await {
                Ok(session) => self.renew_over(&session, renewals).await,
                Err(unknown) => vec![Err(unknown); renewals.len()],
            }
        });
        first_answered(first, again).await
    }

    async fn renew_over(&self, session: &Session, renewals: &[Renewal]) -> Answers {
        let calls: Vec<Call> = renewals
            .iter()
            .map(|renewal| {
                script::renew(&self.link.target.wire(&renewal.key), &renewal.holder, renewal.ttl.get(), renewal.assumed)
                    .tracked(session.server_info.tracking)
            })
            .collect();
        self.renew_calls(session, calls).await
    }

    /// How long to wait for a reply before a new connection is opened. Replicas have their own timeout.
    fn patience(&self, session: &Session, renewals: &[Renewal]) -> Duration {
        let shortest = renewals.iter().map(|renewal| renewal.ttl.get()).min().unwrap_or_default();
        let replicas = self.link.target.acks.map(|acks| acks.limit).unwrap_or_default();
        (shortest / PART).max(SOONEST).max(session.liveness.patience()) + replicas
    }
}

/// The first answer of either; the last error if both failed.
async fn first_answered(
    mut one: impl Future<Output = Answers> + Unpin,
    mut other: impl Future<Output = Answers> + Unpin,
) -> Answers {
    tokio::select! {
        answers = &mut one => if is_answered(&answers) { answers } else { other.await },
        answers = &mut other => if is_answered(&answers) { answers } else { one.await },
    }
}

fn is_answered(answers: &Answers) -> bool {
    answers.iter().any(Result::is_ok)
}
