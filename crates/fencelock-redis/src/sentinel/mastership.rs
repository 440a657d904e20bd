use super::node::{SentinelReplies, no_majority};
use super::{Named, Sentinels};
use crate::scripts::quarantine::sha256;
use crate::url::hosts::shown;
use crate::url::target::Target;
use fencelock_core::{BootClock, Clock, Drift, Fault, MasterLease, Moment, Unknown, lock, master_by_majority};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// The interval at which the sentinels are queried, in addition to their messages about another master.
const EVERY: Duration = Duration::from_secs(1);
/// The minimum interval, however many messages a sentinel sends.
const SPACING: Duration = Duration::from_millis(250);

/// Whether the server of one session is the master, according to the sentinels.
#[derive(Debug)]
pub(crate) struct Mastership {
    pub(crate) sentinels: Arc<Sentinels>,
    pub(crate) named: Named,
    /// Until when its replies are valid; `None` without a quarantine, because then no limit makes them safe.
    lease: Option<Mutex<MasterLease>>,
    /// The last failed confirmation, and its end. Callers that wait at the same time share one confirmation.
    failure: tokio::sync::Mutex<Option<(Moment, Unknown)>>,
    replication_id: OnceLock<String>,
}

impl Mastership {
    /// `queried` is the time before the sentinels were queried, `window` that of a quarantine.
    pub(crate) fn new(sentinels: &Arc<Sentinels>, named: Named, queried: Moment, window: Option<Duration>) -> Self {
        Self {
            sentinels: Arc::clone(sentinels),
            named,
            lease: window.map(|window| Mutex::new(MasterLease::new(queried, window))),
            failure: tokio::sync::Mutex::default(),
            replication_id: OnceLock::new(),
        }
    }

    pub(crate) fn address(&self) -> String {
        shown(&self.named.address)
    }

    /// The identity of this mastership. It changes with every start of the server, every promotion, and every configuration of
    /// the sentinels. So the marker of an earlier mastership is not accepted.
    pub(crate) fn identify(&self, run_id: &str, id: String) -> String {
        if run_id.is_empty() || id.is_empty() {
            // A quarantine requires them.
            return String::new();
        }
        // The length of a run id.
        let identity = sha256(&format!("{run_id} {id} {}", self.named.config_epoch), 40);
        let _ = self.replication_id.set(id);
        identity
    }

    /// The locks that a failover can lose with these options.
    pub(crate) fn limitation(target: &Target) -> Option<String> {
        let lost = "may lose locks that were just acquired or renewed";
        match (&target.quarantine, target.acks) {
            (Some(quarantine), _) if quarantine.trust => Some(format!(
                "trust_empty=true trusts every new master: a failover {lost}, and two clients may then hold one lock; use it for tests only"
            )),
            (Some(_), _) => None,
            (None, None) => Some(format!(
                "a failover {lost}, and two clients then hold one lock: quarantine=on in the URL prevents that, and acks=N makes \
                 it rare"
            )),
            (None, Some(acks)) => Some(format!(
                "a failover to a replica that is not among the {} of acks= {lost}, and two clients then hold one lock: \
                 quarantine=on in the URL prevents that",
                acks.replicas
            )),
        }
    }

    /// Whether a reply of the server that arrives now is valid.
    pub(crate) fn counts(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lock(lease).counts(BootClock.now()))
    }

    /// Whether the server may renew a lease during its quarantine, if this much of it is left.
    pub(crate) fn carries(&self, left: Duration) -> bool {
        self.lease.as_ref().is_none_or(|lease| lock(lease).carries(left, Drift::default()))
    }

    /// Queries the sentinels, because they have not confirmed the master for too long. Without a confirmation, no reply is valid.
    pub(crate) async fn ensure(&self, node: &str) -> Result<(), Unknown> {
        let queried = BootClock.now();
        let mut failed = self.failure.lock().await;
        if self.counts() {
            return Ok(());
        }
        if let Some((ended, unknown)) = &*failed
            && *ended >= queried
        {
            return Err(unknown.clone());
        }
        let answer = self.confirm(node).await;
        *failed = answer.as_ref().err().map(|unknown| (BootClock.now(), unknown.clone()));
        answer
    }

    /// Queries the sentinels. If a majority names this master, its replies are valid for another window.
    async fn query(&self) -> SentinelReplies {
        let queried = BootClock.now();
        let answers = self.sentinels.query(|named| master_by_majority(named).is_some()).await;
        if let Some(lease) = &self.lease
            && master_by_majority(&answers.named) == Some(&self.named)
        {
            lock(lease).confirmed(queried);
        }
        answers
    }

    async fn confirm(&self, node: &str) -> Result<(), Unknown> {
        let answers = self.query().await;
        match master_by_majority(&answers.named) {
            Some(master) if *master == self.named => Ok(()),
            Some(master) => {
                let why = format!("the sentinels name {} as its master now", shown(&master.address));
                Err(Unknown::new(node, Fault::ReadOnly, why))
            }
            None => Err(no_majority(node, &answers)),
        }
    }

    /// If the marker belongs to another mastership, checks that the mastership of this session is current, so that a client with
    /// outdated information does not start a quarantine for it.
    pub(crate) async fn check(&self, id: &str, node: &str) -> Result<(), Unknown> {
        if self.replication_id.get().map(String::as_str) != Some(id) {
            return Err(Unknown::new(
                node,
                Fault::ReadOnly,
                "it was demoted and promoted again after the connection was opened",
            ));
        }
        self.confirm(node).await
    }

    /// Returns as soon as the sentinels name another master.
    pub(crate) async fn ended(&self) {
        loop {
            // The message is a hint; the replies to a query decide.
            let _ = tokio::time::timeout(EVERY, self.sentinels.switched.notified()).await;
            if self.sentinels.has_another(&self.query().await, &self.named) {
                break;
            }
            tokio::time::sleep(SPACING).await;
        }
        tracing::info!(server = self.address(), "the sentinels name another master");
    }
}
