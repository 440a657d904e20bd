//! A model checker for lock schemes, and replays of its counterexamples on a real server.
//!
//! # Schemes
//!
//! A [`LockScheme`] is a list of lines: `SETNX`, `EXPIRE`, `GET` and so on. [`SchemeResults::of`] runs two or three clients of it
//! on a model of Redis with time. It tries every order of their steps and of the [`Fault`]s that may happen, and
//! reports for every [`Property`] whether it holds, or the smallest number of steps that violates it.
//!
//! ```
//! use fencelock_lab::{Fault, PropertyResult, Property, SchemeResults, find};
//!
//! let results = SchemeResults::of(find("set-nx-ex").unwrap());
//! let result = results.result(Property::OwnLockOnly);
//! assert!(matches!(result, PropertyResult::Breaks { fault: Some(Fault::Overrun), .. }));
//! ```
//!
//! # Bounds
//! Two or three clients, each of which acquires the lock at most once and tries at most twice; a lock lasts two ticks,
//! a search six. Each fault happens at most once, but overruns, pauses and clock differences persist. A command and its
//! reply are one step. Within these bounds, a search is complete.
#![forbid(unsafe_code)]
// Clients, ticks and servers are counted in bytes; there are only a few of each.
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]

mod columns;
mod describe;
mod diagram;
mod explore;
mod fault;
mod lang;
mod model;
mod not_replayed;
mod page;
mod property;
mod replay;
mod scheme;
mod scheme_results;
mod schemes;
mod server;
mod server_error;
mod svg;
mod table;
mod trace;
mod wire;

pub use diagram::diagram;
pub use fault::{Fault, Faults};
pub use lang::{Lang, Text};
pub use not_replayed::NotReplayed;
pub use page::{Page, page};
pub use property::Property;
pub use replay::{ReplayTarget, Replayed, replay};
pub use scheme::{Content, Home, Line, LockScheme, Op};
pub use scheme_results::{PropertyResult, SchemeResults};
pub use schemes::{catalog, find};
pub use server::single_server;
pub use table::table;
pub use trace::{Row, Trace, Who};
