//! The connections of a client, which open when they are needed, and again after they end.

use crate::calls;
use crate::calls::{CALLS, Call, Param, Read, Unreadable, params};
use crate::hub::Hub;
use crate::session::Session;
use crate::url::Target;
use fencelock_core::{Fault, HolderId, Key, Unknown, lock};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_postgres::Row;

/// How long a server that was too slow may take to execute what it has: then its connection is closed.
const SILENT_FOR: Duration = Duration::from_secs(60);
/// From one login to the next while a server refuses a password that is being changed. Requests that wait for it share it.
const BETWEEN_LOGINS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) target: Target,
    pub(crate) hub: Arc<Hub>,
    /// Where this client is notified. Whoever knows the name can send hints, so it is secret.
    pub(crate) channel: String,
    texts: Arc<[String; CALLS]>,
    /// The requests of a key go over one connection, so that a release comes after the claim that it follows.
    slots: Vec<Arc<Slot>>,
    /// A claim may wait for a row that a transaction has locked, and renewals must not wait for that: while one is under way, they have a
    /// connection of their own.
    renewals: Arc<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    sessions: Mutex<Sessions>,
    /// Whose turn it is to look for a connection here, and to open one.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Sessions {
    current: Option<Arc<Session>>,
    /// Has not answered in time. It may still execute what it was sent.
    silent: Option<(Arc<Session>, Instant)>,
    /// When the last attempt to open one began, if it failed.
    failed: Option<(Instant, Unknown)>,
}

impl Slot {
    fn current(&self) -> Option<Arc<Session>> {
        lock(&self.sessions).current.clone().filter(|session| !session.is_closed())
    }

    fn failed(&self) -> Option<(Instant, Unknown)> {
        lock(&self.sessions).failed.clone()
    }
}

/// Whose connection a request takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lane<'a> {
    Any,
    Key(&'a Key),
    Renewals,
}

impl Link {
    pub(crate) fn new(target: Target) -> Result<Self, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let texts = Arc::new(calls::texts(&target));
        let slots = (0..target.connections).map(|_| Arc::default()).collect();
        let channel = format!("fl_{}", HolderId::from_bytes(random));
        Ok(Self { target, hub: Arc::default(), channel, texts, slots, renewals: Arc::default() })
    }

    /// The moment at which a request that starts now has failed.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.target.limit
    }

    pub(crate) fn timed_out(&self) -> Unknown {
        Unknown::new(&self.target.name, Fault::Timeout, "")
    }

    /// What was read from a reply.
    pub(crate) fn read<T>(&self, read: Read<T>) -> Result<T, Unknown> {
        read.map_err(|Unreadable(why)| Unknown::new(&self.target.name, Fault::Other, why))
    }

    fn slot(&self, lane: Lane<'_>) -> &Arc<Slot> {
        match lane {
            Lane::Any => &self.slots[0],
            Lane::Renewals => &self.renewals,
            Lane::Key(key) => {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                let number = usize::try_from(hasher.finish() % self.slots.len() as u64).unwrap_or_default();
                &self.slots[number]
            }
        }
    }

    /// The connection of a lane, and when a request over it has failed. Whoever finds none opens it, and the others wait for that, or get
    /// the same error. It is opened to its end, also if no request waits for it any more: a busy server may take longer for a connection
    /// than for a reply.
    pub(crate) async fn session(self: &Arc<Self>, lane: Lane<'_>) -> Result<(Arc<Session>, Instant), Unknown> {
        let slot = self.slot(lane);
        if let Some((began, _)) = slot.failed().filter(|(_, cause)| cause.is_revoked()) {
            sleep_until(began + BETWEEN_LOGINS).await;
        }
        let asked = Instant::now();
        let longer = self.target.connect.filter(|_| slot.current().is_none()).unwrap_or_default();
        let deadline = asked + self.target.limit.max(longer);
        let open = async {
            let turn = Arc::clone(&slot.turn).lock_owned().await;
            if let Some(session) = slot.current() {
                return Ok(session);
            }
            // An attempt that began before may not know what has changed since, such as the password.
            if let Some((_, cause)) = slot.failed().filter(|(began, _)| *began >= asked) {
                return Err(cause);
            }
            if let Some(idle) = self.idle().filter(|_| matches!(lane, Lane::Renewals)) {
                return Ok(idle);
            }
            let (link, slot) = (Arc::clone(self), Arc::clone(slot));
            let opening = tokio::spawn(async move {
                let (_turn, began) = (turn, Instant::now());
                let opened = Session::open(&link.target, &link.hub, &link.texts).await.map(Arc::new);
                let mut sessions = lock(&slot.sessions);
                sessions.current = opened.as_ref().ok().map(Arc::clone);
                sessions.failed = opened.as_ref().err().map(|cause| (began, cause.clone()));
                opened
            });
            opening.await.unwrap_or_else(|died| Err(Unknown::new(&self.target.name, Fault::Other, died.to_string())))
        };
        let session = timeout_at(deadline, open).await.unwrap_or_else(|_| Err(self.timed_out()))?;
        Ok((session, deadline))
    }

    /// A connection that no request has: only its slot, and this one.
    fn idle(&self) -> Option<Arc<Session>> {
        self.slots.iter().filter_map(|slot| slot.current()).find(|session| Arc::strong_count(session) == 2)
    }

    /// Sends a request and waits for its reply. A connection that is too slow is used no more, unless opening it took most of the time.
    pub(crate) async fn call_over(
        &self,
        session: &Arc<Session>,
        call: Call,
        params: &[Param<'_>],
        deadline: Instant,
    ) -> Result<Vec<Row>, Unknown> {
        let sent = Instant::now();
        if let Ok(answer) = timeout_at(deadline, session.call(call, params)).await {
            return answer;
        }
        if sent.elapsed() < self.target.limit / 2 {
            return Err(self.timed_out());
        }
        for slot in self.slots.iter().chain([&self.renewals]) {
            let mut sessions = lock(&slot.sessions);
            if sessions.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
                sessions.silent = sessions.current.take().map(|session| (session, Instant::now()));
            }
        }
        self.hub.lost_connection(true);
        Err(self.timed_out())
    }

    /// Who keeps a claim waiting for longer than any statement of a client takes.
    pub(crate) async fn who_locks(&self, session: &Session, deadline: Instant) -> &'static str {
        let text = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'), EXISTS (SELECT FROM pg_locks l \
                    JOIN pg_class c ON c.oid = l.relation WHERE l.granted AND c.relnamespace = to_regnamespace($1) \
                    AND c.relname = 'locks' AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))";
        let schema = self.target.quoted_schema();
        let rows = timeout_at(deadline, session.query(text, &params![TEXT schema])).await;
        let is = |column| rows.as_ref().is_ok_and(|rows| rows.iter().flatten().any(|row| row.get(column)));
        match (is(0), is(1)) {
            (true, _) => "a commit that waits for a synchronous standby",
            (_, true) => "a transaction that has locked the table",
            _ => "a transaction of the database, such as one that has called lock_in,",
        }
    }

    /// The reply to a request.
    pub(crate) async fn rows(
        self: &Arc<Self>,
        lane: Lane<'_>,
        call: Call,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Unknown> {
        let (session, deadline) = self.session(lane).await?;
        self.call_over(&session, call, params, deadline).await
    }

    /// The only row of a reply.
    pub(crate) async fn call(
        self: &Arc<Self>,
        lane: Lane<'_>,
        call: Call,
        params: &[Param<'_>],
    ) -> Result<Row, Unknown> {
        let rows = self.rows(lane, call, params).await?;
        self.read(rows.into_iter().next().ok_or_else(|| Unreadable("an empty reply".to_owned())))
    }

    /// A server that was too slow executes the claims of its last connection later, and what follows them. So a release there ends them.
    /// Another holder is not released there: its release over the new connection might come second, and report a loss.
    pub(crate) fn release_behind(&self, key: &Key, holder: &HolderId) {
        let silent = {
            let mut sessions = lock(&self.slot(Lane::Key(key)).sessions);
            sessions.silent.take_if(|(session, since)| session.is_closed() || since.elapsed() > SILENT_FOR);
            // There, the release follows the claim in any case.
            if let Some(session) = &sessions.current {
                session.claiming().remove(holder);
            }
            sessions.silent.as_ref().map(|(session, _)| Arc::clone(session))
        };
        let Some(session) = silent.filter(|session| session.claiming().remove(holder)) else { return };
        let (key, holder) = (key.clone(), holder.to_bytes());
        tokio::spawn(async move {
            let release = params![TEXT key.as_str(), BYTEA &holder[..]];
            tokio::time::timeout(SILENT_FOR, session.call(Call::Release, &release)).await
        });
    }

    /// Wakes the holder of a key that was handed over. If it fails, the holder finds out with its next poll.
    pub(crate) async fn tell(self: &Arc<Self>, key: &Key) {
        let _ = self.call(Lane::Key(key), Call::Tell, &params![TEXT key.as_str()]).await;
    }

    /// Asks for the hand-offs of all waiters of this client, where no notifications arrive.
    pub(crate) fn poll_for_hand_offs(self: &Arc<Self>) {
        let link = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(link.target.poll).await;
                let Some(waiters) = link.hub.look(link.target.poll) else { return };
                if waiters.is_empty() {
                    continue;
                }
                let keys: Vec<_> = waiters.iter().map(|(_, key)| key.as_str()).collect();
                let holders: Vec<_> = waiters.iter().map(|(holder, _)| holder.to_bytes().to_vec()).collect();
                let asked = params![TEXT_ARRAY keys, BYTEA_ARRAY holders];
                let rows = link.rows(Lane::Any, Call::Handed, &asked).await;
                for event in rows.iter().flatten().filter_map(|row| calls::handed(row).ok()) {
                    link.hub.listeners.send(&event);
                }
            }
        });
    }
}
