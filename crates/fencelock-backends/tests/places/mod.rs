//! A file for each place where the suite runs.

pub(crate) mod file;
pub(crate) mod memory;
pub(crate) mod memory_clocked;
pub(crate) mod memory_leases;
pub(crate) mod quorum;
pub(crate) mod redis;
