//! Locks of fencelock on any store with a conditional write.
//!
//! [`Register`] is what the store does: read the bytes of a key with their version, and write them if they still have this version.
//! [`RegisterLocks`] makes a [`Backend`](fencelock_core::Backend) of it, with exclusive locks, slots, several keys, elections, and
//! work once per window. [`fencelock_core::register`] decides, and says what the store must promise. [`MemoryRegister`] is such a store
//! in memory, for tests. Features add others.
//!
//! ```
//! use fencelock_core::{Acquire, Backend, Claim, Holder, HolderId, Intent, Key, Owner, Ttl};
//! use fencelock_register::{MemoryRegister, RegisterLocks};
//! use std::sync::Arc;
//!
//! # futures_util::future::FutureExt::now_or_never(async {
//! let locks = RegisterLocks::new(Arc::new(MemoryRegister::new()));
//! let (key, id) = (Key::new("orders").unwrap(), HolderId::from_bytes([7; 16]));
//! let holder = Holder { id, owner: Owner::new("web-1", 42, None).unwrap() };
//! let claim = Claim::new(key, holder, Ttl::default(), Intent::Try);
//! assert!(matches!(locks.acquire(&claim).await.answer, Ok(Acquire::Granted { .. })));
//! # }).unwrap();
//! ```
#![forbid(unsafe_code)]

mod in_memory;
#[cfg(feature = "kube")]
pub mod kube;
mod locks;
#[cfg(feature = "object-store")]
pub mod objects;
mod store;
#[cfg(any(feature = "kube", feature = "object-store"))]
mod web;

pub use in_memory::MemoryRegister;
pub use locks::RegisterLocks;
pub use store::{Found, Register, WriteReply};
