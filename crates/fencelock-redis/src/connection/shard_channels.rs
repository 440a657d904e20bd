//! The wake-up channels of a session with a node of a cluster.
//!
//! In a cluster, `PUBLISH` sends the message to every node, and its reply counts the subscribers of one node only. So a waiter
//! uses a *sharded* channel, which belongs to the hash slot of its key: only the node that serves the slot delivers its messages,
//! and its reply counts all subscribers. The name is `<channel of the client>:<node>:{<a number in the slot>}`, where the node is
//! the beginning of its run id. If another node serves the slot later, the name shows that the subscription was not made there,
//! so that node does not consider the waiter dead: see `notify` in the scripts. When the slot leaves a node, the subscription ends,
//! and is not restored if the slot returns. So the connection also subscribes to a channel without a slot, `<channel of the
//! client>:<node>`, to which nothing is published: while a node counts this subscriber, it does not consider any waiter of the
//! client dead.
//!
//! A client subscribes when it first waits in a slot, on a separate connection: see [`Subscribed`]. A node without sharded
//! channels, before Redis 7.0, publishes on one channel of the client, `<channel of the client>:cluster`, and ignores the number
//! of subscribers.

use super::dial::Dialer;
use super::fault::{fault_of, is_unknown_command};
use super::liveness::{Liveness, SessionTask};
use super::push_handler::{Origin, PushHandler, Subscribed};
use super::server_info::{Info, ServerInfo, no_wake_ups};
use crate::hash_slot::{hash_slot, number_in_slot};
use crate::url::target::Target;
use fencelock_core::{Fault, Key, lock};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The part of a run id that identifies a node. The scripts compare it.
const NODE_LEN: usize = 8;
/// Not the name of any node, so no node counts the subscribers of its channels.
const NO_NODE: &str = "unknown";
/// The maximum time that a claim waits for its subscription: the server removes a waiter that does not poll for three seconds. It
/// is also the interval between attempts, and between checks of the connection.
const LONGEST: Duration = Duration::from_secs(1);

/// The connection is opened with the first claim that waits, and again after it was lost.
#[derive(Debug)]
pub(crate) struct ShardChannels {
    target: Target,
    resp3: bool,
    run_id: String,
    client: String,
    push_handler: Arc<PushHandler>,
    liveness: Liveness,
    wake: Mutex<Option<Arc<Wake>>>,
    /// The last attempt to open a connection. One caller connects, and all share the result.
    tried: tokio::sync::Mutex<Option<Instant>>,
}

/// How a node wakes this client.
#[derive(Debug)]
struct Wake {
    kind: WakeKind,
    subscribed: Arc<Subscribed>,
    /// When the connection was last checked.
    checked: Mutex<Instant>,
}

#[derive(Debug)]
enum WakeKind {
    Sharded {
        connection: MultiplexedConnection,
        /// Whether the number of subscribers shows the node that the client is gone.
        counts: bool,
    },
    /// Subscribed to one channel for all slots.
    Global(String, MultiplexedConnection),
    GlobalResp2(String, #[expect(dead_code, reason = "it is subscribed as long as it lives")] SessionTask),
    /// Waiters poll.
    Never,
}

impl ShardChannels {
    pub(crate) fn new(dialer: Dialer<'_>, server_info: &ServerInfo, liveness: &Liveness) -> Self {
        Self {
            target: dialer.target.clone(),
            resp3: server_info.resp3,
            run_id: server_info.run_id.clone(),
            client: dialer.channel.to_owned(),
            push_handler: Arc::clone(dialer.push_handler),
            liveness: liveness.clone(),
            wake: Mutex::default(),
            tried: tokio::sync::Mutex::default(),
        }
    }

    /// The channel on which this client receives messages for a lock, if it is subscribed.
    pub(crate) fn channel(&self, redis_key: &str) -> Option<String> {
        let wake = self.wake()?;
        match &wake.kind {
            WakeKind::Sharded { counts, .. } => {
                let slot = hash_slot(redis_key);
                wake.subscribed.has(slot).then(|| self.name(slot, *counts))
            }
            WakeKind::Global(channel, _) | WakeKind::GlobalResp2(channel, _) => Some(channel.clone()),
            WakeKind::Never => None,
        }
    }

    /// Records that a claim waits for this lock, and that its entry has a channel.
    pub(crate) fn waits(&self, redis_key: &str, key: &Key) {
        if let Some(wake) = self.wake() {
            wake.subscribed.add(hash_slot(redis_key), key);
            self.check(&wake);
        }
    }

    /// Subscribes to the channel of a lock. Returns whether there is one; without it, the waiters of the lock poll.
    pub(crate) async fn subscribe(&self, redis_key: &str, key: &Key) -> bool {
        if !self.target.push {
            return false;
        }
        let slot = hash_slot(redis_key);
        let Some(wake) = self.open(slot).await else { return false };
        let (connection, counts) = match &wake.kind {
            WakeKind::Sharded { connection, counts } => (connection, *counts),
            WakeKind::Global(..) | WakeKind::GlobalResp2(..) => return true,
            WakeKind::Never => return false,
        };
        let subscribed = &wake.subscribed;
        if !subscribed.has(slot) {
            self.give_up_idle(connection, counts, subscribed);
            let confirmed = async {
                let answer = send_subscribe(connection, &self.name(slot, counts)).await;
                // After an error, waits only if the error was the reply to another request.
                if answer.is_ok() || subscribed.has(slot) {
                    subscribed.wait_for(slot).await;
                    return true;
                }
                false
            };
            if !timeout(self.longest(), confirmed).await.unwrap_or(false) {
                return false;
            }
        }
        subscribed.add(slot, key);
        true
    }

    /// Each subscription uses some hundred bytes on the server.
    fn give_up_idle(&self, connection: &MultiplexedConnection, counts: bool, subscribed: &Subscribed) {
        let idle = subscribed.idle();
        if idle.is_empty() {
            return;
        }
        // One command for each channel, because all channels of a command must be in one slot.
        let mut commands = redis::pipe();
        for slot in idle {
            commands.cmd("SUNSUBSCRIBE").arg(self.name(slot, counts));
        }
        let (mut connection, count) = (connection.clone(), commands.len());
        tokio::spawn(async move { drop(connection.send_packed_commands(&commands, 0, count).await) });
    }

    fn name(&self, slot: u16, counts: bool) -> String {
        let node = self.node().filter(|_| counts).unwrap_or(NO_NODE);
        format!("{}:{node}:{{{}}}", self.client, number_in_slot(slot))
    }

    fn node(&self) -> Option<&str> {
        self.run_id.get(..NODE_LEN)
    }

    /// Subscribes to the channel without a slot. Returns whether it is subscribed.
    async fn subscribe_as_present(&self, connection: &mut MultiplexedConnection) -> RedisResult<bool> {
        let Some(node) = self.node() else { return Ok(false) };
        match connection.subscribe(format!("{}:{node}", self.client)).await {
            Ok(()) => Ok(true),
            Err(error) if fault_of(&error) == Fault::Denied => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// If the connection were lost silently, every hand-off would skip its waiters. So it is checked once a second while a claim
    /// waits.
    fn check(&self, wake: &Arc<Wake>) {
        let (WakeKind::Sharded { connection, .. } | WakeKind::Global(_, connection)) = &wake.kind else { return };
        let now = Instant::now();
        {
            let mut checked = lock(&wake.checked);
            if now - *checked < LONGEST {
                return;
            }
            *checked = now;
        }
        let (mut connection, limit) = (connection.clone(), self.target.limit);
        let (subscribed, push_handler) = (Arc::clone(&wake.subscribed), Arc::clone(&self.push_handler));
        tokio::spawn(async move {
            let answer = timeout(limit, connection.send_packed_command(&redis::cmd("PING"))).await;
            if !matches!(answer, Ok(Ok(_))) && !subscribed.has_ended() {
                subscribed.end();
                push_handler.reset();
            }
        });
    }

    /// The connection that is open.
    fn wake(&self) -> Option<Arc<Wake>> {
        let wake = lock(&self.wake).clone();
        wake.filter(|wake| !wake.subscribed.has_ended())
    }

    async fn open(&self, slot: u16) -> Option<Arc<Wake>> {
        let mut tried = self.tried.lock().await;
        if let Some(wake) = self.wake() {
            return Some(wake);
        }
        if tried.is_some_and(|tried| tried.elapsed() < LONGEST) {
            return None;
        }
        // This also runs if the caller is cancelled.
        *tried = Some(Instant::now());
        let subscribed = Arc::<Subscribed>::default();
        let opened = timeout(self.longest(), self.connect(slot, &subscribed)).await;
        *tried = Some(Instant::now());
        let kind = match opened {
            Ok(Ok(kind)) => kind,
            Ok(Err(error)) => {
                tracing::debug!(node = %self.target.name, %error, "no connection for wake-ups");
                return None;
            }
            Err(_) => return None,
        };
        let wake = Arc::new(Wake { kind, subscribed, checked: Mutex::new(Instant::now()) });
        *lock(&self.wake) = Some(Arc::clone(&wake));
        Some(wake)
    }

    async fn connect(&self, slot: u16, subscribed: &Arc<Subscribed>) -> RedisResult<WakeKind> {
        let (target, push_handler) = (&self.target, &self.push_handler);
        let dialer = Dialer { target, channel: &self.client, push_handler };
        let origin = Origin { shards: Some(Arc::clone(subscribed)), ..Origin::default() };
        let _ = origin.run_id.set(self.run_id.clone());
        let (origin, channel) = (Arc::new(origin), format!("{}:cluster", self.client));
        if !self.resp3 {
            return match dialer.subscribe(&channel, &self.liveness, &origin).await {
                Ok(subscription) => Ok(WakeKind::GlobalResp2(channel, subscription)),
                Err(error) => self.never(error),
            };
        }
        let mut connection = dialer.dial(true, Some(target.limit), &origin).await?;
        if !self.run_id.is_empty() {
            let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
            if Info::read(&info).get("run_id") != Some(&self.run_id) {
                return Err((redis::ErrorKind::Io, "the address leads to another server").into());
            }
        }
        let counts = self.subscribe_as_present(&mut connection).await?;
        match send_subscribe(&connection, &self.name(slot, counts)).await {
            Err(error) if is_unknown_command(&error) || fault_of(&error) == Fault::Denied => {
                match connection.subscribe(&channel).await {
                    Ok(()) => Ok(WakeKind::Global(channel, connection)),
                    Err(error) => self.never(error),
                }
            }
            // The command also fails if another node serves this slot now.
            _ => Ok(WakeKind::Sharded { connection, counts }),
        }
    }

    fn longest(&self) -> Duration {
        self.target.limit.min(LONGEST)
    }

    /// A permanent error is cached.
    fn never(&self, error: redis::RedisError) -> RedisResult<WakeKind> {
        if !matches!(fault_of(&error), Fault::Denied | Fault::Unsupported | Fault::Other) {
            return Err(error);
        }
        tracing::warn!(node = %self.target.name, "{}", no_wake_ups(&error.to_string()));
        Ok(WakeKind::Never)
    }
}

async fn send_subscribe(connection: &MultiplexedConnection, name: &str) -> RedisResult<Value> {
    let mut subscribe = redis::cmd("SSUBSCRIBE");
    subscribe.arg(name);
    connection.clone().send_packed_command(&subscribe).await.and_then(Value::extract_error)
}
