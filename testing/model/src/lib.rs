//! A model of one Redis node with the scripts of `fencelock-redis/src/scripts/lua`: their specification in Rust.
//!
//! No socket, no clock, no random source: time, refusals and the subscribers of channels are inputs. Simulators use it as a node,
//! and `fencelock-redis` compares it with the real scripts on a real server.
//!
//! ```
//! use fencelock_model::{Acquire, Claim, Gate, Delivery, KeyModel, Server};
//!
//! let server = Server::at(1_780_000_000_000_000);
//! let mut key = KeyModel::default();
//! let claim = Claim::try_for(7, 30_000, server.now_us);
//! let granted = key.acquire(&server, &claim, &Gate::Open, &mut |_| Delivery::Received).unwrap();
//! assert_eq!(granted, Acquire::Granted { fence: server.now_us, count: 1, unread: None });
//! ```

mod answer;
mod foreign;
mod holds;
mod key;
mod marker;
mod message;
mod queue;
mod scripts;
mod server;
mod tokens;
mod value;

pub use answer::{
    Acquire, Availability, Done, Downgrade, Evict, Inspect, Listed, ListedHold, Occupied, QueueScan, Raise, Refusal,
    Release, Renew, Resize, ScriptError,
};
pub use foreign::OnlyIfFree;
pub use holds::{HeldEntries, HeldEntry, Holds};
pub use key::{Claim, Fence, HoldKind, Intent, KeyModel, Lock};
pub use marker::{Expectation, Gate, Handshake, InitResult, Marker, MarkerContent, UnknownVersion};
pub use message::Message;
pub use queue::{Channel, Delivery, Entry, HandOff, Name, Unread, WaiterDeadlines, WaiterEntry, WaiterQueue, Waiters};
pub use scripts::Continued;
pub use server::{CAP, CLAMP_US, FENCE_MAX, FENCE_TTL_MS, LINE_TTL_MS, Server, VERSION};
pub use value::{Kind, Value};
