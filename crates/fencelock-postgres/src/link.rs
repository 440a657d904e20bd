//! The connections of a client, which open when they are needed, and again after they end.

use crate::answers::{self, Read, Unreadable};
use crate::calls::{self, CALLS, Call, Param};
use crate::hub::Hub;
use crate::session::Session;
use crate::url::Target;
use fencelock_core::{Fault, HolderId, Key, Unknown};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;

/// How long a server that was too slow may take to execute what it has: then its connection is closed.
const SILENT_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) target: Target,
    pub(crate) hub: Arc<Hub>,
    /// Where this client is notified. Whoever knows the name can send hints, so it is secret.
    pub(crate) channel: String,
    texts: Arc<[String; CALLS]>,
    /// The requests of a key go over one connection, so that a release comes after the claim that it follows.
    slots: Vec<Mutex<Slot>>,
    /// A claim may wait for a row that a transaction has locked, and renewals must not wait for that: while one is under way, they have a
    /// connection of their own.
    renewals: Mutex<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    current: Option<Arc<Session>>,
    /// Has not answered in time. It may still execute what it was sent.
    silent: Option<(Arc<Session>, Instant)>,
}

/// Whose connection a request takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lane<'a> {
    Key(&'a Key),
    Renewals,
}

impl Link {
    pub(crate) fn new(target: Target) -> Result<Self, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let texts = Arc::new(calls::texts(&target));
        let slots = (0..target.connections).map(|_| Mutex::default()).collect();
        let channel = format!("fl_{}", HolderId::from_bytes(random));
        Ok(Self { target, hub: Arc::default(), channel, texts, slots, renewals: Mutex::default() })
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

    fn slot(&self, lane: Lane<'_>) -> &Mutex<Slot> {
        let Lane::Key(key) = lane else { return &self.renewals };
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let number = usize::try_from(hasher.finish() % self.slots.len() as u64).unwrap_or_default();
        &self.slots[number]
    }

    /// The connection of a lane. Whoever finds none opens it, and the others wait for that.
    pub(crate) async fn session(&self, lane: Lane<'_>, deadline: Instant) -> Result<Arc<Session>, Unknown> {
        let open = async {
            let mut slot = self.slot(lane).lock().await;
            if let Some(session) = slot.current.as_ref().filter(|session| !session.is_closed()) {
                return Ok(Arc::clone(session));
            }
            if let Some(idle) = self.idle().filter(|_| matches!(lane, Lane::Renewals)) {
                return Ok(idle);
            }
            let session = Arc::new(Session::open(&self.target, &self.hub, &self.texts).await?);
            slot.current = Some(Arc::clone(&session));
            Ok(session)
        };
        timeout_at(deadline, open).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// A connection that waits for no reply.
    fn idle(&self) -> Option<Arc<Session>> {
        let current = |slot: &Mutex<Slot>| slot.try_lock().ok()?.current.clone();
        self.slots.iter().filter_map(current).find(|session| !session.is_closed() && session.is_idle())
    }

    /// Sends a request and waits for its reply. A connection that is too slow is used no more.
    pub(crate) async fn call_over(
        &self,
        session: &Arc<Session>,
        call: Call,
        params: &[Param<'_>],
        deadline: Instant,
    ) -> Result<Vec<Row>, Unknown> {
        if let Ok(answer) = timeout_at(deadline, session.call(call, params)).await {
            return answer;
        }
        for slot in self.slots.iter().chain([&self.renewals]) {
            let mut slot = slot.lock().await;
            if slot.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
                slot.silent = slot.current.take().map(|session| (session, Instant::now()));
            }
        }
        self.hub.lost_connection(true);
        Err(self.timed_out())
    }

    /// The only row of a reply.
    pub(crate) async fn call(&self, lane: Lane<'_>, call: Call, params: &[Param<'_>]) -> Result<Row, Unknown> {
        let deadline = self.deadline();
        let session = self.session(lane, deadline).await?;
        let rows = self.call_over(&session, call, params, deadline).await?;
        self.read(rows.into_iter().next().ok_or_else(|| Unreadable("an empty reply".to_owned())))
    }

    /// A server that was too slow executes the claims of its last connection later, and what follows them. So a release there ends them.
    /// Another holder is not released there: its release over the new connection might come second, and report a loss.
    pub(crate) async fn release_behind(&self, key: &Key, holder: &HolderId) {
        let silent = {
            let mut slot = self.slot(Lane::Key(key)).lock().await;
            slot.silent.take_if(|(session, since)| session.is_closed() || since.elapsed() > SILENT_FOR);
            // There, the release follows the claim in any case.
            if let Some(session) = &slot.current {
                session.is_late(holder);
            }
            slot.silent.as_ref().map(|(session, _)| Arc::clone(session))
        };
        let Some(session) = silent.filter(|session| session.is_late(holder)) else { return };
        let (key, holder) = (key.clone(), holder.to_bytes());
        tokio::spawn(async move {
            let (key, holder): (_, &[u8]) = (key.as_str(), &holder);
            let release = [calls::text(&key), calls::bytes(&holder)];
            tokio::time::timeout(SILENT_FOR, session.call(Call::Release, &release)).await
        });
    }

    /// Wakes the holder of a key that was handed over. If it fails, the holder finds out with its next poll.
    pub(crate) async fn tell(&self, key: &Key) {
        let _ = self.call(Lane::Key(key), Call::Tell, &[calls::text(&key.as_str())]).await;
    }

    /// Asks for the hand-offs of all waiters of this client until none waits, where no notifications arrive.
    pub(crate) fn poll_for_hand_offs(self: &Arc<Self>) {
        let link = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(link.target.poll).await;
                let waiters = link.hub.waiters();
                let Some((_, first)) = waiters.first() else { return };
                let keys: Vec<_> = waiters.iter().map(|(_, key)| key.as_str()).collect();
                let holders: Vec<_> = waiters.iter().map(|(holder, _)| holder.to_bytes().to_vec()).collect();
                let asked = [calls::texts_of(&keys), calls::byte_strings(&holders)];
                let deadline = link.deadline();
                let Ok(session) = link.session(Lane::Key(first), deadline).await else { continue };
                let rows = link.call_over(&session, Call::Handed, &asked, deadline).await;
                for event in rows.iter().flatten().filter_map(|row| answers::handed(row).ok()) {
                    link.hub.listeners.send(&event);
                }
            }
        });
    }
}
