//! Tasks of one client that share holds to read, or pass permits on, on a backend where other clients claim too: a task that is
//! granted has a hold on the backend, a release ends the grant of one task only, and nothing is left.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod backend;
mod permits;
mod readers;
mod world;
