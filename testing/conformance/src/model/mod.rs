//! One Redis node as the scripts of `fencelock-redis/src/redis/lua` make it: their specification, in Rust.
//!
//! No socket, no clock, no dice: time, refusals and who reads which channel are inputs. Simulators use it as a node,
//! and `fencelock-redis` holds it against the real scripts on a real server.
//!
//! ```
//! use fencelock_conformance::model::{Acquire, Claim, Gate, Heard, KeyModel, Server};
//!
//! let server = Server::at(1_780_000_000_000_000);
//! let mut key = KeyModel::default();
//! let claim = Claim::try_for(7, 30_000, server.now_us);
//! let granted = key.acquire(&server, &claim, &Gate::Open, &mut |_| Heard::BySome).unwrap();
//! assert_eq!(granted, Acquire::Granted { fence: server.now_us, count: 1, unread: None });
//! ```

mod answer;
mod foreign;
mod key;
mod marker;
mod message;
mod queue;
mod server;
mod tokens;
mod value;
mod waiting;

pub use answer::{Acquire, Evict, Inspect, Left, Look, Occupied, Raise, Refused, Release, Renew};
pub use foreign::{Done, OnlyIfFree};
pub use key::{Claim, Fence, Intent, KeyModel, Lock, Seen};
pub use marker::{Found, Gate, Handshake, Later, Marker, Refusal, Visitor, Written};
pub use message::Message;
pub use queue::{Channel, Entry, HandOff, Heard, Line, Lives, Name, Unread, Waiter, Waiters};
pub use server::{CAP, CLAMP_US, FENCE_MAX, FENCE_TTL_MS, LINE_TTL_MS, Server, VERSION};
pub use value::{Kind, Value};

use std::collections::BTreeMap;

/// A server with many keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeModel<K: Ord> {
    /// What every script sees.
    pub server: Server,
    keys: BTreeMap<K, KeyModel>,
}

impl<K: Ord + Clone> NodeModel<K> {
    /// An empty server.
    pub fn new(server: Server) -> Self {
        Self { server, keys: BTreeMap::new() }
    }

    /// One key beside the server it is on, for a script: `let (server, key) = node.key(&k); key.release(server, ..)`.
    pub fn key(&mut self, key: &K) -> (&Server, &mut KeyModel) {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.clone(), KeyModel::default());
        }
        let found = self.keys.get_mut(key).unwrap_or_else(|| unreachable!("it was put there"));
        (&self.server, found)
    }

    /// A restart without anything on disk: all that was acknowledged is forgotten. The clock goes on.
    pub fn restart_empty(&mut self) {
        self.keys.clear();
    }
}
