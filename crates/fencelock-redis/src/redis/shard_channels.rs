//! The wake-up channels of a session with a node of a cluster.
//!
//! `PUBLISH` in a cluster costs every node, and its answer counts the subscribers of one node only. So a waiter has a *sharded*
//! channel, which belongs to the hash slot of its key: the node that serves the slot is the only one that delivers its messages, and
//! its answer counts all subscribers. The name is `<channel of the client>:<node>:{<a number in the slot>}`, where the node is the
//! beginning of its run id. Another node that serves the slot later can tell from it that the subscription was not made there, and
//! so does not mistake the waiter for a dead one: see `tell` in the scripts. When the slot leaves a node, the subscription ends, also if
//! the slot returns. So the connection is subscribed to a channel that belongs to no slot too, `<channel of the client>:<node>`, to which
//! nothing is published: as long as a node counts this subscriber, no waiter of the client is dead.
//!
//! A client subscribes when it first waits in a slot. A node that does not know sharded channels, before Redis 7.0, publishes on one
//! channel of the client, `<channel of the client>:cluster`, and does not conclude anything from the number of subscribers.

use super::dial::{Origin, dial};
use super::fault::{fault_of, is_unknown_command};
use super::liveness::Liveness;
use super::push_handler::PushHandler;
use super::server_info::{ServerInfo, field};
use super::subscription::Subscription;
use super::target::Target;
use fencelock_core::{Fault, Key, hash_slot, number_in_slot};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisResult, Value};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OnceCell};

/// The keys that are remembered for each slot, to look at them again when the slot is moved. Others are polled as always.
const KEYS_MAX: usize = 64;
/// The part of a run id that tells nodes apart. The scripts compare it.
const NODE_LEN: usize = 8;

/// Opened with the first claim that waits.
#[derive(Debug)]
pub(crate) struct ShardChannels {
    target: Target,
    resp3: bool,
    run_id: String,
    client: String,
    push_handler: Arc<PushHandler>,
    liveness: Liveness,
    subscribed: Arc<Subscribed>,
    connection: OnceCell<Wake>,
}

/// How a node wakes this client.
#[derive(Debug)]
enum Wake {
    Sharded {
        connection: MultiplexedConnection,
        /// Whether the node can tell from its subscribers that the client is gone.
        counts: bool,
    },
    /// On one channel for all slots.
    Global { channel: String, _connection: GlobalConnection },
    /// Waiters poll.
    Never,
}

#[derive(Debug)]
enum GlobalConnection {
    Resp3(#[expect(dead_code, reason = "it is subscribed as long as it lives")] MultiplexedConnection),
    Resp2(#[expect(dead_code, reason = "it is subscribed as long as it lives")] Subscription),
}

/// The slots whose channels this client hears, and keys that wait there.
///
/// The confirmation of a subscription is matched by the name of its channel: the driver takes the message that a slot was moved, which
/// nobody asked for, for the answer of the next request. So the connection has no other requests.
#[derive(Debug, Default)]
pub(crate) struct Subscribed {
    slots: Mutex<HashMap<u16, HashSet<Key>>>,
    changed: Notify,
}

impl ShardChannels {
    pub(crate) fn new(
        target: &Target,
        server_info: &ServerInfo,
        client: &str,
        push_handler: &Arc<PushHandler>,
        liveness: &Liveness,
    ) -> Self {
        Self {
            target: target.clone(),
            resp3: server_info.resp3,
            run_id: server_info.run_id.clone(),
            client: client.to_owned(),
            push_handler: Arc::clone(push_handler),
            liveness: liveness.clone(),
            subscribed: Arc::default(),
            connection: OnceCell::new(),
        }
    }

    /// The channel on which this client hears of a lock, if it is subscribed.
    pub(crate) fn channel(&self, wire: &str) -> Option<String> {
        match self.connection.get()? {
            Wake::Sharded { counts, .. } => {
                let slot = hash_slot(wire);
                self.subscribed.has(slot).then(|| self.name(slot, *counts))
            }
            Wake::Global { channel, .. } => Some(channel.clone()),
            Wake::Never => None,
        }
    }

    /// Subscribes to the channel of a lock. Returns whether there is one; without it, the waiters of the lock poll.
    pub(crate) async fn subscribe(&self, wire: &str, key: &Key) -> bool {
        if !self.target.push {
            return false;
        }
        let slot = hash_slot(wire);
        match self.connection.get_or_try_init(|| self.open(slot)).await {
            Ok(Wake::Sharded { connection, counts }) => self.subscribe_shard(connection, slot, *counts, key).await,
            Ok(Wake::Global { .. }) => true,
            Ok(Wake::Never) => false,
            Err(error) => {
                tracing::debug!(node = %self.target.name, %error, "no connection for wake-ups");
                false
            }
        }
    }

    async fn subscribe_shard(&self, connection: &MultiplexedConnection, slot: u16, counts: bool, key: &Key) -> bool {
        if !self.subscribed.has(slot) {
            let answer = self.send_subscribe(connection, slot, counts).await;
            let confirmed = tokio::time::timeout(self.target.limit, self.subscribed.wait_for(slot));
            // After an error only if it was the answer of another request.
            if answer.is_err() && !self.subscribed.has(slot) || confirmed.await.is_err() {
                return false;
            }
        }
        self.subscribed.add(slot, key);
        true
    }

    async fn send_subscribe(&self, connection: &MultiplexedConnection, slot: u16, counts: bool) -> RedisResult<Value> {
        let mut subscribe = redis::cmd("SSUBSCRIBE");
        subscribe.arg(self.name(slot, counts));
        connection.clone().send_packed_command(&subscribe).await.and_then(Value::extract_error)
    }

    fn name(&self, slot: u16, counts: bool) -> String {
        // No node has this name, so none counts its subscribers.
        let node = self.node().filter(|_| counts).unwrap_or("unknown");
        format!("{}:{node}:{{{}}}", self.client, number_in_slot(slot))
    }

    fn node(&self) -> Option<&str> {
        self.run_id.get(..NODE_LEN)
    }

    /// Subscribes to the channel that belongs to no slot. Returns whether there is one.
    async fn subscribe_as_present(&self, connection: &mut MultiplexedConnection) -> RedisResult<bool> {
        let Some(node) = self.node() else { return Ok(false) };
        match connection.subscribe(format!("{}:{node}", self.client)).await {
            Ok(()) => Ok(true),
            Err(error) if fault_of(&error) == Fault::Denied => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn open(&self, slot: u16) -> RedisResult<Wake> {
        if !self.resp3 {
            let channel = self.global_name();
            let subscription =
                Subscription::start(&self.target, &channel, &self.push_handler, &self.liveness, &self.origin()).await;
            return Ok(match subscription {
                Ok(subscription) => Wake::Global { channel, _connection: GlobalConnection::Resp2(subscription) },
                Err(error) => self.never(&error)?,
            });
        }
        let (limit, origin) = (self.target.limit, self.origin());
        let mut connection = dial(&self.target, true, limit, &self.push_handler, &origin).await?;
        if !self.run_id.is_empty() {
            let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
            if field(&info, "run_id") != self.run_id {
                return Err((redis::ErrorKind::Io, "the address leads to another server").into());
            }
        }
        let counts = self.subscribe_as_present(&mut connection).await?;
        match self.send_subscribe(&connection, slot, counts).await {
            Err(error) if is_unknown_command(&error) || fault_of(&error) == Fault::Denied => {
                let channel = self.global_name();
                match connection.subscribe(&channel).await {
                    Ok(()) => Ok(Wake::Global { channel, _connection: GlobalConnection::Resp3(connection) }),
                    Err(error) => self.never(&error),
                }
            }
            // Also if another node serves this slot now.
            _ => Ok(Wake::Sharded { connection, counts }),
        }
    }

    fn global_name(&self) -> String {
        format!("{}:cluster", self.client)
    }

    /// A permanent error is remembered.
    fn never(&self, error: &redis::RedisError) -> RedisResult<Wake> {
        if !matches!(fault_of(error), Fault::Denied | Fault::Unsupported | Fault::Other) {
            return Err(error.clone());
        }
        tracing::warn!(node = %self.target.name, "no wake-ups ({error}): waiters poll once per second");
        Ok(Wake::Never)
    }

    fn origin(&self) -> Arc<Origin> {
        let origin =
            Origin { shards: Some((Arc::clone(&self.subscribed), self.liveness.clone())), ..Origin::default() };
        let _ = origin.run_id.set(self.run_id.clone());
        Arc::new(origin)
    }
}

impl Subscribed {
    /// A message about a subscription. Returns the keys whose channel has ended, because their slot was moved.
    pub(crate) fn pushed(&self, info: &PushInfo) -> Vec<Key> {
        let Some(slot) = info.data.first().and_then(slot_of_channel) else { return Vec::new() };
        let ended = {
            let mut slots = self.slots();
            if info.kind == PushKind::SSubscribe {
                slots.entry(slot).or_default();
                None
            } else {
                slots.remove(&slot)
            }
        };
        self.changed.notify_waiters();
        ended.into_iter().flatten().collect()
    }

    fn has(&self, slot: u16) -> bool {
        self.slots().contains_key(&slot)
    }

    fn add(&self, slot: u16, key: &Key) {
        if let Some(keys) = self.slots().get_mut(&slot).filter(|keys| !keys.contains(key)) {
            if keys.len() >= KEYS_MAX {
                keys.clear();
            }
            keys.insert(key.clone());
        }
    }

    async fn wait_for(&self, slot: u16) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.has(slot) {
                return;
            }
            changed.await;
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<u16, HashSet<Key>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn slot_of_channel(name: &Value) -> Option<u16> {
    let Value::BulkString(name) = name else { return None };
    let name = std::str::from_utf8(name).ok()?;
    name.ends_with('}').then(|| hash_slot(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(kind: PushKind, channel: &str) -> PushInfo {
        PushInfo { kind, data: vec![Value::BulkString(channel.into()), Value::Int(1)] }
    }

    #[test]
    fn a_moved_slot_returns_its_keys() {
        let (subscribed, key) = (Subscribed::default(), Key::new("foo").unwrap());
        let channel = format!("fencelock:wake:ab:12345678:{{{}}}", number_in_slot(hash_slot("foo")));
        assert!(subscribed.pushed(&pushed(PushKind::SSubscribe, &channel)).is_empty());
        subscribed.add(hash_slot("foo"), &key);
        subscribed.add(hash_slot("bar"), &Key::new("bar").unwrap());
        assert!(subscribed.has(hash_slot("foo")) && !subscribed.has(hash_slot("bar")));
        assert!(subscribed.pushed(&pushed(PushKind::SUnsubscribe, "something else")).is_empty());
        assert_eq!(subscribed.pushed(&pushed(PushKind::SUnsubscribe, &channel)), [key]);
        assert!(!subscribed.has(hash_slot("foo")));
    }

    #[test]
    fn the_remembered_keys_are_bounded() {
        let subscribed = Subscribed::default();
        subscribed.pushed(&pushed(PushKind::SSubscribe, "c:{1}"));
        for number in 0..1000 {
            subscribed.add(hash_slot("1"), &Key::new(format!("{{1}}{number}")).unwrap());
        }
        assert!(subscribed.pushed(&pushed(PushKind::SUnsubscribe, "c:{1}")).len() <= KEYS_MAX);
    }

    #[tokio::test]
    async fn a_confirmation_ends_the_wait() {
        let subscribed = Arc::new(Subscribed::default());
        let waiting = tokio::spawn({
            let subscribed = Arc::clone(&subscribed);
            async move { subscribed.wait_for(hash_slot("1")).await }
        });
        tokio::task::yield_now().await;
        subscribed.pushed(&pushed(PushKind::SSubscribe, "c:{2}"));
        subscribed.pushed(&pushed(PushKind::SSubscribe, "c:{1}"));
        waiting.await.unwrap();
    }
}
