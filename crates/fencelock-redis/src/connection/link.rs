//! The live session with one server, and what is known about it from one session to the next.

use super::batch::again;
use super::dial::Dialer;
use super::fault::{is_no_script, unknown};
use super::push_handler::PushHandler;
use super::session::Session;
use crate::scripts::quarantine::{MarkerState, Quarantine};
use crate::scripts::reply::Unread;
use crate::scripts::script::Call;
use crate::scripts::{quarantine, script};
use crate::url::target::Target;
use fencelock_core::{BootClock, Clock, Fault, Moment, Unknown, lock};
use futures_util::future::join_all;
use redis::{RedisError, Value};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use tokio::time::timeout;

/// The pause between logins while a server refuses a password that is being changed.
const BETWEEN_LOGINS: Duration = Duration::from_secs(1);

/// Keeps one session alive on demand: the next request after a disconnect connects again.
///
/// No other reconnect loop is needed: waiters poll every second and holders renew. The reconnect loop of the driver could
/// silently connect to another server, and would repeat commands that may not be idempotent.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) target: Target,
    pub(crate) push_handler: Arc<PushHandler>,
    /// The servers of its list, including itself; empty for a single server.
    pub(crate) peers: OnceLock<Arc<Peers>>,
    channel: String,
    /// The locks with unreadable entries that have been logged.
    unread_logged: LoggedKeys,
    /// The latest session. It may be dead, and silent: there is no other one yet.
    latest: Mutex<Option<Arc<Session>>>,
    dial: tokio::sync::Mutex<Dial>,
    /// The features that a trial has found not to work, with the reasons.
    pub(crate) failed: Mutex<Vec<(&'static str, String)>>,
    /// The name of a lock that no client uses, if the user has named one for a trial.
    pub(crate) probe: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Dial {
    /// The last failed attempt, and its end.
    failed: Option<(Moment, Unknown)>,
    /// What has been logged about the server.
    logged: Vec<String>,
}

impl Link {
    pub(crate) fn new(target: Target) -> Result<Self, fencelock_core::Invalid> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| {
            fencelock_core::Invalid::new(format!("the operating system returned no random numbers: {error}"))
        })?;
        let channel = format!("{}{:016x}", wake_channels(&target.prefix), u64::from_be_bytes(random));
        let push_handler = Arc::new(PushHandler::new(&target));
        Ok(Self {
            target,
            push_handler,
            peers: OnceLock::new(),
            channel,
            unread_logged: LoggedKeys::default(),
            latest: Mutex::default(),
            dial: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            probe: Mutex::default(),
        })
    }

    /// Gives each server of a list its peers, before any of them is used.
    pub(crate) fn join_all(links: &[Arc<Self>]) {
        let servers = links.iter().map(Arc::downgrade).collect();
        let peers = Arc::new(Peers { servers, ..Peers::default() });
        for link in links {
            let _ = link.peers.set(Arc::clone(&peers));
        }
    }

    pub(crate) fn node(&self) -> &str {
        &self.target.name
    }

    /// Whether the server reports changes of keys to the live session.
    pub(crate) fn is_tracking(&self) -> bool {
        self.live().is_some_and(|session| session.server_info.tracking)
    }

    /// Returns the live session, or a new one. If many callers wait while the server is unavailable, one connects, and its
    /// error is the result for all: a hundred callers do not wait for a hundred timeouts.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, Unknown> {
        match self.live() {
            Some(session) => Ok(session),
            // Boxed, because it is rare and large: every request would allocate and move its size.
            None => Box::pin(self.dial()).await,
        }
    }

    async fn dial(&self) -> Result<Arc<Session>, Unknown> {
        let requested = BootClock.now();
        let mut dial = self.dial.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        if let Some((ended, unknown)) = &dial.failed {
            if *ended >= requested {
                return Err(unknown.clone());
            }
            if unknown.is_revoked() {
                tokio::time::sleep(BETWEEN_LOGINS.saturating_sub(requested.since(*ended))).await;
            }
        }
        let (target, channel, push_handler) = (&self.target, &*self.channel, &self.push_handler);
        match Session::open(Dialer { target, channel, push_handler }).await {
            Ok(session) => {
                let session = Arc::new(session);
                self.target.files.accept();
                dial.failed = None;
                if !self.target.is_internal {
                    dial.log_limitations(&self.target.name, &session);
                }
                *lock(&self.latest) = Some(Arc::clone(&session));
                Ok(session)
            }
            Err(unknown) => {
                let unknown = unknown.map_fault(|fault| self.target.files.kind(fault));
                dial.failed = Some((BootClock.now(), unknown.clone()));
                Err(unknown)
            }
        }
    }

    /// Sends a script by its digest, and in full if the server has not cached it: after a restart, a failover or `SCRIPT FLUSH`.
    /// The errors of [`again`] mean that the script was not executed.
    pub(crate) async fn call(&self, session: &Session, call: &Call) -> Result<Value, RedisError> {
        let answer = match session.send(&call.by_digest).await {
            Err(error) => match again(call.lua, &error).map(|commands| call.sent_by(commands)) {
                // If it was no right to read that it lacks, the first error names it.
                Some(call) if !is_no_script(&error) => session.send(&call).await.or(Err(error)),
                Some(call) => session.send(&call).await,
                None => Err(error),
            },
            answer => answer,
        };
        self.check(session);
        answer
    }

    /// Reads the marker of the server of this session. It writes nothing.
    pub(crate) async fn inspect_marker(
        &self,
        session: &Session,
        quarantine: &Quarantine,
    ) -> Result<MarkerState, Unknown> {
        let node = self.target.name.as_str();
        let run_id = known_run_id(node, session)?;
        let mut query = redis::pipe();
        query.cmd("HMGET").arg(&quarantine.marker).arg(&quarantine::FIELDS).cmd("TIME");
        let answers = session.send_all(&query).await.and_then(|answers| answers.into_iter().collect::<Result<_, _>>());
        self.check(session);
        let read = answers.and_then(|answers| Ok(redis::from_redis_value(Value::Array(answers))?));
        let (marker, (seconds, micros)): ([_; 5], (u64, u64)) = read.map_err(|error| unknown(node, &error))?;
        let now_ms = seconds.saturating_mul(1000).saturating_add(micros / 1000);
        MarkerState::seen(node, quarantine, run_id, &marker, now_ms)
    }

    /// The marker of the server that is connected now.
    pub(crate) async fn marker(&self) -> Result<MarkerState, Unknown> {
        let session = self.session().await?;
        match &self.target.quarantine {
            Some(quarantine) => self.inspect_marker(&session, quarantine).await,
            None => Ok(MarkerState::Unmarked),
        }
    }

    /// For a claim at a server without a marker of this run: starts its quarantine, and logs if the server does not
    /// grant. A server without any marker is only marked if the list is confirmed.
    pub(crate) async fn handshake(&self, session: &Session, quarantine: &Quarantine) -> Result<MarkerState, Unknown> {
        let node = self.target.name.as_str();
        session.check_identity(node).await?;
        // A client that trusts an unknown server asserts that the list is correct.
        if let Some(peers) = self.peers.get().filter(|_| !quarantine.trust)
            && self.inspect_marker(session, quarantine).await? == MarkerState::Unmarked
        {
            peers.may_mark(self.node()).await?;
        }
        // It writes the marker if it belongs to another run. Repeating it is harmless.
        let handshake = script::handshake(quarantine, known_run_id(node, session)?);
        let answer = self.call(session, &handshake).await.map_err(|error| unknown(node, &error));
        let state = answer.and_then(|answer| MarkerState::read(node, quarantine, answer));
        match &state {
            Ok(state) => self.warn_of(session, state),
            // The caller of a claim receives the error.
            Err(cause) => tracing::debug!(node, "grants nothing: {cause}"),
        }
        state
    }

    /// Logs once for each session that the server does not grant.
    pub(crate) fn warn_of(&self, session: &Session, state: &MarkerState) {
        let trusts = self.target.quarantine.as_ref().is_some_and(|quarantine| quarantine.trust);
        let why = match state {
            MarkerState::Serving => return,
            // The next claim puts it into service.
            MarkerState::Restarted | MarkerState::Unmarked if trusts => return,
            MarkerState::Quarantined(rest) => quarantine::quarantined(&self.target.name, *rest),
            MarkerState::Restarted | MarkerState::Unmarked => {
                Unknown::new(&self.target.name, Fault::Quarantined, quarantine::NOT_BEGUN)
            }
        };
        if !session.quarantine_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!("{why}");
        }
    }

    /// Logs that a script found an unreadable waiter entry, not more than once an hour for each lock. `doctor` finds all.
    pub(crate) fn note_unread(&self, redis_key: &str, answer: &Value) -> Option<Unread> {
        let unread = Unread::of(answer)?;
        if self.unread_logged.is_due(redis_key, BootClock.now()) {
            let advice = Unread::advice(redis_key);
            tracing::warn!(node = self.target.name.as_str(), "{}; {advice}", unread.describe(redis_key));
        }
        Some(unread)
    }

    /// Notes a dead session, and notifies the listeners that messages may be lost. The next request connects.
    pub(crate) fn check(&self, session: &Session) {
        if session.liveness.is_dead() && !session.loss_noted.swap(true, Ordering::Relaxed) {
            tracing::info!(node = %self.target.name, "connection lost");
            self.push_handler.reset();
        }
    }

    /// The last session, if it did not answer in time and there is no other one yet.
    pub(crate) fn silent(&self) -> Option<Arc<Session>> {
        lock(&self.latest).clone().filter(|session| session.loss_noted.load(Ordering::Relaxed))
    }

    /// The reason why a feature did not work in a trial.
    pub(crate) fn failure(&self, feature: &str) -> Option<String> {
        let failed = lock(&self.failed);
        failed.iter().find(|(name, _)| *name == feature).map(|(_, reason)| reason.clone())
    }

    fn live(&self) -> Option<Arc<Session>> {
        let latest = lock(&self.latest).clone()?;
        if !latest.liveness.is_dead() {
            return Some(latest);
        }
        // A cancelled request may have been the last user of the session.
        self.check(&latest);
        None
    }
}

impl Dial {
    /// Logs once which features the server lacks.
    fn log_limitations(&mut self, node: &str, session: &Session) {
        let server_info = &session.server_info;
        tracing::info!(
            node,
            run_id = server_info.run_id,
            version = server_info.version,
            master = session.mastership.as_ref().map(|mastership| mastership.address()),
            resp3 = server_info.resp3,
            "connected"
        );
        for lack in &server_info.limitations {
            if !self.logged.contains(lack) {
                // What only holders and waiters miss. A program whose users look with few rights leaves it out.
                if lack.starts_with("no ") {
                    tracing::warn!(target: "fencelock::holding", node, "{lack}");
                } else {
                    tracing::warn!(node, "{lack}");
                }
                self.logged.push(lack.clone());
            }
        }
    }
}

/// The prefix of the channels that wake clients of this key prefix: a user with access to the channels of one prefix cannot
/// wake, or mislead, clients of another. It contains no space, as the scripts require.
pub(crate) fn wake_channels(prefix: &str) -> String {
    let mut channel = String::from("fencelock:wake:");
    for c in prefix.chars() {
        if c.is_whitespace() || c == '%' {
            let _ = write!(channel, "%{:X}", u32::from(c));
        } else {
            channel.push(c);
        }
    }
    if !prefix.is_empty() {
        channel.push(':');
    }
    channel
}

/// A quarantine needs the run id to detect a restart.
pub(crate) fn known_run_id<'a>(node: &str, session: &'a Session) -> Result<&'a str, Unknown> {
    const NEEDED: &str = "a quarantine requires it to detect a restart";
    let run_id = session.server_info.run_id.as_str();
    if !run_id.is_empty() {
        return Ok(run_id);
    }
    let detail = match session.server_info.limitations.iter().find(|lack| lack.starts_with("INFO")) {
        Some(refused) => format!("{refused}; {NEEDED}: allow INFO to this user"),
        None => format!("INFO does not contain a run id; {NEEDED}, so this server cannot have one"),
    };
    Err(Unknown::new(node, Fault::Denied, detail))
}

// The other servers of a list, for a claim at a server without a marker.
//
// The server may have been restarted empty; then its quarantine must start, or it would never serve again. Or it may be new, and
// listed by mistake; then it must not be marked, because it would join an unintended set. The other servers show which case
// applies.

/// How long a result is valid: all nodes of a new list query their peers at the same time.
const FRESH: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(crate) struct Peers {
    servers: Vec<Weak<Link>>,
    /// A server has confirmed that it belongs to this set, so the set is in use.
    set_up: AtomicBool,
    /// Why the last attempt was refused, and when. One caller queries, and all share the result.
    refused: tokio::sync::Mutex<Option<(Moment, Fault, String)>>,
}

impl Peers {
    /// Whether a server without a marker may be marked: another server belongs to this set, or all of them answer and
    /// none has a marker.
    pub(crate) async fn may_mark(&self, unmarked: &str) -> Result<(), Unknown> {
        if self.set_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut refused = self.refused.lock().await;
        if let Some((when, fault, why)) = &*refused
            && BootClock.now().since(*when) < FRESH
        {
            return Err(Unknown::new(unmarked, *fault, why.as_str()));
        }
        *refused = None;
        // The waiting claim has a timeout too.
        let servers: Vec<_> = self.servers.iter().filter_map(Weak::upgrade).collect();
        let answers = join_all(servers.iter().map(|server| timeout(server.target.limit / 2, server.marker()))).await;
        let (mut others, mut silent) = (Vec::new(), Vec::new());
        for (server, answer) in servers.iter().zip(answers) {
            match answer {
                Ok(Ok(MarkerState::Unmarked)) => {}
                Ok(Ok(MarkerState::Serving | MarkerState::Quarantined(_) | MarkerState::Restarted)) => {
                    self.set_up.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Ok(Err(cause)) if cause.is_permanent() && cause.is_refusal() => others.push(server.node()),
                Ok(Err(_)) | Err(_) => silent.push(server.node()),
            }
        }
        let (fault, why) = match (others.join(" and "), silent.join(" and ")) {
            (others, silent) if others.is_empty() && silent.is_empty() => return Ok(()),
            (others, silent) if others.is_empty() => {
                let why = format!(
                    "it may have lost its locks: restarted, promoted, flushed or new. It is not marked before {silent} answers or \
                     another node says that it belongs to this set; if the list is right, `fencelock init`"
                );
                (Fault::Quarantined, why)
            }
            (others, _) => {
                let why = format!("it has no marker, and {others} belongs to another set, so nothing was written");
                (Fault::Misconfigured, why)
            }
        };
        *refused = Some((BootClock.now(), fault, why.clone()));
        Err(Unknown::new(unmarked, fault, why))
    }
}

// What was logged.

/// The number of keys that are named in the time after which a key is named again. `doctor` names what the log leaves out.
const MOST: usize = 32;
/// A key is named again after this time: the first warning may be about something that has been repaired.
const AGAIN: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub(crate) struct LoggedKeys {
    at: Mutex<HashMap<String, Moment>>,
}

impl LoggedKeys {
    /// Whether to name this key now.
    pub(crate) fn is_due(&self, redis_key: &str, now: Moment) -> bool {
        let mut logged = lock(&self.at);
        logged.retain(|_, at| now.since(*at) < AGAIN);
        let is_due = logged.len() < MOST && !logged.contains_key(redis_key);
        if is_due {
            logged.insert(redis_key.to_owned(), now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::from_micros(secs * 1_000_000)
    }

    #[test]
    fn each_key_is_named_once_an_hour() {
        let logged = LoggedKeys::default();
        let named = [("a", 0), ("a", 1), ("b", 2), ("a", 3599), ("a", 3600), ("b", 3601), ("b", 3602), ("a", 3603)];
        let due: Vec<_> = named.iter().filter(|(key, secs)| logged.is_due(key, at(*secs))).collect();
        assert_eq!(due, [&("a", 0), &("b", 2), &("a", 3600), &("b", 3602)]);
    }

    #[test]
    fn many_keys_do_not_flood_the_log() {
        let logged = LoggedKeys::default();
        let due = |secs| (0..1000).filter(|key| logged.is_due(&key.to_string(), at(secs))).count();
        assert_eq!([due(0), due(1), due(3600)], [MOST, 0, MOST]);
        assert_eq!(logged.at.lock().unwrap().len(), MOST);
    }
}
