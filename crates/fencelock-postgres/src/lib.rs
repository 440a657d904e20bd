//! Locks of [fencelock](https://crates.io/crates/fencelock) in the tables of a PostgreSQL database: `postgres://`.
//!
//! A lock is a row with a lease. A crashed holder is freed by the end of its lease, and waiters are served in the order of their arrival.
//! Nothing depends on a session, so it works behind a pooler in transaction mode. The transaction that writes the data can check the
//! fencing token itself.
//!
//! [`PostgresScheme`] implements the URLs. `fencelock` includes it with its feature `postgres`.
//!
//! # Files
//! `sql` has the tables and functions, `schema` puts them into a database, `calls` sends values to them and reads their
//! replies. `url` is what names a server, `dial` opens a stream to it, a `session` is a connection, a `link` the connections of a client,
//! and its `hub` what they have in common. `postgres` is the backend, and `doctor` reports what works.
#![forbid(unsafe_code)]

mod calls;
mod dial;
mod doctor;
mod fault;
mod hub;
mod link;
mod postgres;
mod schema;
mod session;
mod url;

pub use postgres::{Postgres, PostgresScheme};
