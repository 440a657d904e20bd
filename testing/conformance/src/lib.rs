//! What every [`Backend`](fencelock_core::Backend) must do.
//!
//! The suite speaks to a backend through its contract alone. Each case is an `async fn` that states a fact; it gets a
//! [`Place`] and asks it for as many clients as it needs. A place that lacks something a case is about is skipped by
//! name, with the reason in the report.
//!
//! ```no_run
//! use fencelock_conformance::{Place, Site, run};
//! use fencelock_core::{Backend, BoxFuture};
//! use std::sync::Arc;
//!
//! # async fn a_new_client_of_the_same_locks() -> Arc<dyn Backend> { std::future::pending().await }
//! struct MyPlace;
//!
//! impl Place for MyPlace {
//!     fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
//!         Box::pin(a_new_client_of_the_same_locks())
//!     }
//! }
//!
//! // In a test target with `harness = false`.
//! fn main() -> std::process::ExitCode {
//!     run(vec![Site::new("mine", || Ok(Box::new(MyPlace)))])
//! }
//! ```
//!
//! A new fact is an `async fn` in `cases/` with a line in the list above it. A fact that a backend could break without
//! anybody noticing is worth a lie in `fencelock-backends/tests/lies.rs`, which checks that the suite catches it.
#![forbid(unsafe_code)]

mod case;
mod cases;
mod ear;
mod in_time;
pub mod model;
mod place;
mod rival;
mod run;
mod site;

pub use place::{Foreign, ForeignTry, Place};
pub use run::{broken_facts, run, trials};
pub use site::Site;
