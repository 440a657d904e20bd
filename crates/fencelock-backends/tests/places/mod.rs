//! A file for each place where the suite runs.

pub(crate) mod memory;
pub(crate) mod memory_leases;
