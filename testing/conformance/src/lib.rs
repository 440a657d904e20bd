//! The conformance suite for every [`Backend`](fencelock_core::Backend).
//!
//! The suite uses a backend only through its contract. Each case is an `async fn` that states a fact; it gets a
//! [`Fixture`] and creates as many clients as it needs. A case that needs a missing feature is skipped,
//! with the reason in the report.
//!
//! ```no_run
//! use fencelock_conformance::{Fixture, FixtureFactory, run};
//! use fencelock_core::{Backend, BoxFuture};
//! use std::sync::Arc;
//!
//! # async fn a_new_client_of_the_same_locks() -> Arc<dyn Backend> { std::future::pending().await }
//! struct MyFixture;
//!
//! impl Fixture for MyFixture {
//!     fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
//!         Box::pin(a_new_client_of_the_same_locks())
//!     }
//! }
//!
//! // In a test target with `harness = false`.
//! fn main() -> std::process::ExitCode {
//!     run(vec![FixtureFactory::new("mine", || Ok(Box::new(MyFixture)))])
//! }
//! ```
//!
//! `examples/polling.rs` is a whole backend with its fixture.
//!
//! A new fact is an `async fn` in `cases/` with a line in the list above it. If a backend could break a fact
//! unnoticed, add a defect to `tests/faulty_backends`, which checks that the suite detects it.
#![forbid(unsafe_code)]

mod case;
mod cases;
mod deadline;
mod event_recorder;
mod fixture;
mod fixture_factory;
mod run;
mod test_client;

pub use event_recorder::EventRecorder;
pub use fixture::{Fixture, Foreign, ForeignAttempt};
pub use fixture_factory::FixtureFactory;
pub use run::{broken_facts, run, trials};
