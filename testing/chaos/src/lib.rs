//! Injects faults into real servers, networks, clocks and clients that use locks, and checks the recorded history.
//!
//! A *run* starts servers, each behind a proxy and with its own wall clock; *workers*, which are processes of this
//! program; another program that uses the same locks; and a *resource* that the locks protect. The
//! run injects one fault after another, by a schedule that the seed determines. All processes write a *history* with the
//! same clock, and the *checker* reads it at the end.
//!
//! *Controls* come first: the checker must flag a run without a protection; otherwise a clean run proves
//! nothing.
#![forbid(unsafe_code)]

pub mod checker;
mod connect;
mod control;
mod fault;
mod foreign;
pub mod history;
mod last_leader;
mod machine;
mod nemesis;
mod nodes;
mod outage;
mod partition;
mod phases;
mod plan;
mod pressure;
mod pulse;
mod recorder;
mod recovery;
mod resource;
mod resumption;
mod rng_ext;
mod run;
pub mod sim;
mod standby;
mod topology;
mod worker;
mod workers;
mod workload;

pub use fault::Fault;
pub use outage::{Outages, outages};
pub use phases::Settings;
pub use plan::{Plan, ScheduledFault};
pub use resumption::resumptions;
pub use run::{Run, run};
pub use topology::{Pooler, ServerArguments, Topology};
pub use worker::run_if_asked;

/// Why a run failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
