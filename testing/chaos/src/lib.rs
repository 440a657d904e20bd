//! Breaks real servers, networks, clocks and clients while locks are taken, and checks what happened.
//!
//! A *run* starts servers, each behind a proxy and with a wall clock of its own; *workers*, which are processes of this
//! very program; another program that takes the same locks in its own way; and a *resource* that the locks protect. The
//! *conductor* does one fault after another by a schedule that follows from the seed. Everybody writes a *history* on the
//! clock that all processes of the machine share, and the *checker* reads it when all is over.
//!
//! First come the *controls*: what breaks without a protection must be found by the checker, or a clean run proves
//! nothing.
#![forbid(unsafe_code)]

pub mod checker;
mod conductor;
mod control;
mod fault;
mod foreign;
mod form;
pub mod history;
mod luck;
mod machine;
mod nodes;
mod plan;
mod pressure;
mod recorder;
pub mod report;
mod resource;
pub mod sim;
mod stage;
mod standby;
mod worker;
mod workers;

pub use conductor::{Run, Settings, run};
pub use fault::Fault;
pub use form::Form;
pub use plan::{Plan, Step};
pub use worker::run_if_asked;

/// Why a run failed, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
