//! `fencelock serve`: locks for other programs, over a pipe or a socket. docs/en/serve.md specifies the protocol.
//!
//! A connection is a session, and a task. `listen` is where sessions come from, `peer` the process at the other end, `message` what is
//! said, `session` who asks for what, `holds` what it has, and `visible` what others see of it. All sessions share one client. A guard is in one place at a time: in the
//! task of its request, or among the holds of its session; where that ends, its lock is released.

pub(crate) mod args;
mod holds;
mod listen;
mod message;
mod peer;
mod session;
mod visible;

pub(crate) use holds::{Hold, Holds, Wanted};
pub(crate) use message::ErrorReply;
pub(crate) use session::Session;
pub(crate) use visible::Visible;
#[cfg(target_os = "linux")]
pub(crate) use {message::Unread, peer::Peer};

use crate::OPEN_FILES;
use crate::commands::{list, status};
use crate::context::{CLOSING, Context};
use crate::exit::{Exit, Failure};
use crate::json::state;
use crate::signals::Signals;
use args::{Address, Serve};
use fencelock::Client;
use listen::{Connection, Listener};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Whole tables are read this many at a time: they are large.
const LISTS: usize = 4;

/// What all sessions share.
pub(crate) struct Server {
    pub(crate) client: Client,
    /// The kind of the backend, and what it is compared by.
    scheme: String,
    pub(crate) identity: String,
    ttl: Duration,
    sessions: Mutex<BTreeMap<u64, Arc<Visible>>>,
    lists: Semaphore,
}

/// Serves until its sessions end.
pub(crate) async fn serve(mut wanted: Serve, context: &Context) -> Result<Exit, Failure> {
    let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    wanted.connections = wanted.connections.min(most_connections());
    let settings = Client::builder().idle_timeout(wanted.idle_timeout);
    let client = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.into()),
        client = context.connect_on_demand(settings) => client?,
    };
    let server = Arc::new(Server::new(client.clone(), context, wanted.ttl)?);
    let listener = match &wanted.listen {
        Some(Address::File(path)) => Some(Listener::at(path, wanted.mode, wanted.group.as_deref())?),
        Some(Address::Systemd) => Some(Listener::of_systemd()?),
        None => None,
    };
    run(&server, &wanted, listener, &mut signals).await?;
    let _ = client.close(CLOSING).await;
    Ok(Exit::Success)
}

/// A connection takes two files, and leaves as many for the locks: the backend is never without one.
fn most_connections() -> usize {
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OPEN_FILES as u64) / 4;
    usize::try_from(most).unwrap_or(usize::MAX).max(1)
}

/// Serves sessions of the listener, or else that of the standard streams.
async fn run(
    server: &Arc<Server>,
    wanted: &Serve,
    mut listener: Option<Listener>,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let mut next = if listener.is_some() { None } else { Connection::of_standard_streams()? };
    // The number of all sessions so far, and when the server will be stopped.
    let (mut sessions, mut count, end) = (JoinSet::new(), 0, watch::Sender::new(None::<Instant>));
    loop {
        if let Some(Connection { peer, reader, writer }) = next.take() {
            count += 1;
            let session = Session::new(Arc::clone(server), count, Arc::new(Visible::new(peer, None)), writer);
            sessions.spawn(session.run(reader, end.subscribe()));
        }
        if sessions.is_empty() && (listener.is_none() || end.borrow().is_some()) {
            return Ok(());
        }
        tokio::select! {
            biased;
            signal = signals.ending() => {
                if !wanted.stdio || signal == Signal::TERM {
                    // Who connects to a file is told. Who connects to a unit waits for its next server.
                    listener = listener.filter(|listener| listener.file.is_some());
                    // A second signal does not wait.
                    let grace = if end.borrow().is_some() { Duration::ZERO } else { wanted.grace };
                    end.send_replace(Some(Instant::now() + grace));
                }
            }
            Some(ended) = sessions.join_next() => {
                if let Err(bug) = ended {
                    tracing::error!("a session has ended by a bug, please report it: {bug}");
                }
            }
            Some(connection) = async { Some(listener.as_ref()?.accept().await) } => {
                if end.borrow().is_some() {
                    connection.refuse(ErrorReply::ending());
                } else if sessions.len() >= wanted.connections {
                    connection.refuse(ErrorReply::limit("connections", wanted.connections));
                } else {
                    next = Some(connection);
                }
            }
        }
    }
}

impl Server {
    pub(crate) fn new(client: Client, context: &Context, ttl: Duration) -> Result<Self, Failure> {
        let (url, identity) = (context.url()?, context.identity(&client)?);
        let scheme = url.split(':').next().unwrap_or_default().to_owned();
        Ok(Self { client, scheme, identity, ttl, sessions: Mutex::default(), lists: Semaphore::new(LISTS) })
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Visible>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sessions that hold each key, as this server sees them.
    fn by_key(&self, mut is_wanted: impl FnMut(&str) -> bool) -> HashMap<String, Vec<Value>> {
        let mut all: HashMap<String, Vec<Value>> = HashMap::new();
        for session in self.sessions().values() {
            let holds = session.holds();
            let held = holds.values().filter(|hold| hold.lost.is_none());
            for key in held.flat_map(Hold::keys).filter(|key| is_wanted(key)) {
                let (client, peer) = (session.client.get(), &session.peer);
                let seen = json!({ "client": client, "pid": peer.pid, "watched": peer.end.is_some() });
                all.entry(key.to_owned()).or_default().push(seen);
            }
        }
        all
    }

    async fn status(&self, key: &str) -> Result<Value, ErrorReply> {
        // It lists the slots of a free key.
        let _turn = self.lists.acquire().await;
        let mut answer = status::see(&self.client, key, &self.identity).await?.json(key, &self.client);
        answer["sessions"] = self.by_key(|held| held == key).remove(key).unwrap_or_default().into();
        Ok(answer)
    }

    async fn list(&self, prefix: &str) -> Result<Value, ErrorReply> {
        let _turn = self.lists.acquire().await;
        let held = list::held(&self.client, prefix).await?;
        let mut sessions = self.by_key(|held| held.starts_with(prefix));
        let queues = self.client.capabilities().queues;
        let states = held.iter().map(|held| {
            let mut answer = state(held.key.as_str(), Some(held), queues);
            answer["sessions"] = sessions.remove(held.key.as_str()).unwrap_or_default().into();
            answer
        });
        Ok(json!({ "locks": states.collect::<Value>() }))
    }
}
