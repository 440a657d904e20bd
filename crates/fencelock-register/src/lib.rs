//! Locks of fencelock on any store with a conditional write.
//!
//! [`Register`] is what the store does: read the bytes of a key with their version, and write them if they still have this version.
//! [`RegisterLocks`] makes a [`Backend`](fencelock_core::Backend) of it, with exclusive locks, slots, several keys, elections, and
//! work once per window. [`fencelock_core::register`] decides, and says what the store must promise. Features add stores.
//!
//! ```
//! use fencelock_core::register::{Expect, Version};
//! use fencelock_core::{Acquire, Answer, Backend, Claim, Holder, HolderId, Intent, Key, Owner, Ttl};
//! use fencelock_register::{Found, Register, RegisterLocks, WriteReply};
//! use std::collections::HashMap;
//! use std::future::ready;
//! use std::sync::{Arc, Mutex};
//!
//! /// A store in memory. Its versions are numbers.
//! #[derive(Debug, Default)]
//! struct Memory(Mutex<HashMap<Key, (u64, Vec<u8>)>>);
//!
//! fn version(number: u64) -> Version {
//!     Version::new(number.to_string())
//! }
//!
//! impl Register for Memory {
//!     fn name(&self) -> String {
//!         "memory".into()
//!     }
//!
//!     fn read<'a>(&'a self, key: &'a Key) -> Answer<'a, Found> {
//!         let bytes = self.0.lock().unwrap().get(key).map(|(number, bytes)| (version(*number), bytes.clone()));
//!         Box::pin(ready(Ok(Found { bytes, modified: None, date: None })))
//!     }
//!
//!     fn write_if<'a>(&'a self, key: &'a Key, expect: &'a Expect, bytes: Vec<u8>) -> Answer<'a, WriteReply> {
//!         let mut stored = self.0.lock().unwrap();
//!         let number = stored.get(key).map(|(number, _)| *number);
//!         let reply = if number.map(version) == *expect {
//!             let next = number.unwrap_or(0) + 1;
//!             stored.insert(key.clone(), (next, bytes));
//!             WriteReply::Written { version: version(next), date: None }
//!         } else {
//!             WriteReply::Refused { why: String::new() }
//!         };
//!         Box::pin(ready(Ok(reply)))
//!     }
//!
//!     fn list(&self) -> Answer<'_, Vec<Key>> {
//!         Box::pin(ready(Ok(self.0.lock().unwrap().keys().cloned().collect())))
//!     }
//! }
//!
//! # futures_util::future::FutureExt::now_or_never(async {
//! let locks = RegisterLocks::new(Arc::new(Memory::default()));
//! let (key, id) = (Key::new("orders").unwrap(), HolderId::from_bytes([7; 16]));
//! let holder = Holder { id, owner: Owner::new("web-1", 42, None).unwrap() };
//! let claim = Claim::new(key, holder, Ttl::default(), Intent::Try);
//! assert!(matches!(locks.acquire(&claim).await.answer, Ok(Acquire::Granted { .. })));
//! # }).unwrap();
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "kube")]
pub mod kube;
mod locks;
#[cfg(feature = "object-store")]
pub mod objects;
mod store;
#[cfg(any(feature = "kube", feature = "object-store"))]
mod web;

pub use locks::RegisterLocks;
pub use store::{Found, Register, WriteReply};
