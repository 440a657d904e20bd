//! The reports of the nodes of a cluster or a quorum (`nodes`), merged (`findings`) and compared (`compare`). `server`, `cluster` and
//! `quorum` each have a `doctor` that makes their own.

pub(crate) mod compare;
pub(crate) mod findings;
pub(crate) mod nodes;
