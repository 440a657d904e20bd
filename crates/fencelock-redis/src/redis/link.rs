use super::fault::{is_no_script, unknown};
use super::peers::Peers;
use super::push_handler::PushHandler;
use super::quarantine::{self, Marker, MarkerState, Quarantine};
use super::script::{self, Call};
use super::session::Session;
use super::target::Target;
use super::unread::Unread;
use fencelock_core::{Fault, Moment, Unknown};
use redis::{RedisError, Value};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Keeps one session alive, on demand: the next request after a break dials again.
///
/// No other reconnect loop is needed: waiters poll every second and holders renew. The driver's own loop could connect to
/// another server unnoticed, and would repeat commands that may not be repeatable.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) target: Target,
    pub(crate) push_handler: Arc<PushHandler>,
    /// The servers of its list, itself included; none where it stands alone.
    pub(crate) peers: OnceLock<Arc<Peers>>,
    channel: String,
    /// Whether the log says already that an entry could not be read.
    unread_logged: AtomicBool,
    live: Mutex<Option<Arc<Session>>>,
    dial: tokio::sync::Mutex<Dial>,
    /// Whether the log says what the server cannot do.
    tells: bool,
}

#[derive(Debug, Default)]
struct Dial {
    sessions: u64,
    /// The last attempt that failed, and when it ended.
    failed: Option<(Moment, Unknown)>,
    /// What was already said about the server in the log.
    told: Vec<String>,
}

impl Link {
    pub(crate) fn new(target: Target) -> Result<Self, fencelock_core::Invalid> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| {
            fencelock_core::Invalid::new(format!("the operating system gave no random numbers: {error}"))
        })?;
        let channel = format!("{}{:016x}", wake_channels(&target.prefix), u64::from_be_bytes(random));
        let push_handler = Arc::new(PushHandler::new(&target));
        let (peers, live, dial, tells) = (OnceLock::new(), Mutex::new(None), tokio::sync::Mutex::default(), true);
        let unread_logged = AtomicBool::new(false);
        Ok(Self { target, push_handler, peers, channel, unread_logged, live, dial, tells })
    }

    /// One of a server that was met before.
    pub(crate) fn quiet(target: Target) -> Result<Self, fencelock_core::Invalid> {
        Ok(Self { tells: false, ..Self::new(target)? })
    }

    pub(crate) fn node(&self) -> &str {
        &self.target.name
    }

    /// The live session, or a new one. However many ask while the server is away, one dials, and its failure is
    /// everybody's answer: a hundred callers do not wait for a hundred timeouts.
    pub(crate) async fn session(&self, now: impl Fn() -> Moment + Send) -> Result<Arc<Session>, Unknown> {
        match self.live() {
            Some(session) => Ok(session),
            // Boxed, because it is rare and large: every request would allocate and move its size.
            None => Box::pin(self.dial(now)).await,
        }
    }

    async fn dial(&self, now: impl Fn() -> Moment + Send) -> Result<Arc<Session>, Unknown> {
        let asked = now();
        let mut dial = self.dial.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        if let Some((ended, unknown)) = &dial.failed
            && *ended >= asked
        {
            return Err(unknown.clone());
        }
        dial.sessions += 1;
        match Session::open(&self.target, dial.sessions, &self.channel, &self.push_handler).await {
            Ok(session) => {
                let session = Arc::new(session);
                dial.failed = None;
                if self.tells {
                    dial.tell(&self.target.name, &session);
                }
                *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&session));
                Ok(session)
            }
            Err(unknown) => {
                dial.failed = Some((now(), unknown.clone()));
                Err(unknown)
            }
        }
    }

    /// Sends a script by its digest, and in full if the server does not know it: after a restart, a fail-over or
    /// `SCRIPT FLUSH`. "No such script" means that nothing was carried out.
    pub(crate) async fn call(&self, session: &Session, call: &Call) -> Result<Value, RedisError> {
        let answer = match session.send(call.by_digest()).await {
            Err(error) if is_no_script(&error) => session.send(&call.in_full()).await,
            answer => answer,
        };
        self.check(session);
        answer
    }

    /// What the marker says of the server of this session. It writes nothing.
    pub(crate) async fn inspect_marker(
        &self,
        session: &Session,
        quarantine: &Quarantine,
    ) -> Result<MarkerState, Unknown> {
        let node = self.target.name.as_str();
        let run_id = session.server_info.run_id.as_str();
        if run_id.is_empty() {
            return Err(no_run_id(node, session));
        }
        let mut look = redis::pipe();
        look.cmd("HMGET").arg(&quarantine.marker).arg(&["epoch", "until", "quorum", "nodes", "version"]).cmd("TIME");
        let answers = session.send_all(&look).await;
        self.check(session);
        let mut answers = answers.map_err(|error| unknown(node, &error))?.into_iter();
        let mut next = || answers.next().unwrap_or(Ok(Value::Nil)).map_err(|error| unknown(node, &error));
        let read = |error: redis::ParsingError| unknown(node, &error.into());
        let [epoch, until, quorum, nodes, version]: [Option<String>; 5] =
            redis::from_redis_value(next()?).map_err(read)?;
        let (seconds, micros): (u64, u64) = redis::from_redis_value(next()?).map_err(read)?;
        let now_ms = seconds.saturating_mul(1000).saturating_add(micros / 1000);
        MarkerState::seen(node, quarantine, run_id, &Marker { epoch, until, quorum, nodes, version }, now_ms)
    }

    /// For a claim that met a server without a marker of this run: begins its quarantine, and says in the log if it does not
    /// serve. A server without any marker is only marked where that cannot be a list that nobody meant.
    pub(crate) async fn handshake(&self, session: &Session, quarantine: &Quarantine) -> Result<MarkerState, Unknown> {
        let node = self.target.name.as_str();
        // A client that trusts an unknown server asserts that the list is correct.
        if let Some(peers) = self.peers.get().filter(|_| !quarantine.trust)
            && self.inspect_marker(session, quarantine).await? == MarkerState::Unmarked
        {
            peers.may_mark(self).await?;
        }
        let state = self.send_handshake(session, quarantine).await;
        match &state {
            Ok(state) => self.warn_of(session, state),
            // The caller of a claim receives the error.
            Err(cause) => tracing::debug!(node, "grants nothing: {cause}"),
        }
        state
    }

    /// Logs once for each session that the server does not grant.
    pub(crate) fn warn_of(&self, session: &Session, state: &MarkerState) {
        let why = match state {
            MarkerState::Serving => return,
            MarkerState::Quarantined(rest) => quarantine::forgotten(*rest),
            MarkerState::Restarted | MarkerState::Unmarked => quarantine::NOT_BEGUN.to_owned(),
        };
        if !session.quarantine_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(node = self.target.name.as_str(), "in quarantine: {why}");
        }
    }

    /// Says in the log, once, if a script came upon a waiter whose entry it could not read. `doctor` names each.
    pub(crate) fn note_unread(&self, wire: &str, answer: &Value) -> Option<Unread> {
        let unread = Unread::of(answer)?;
        if !self.unread_logged.swap(true, Ordering::Relaxed) {
            let advice = Unread::advice(wire);
            tracing::warn!(node = self.target.name.as_str(), "{}; {advice}", unread.describe(wire));
        }
        Some(unread)
    }

    /// Asks the marker whether the server of this session may grant, and writes it if it is not of this server. It is
    /// harmless to do so again.
    async fn send_handshake(&self, session: &Session, quarantine: &Quarantine) -> Result<MarkerState, Unknown> {
        let node = self.target.name.as_str();
        let run_id = session.server_info.run_id.as_str();
        if run_id.is_empty() {
            return Err(no_run_id(node, session));
        }
        let answer = self.call(session, &script::handshake(quarantine, run_id)).await;
        MarkerState::read(node, quarantine, answer.map_err(|error| unknown(node, &error))?)
    }

    /// Gives a dead session up, so that the next request dials, and tells everybody that messages may be missed.
    pub(crate) fn check(&self, session: &Session) {
        if !session.is_dead() {
            return;
        }
        let dropped = {
            let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            live.take_if(|live| live.number == session.number)
        };
        if dropped.is_some() {
            tracing::info!(node = %self.target.name, "connection lost");
            self.push_handler.reset();
        }
    }

    fn live(&self) -> Option<Arc<Session>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        // A request that was dropped may have been the last to use it.
        self.check(&live);
        (!live.is_dead()).then_some(live)
    }
}

impl Dial {
    /// Says once what a server cannot do.
    fn tell(&mut self, node: &str, session: &Session) {
        let server_info = &session.server_info;
        tracing::info!(
            node,
            run_id = server_info.run_id,
            version = server_info.version,
            resp3 = server_info.resp3,
            "connected"
        );
        for lack in &server_info.limitations {
            if !self.told.contains(lack) {
                tracing::warn!(node, "{lack}");
                self.told.push(lack.clone());
            }
        }
    }
}

/// What the names of channels begin with on which clients of this prefix are woken: whoever may use those of one prefix cannot wake,
/// or mislead, those of another. It is one word in what the scripts write.
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

/// Without it a restart could not be noticed.
pub(crate) fn no_run_id(node: &str, session: &Session) -> Unknown {
    let refused = session
        .server_info
        .limitations
        .iter()
        .find(|lack| lack.starts_with("INFO"))
        .map_or("INFO names no run id", |l| l);
    let detail = format!("{refused}; a quarantine needs it to notice a restart: allow INFO to this user");
    Unknown::new(node, Fault::Denied, detail)
}
