//! What works on a server, a cluster or a quorum, and what follows for its locks. It only reads, except `trial`.
//!
//! | file | what |
//! |---|---|
//! | `server`, `cluster`, `quorum`, `sentinels` | the report about each |
//! | `nodes`, `findings`, `compare` | the reports of several servers, merged and compared |
//! | `features`, `health`, `product`, `topology`, `separation`, `scan` | what one server is, does and stores |
//! | `trial` | tries what a lock does, and takes it back |

pub(crate) mod cluster;
pub(crate) mod compare;
pub(crate) mod features;
pub(crate) mod findings;
pub(crate) mod health;
pub(crate) mod nodes;
pub(crate) mod product;
pub(crate) mod quorum;
pub(crate) mod scan;
pub(crate) mod sentinels;
pub(crate) mod separation;
pub(crate) mod server;
pub(crate) mod topology;
pub(crate) mod trial;
