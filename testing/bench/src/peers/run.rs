use super::known::Peer;
use super::plan::{Cell, Effort};
use fencelock_load::{LoadReport, Sale};

/// All data of one run.
pub(crate) struct Run {
    /// Month and year.
    pub(crate) when: String,
    pub(crate) machine: String,
    pub(crate) effort: Effort,
    /// The libraries that took part, their versions, and the sale before the measurements, or why it failed.
    pub(crate) present: Vec<(&'static Peer, String, Result<Sale, String>)>,
    /// The libraries that are not installed, and why.
    pub(crate) absent: Vec<(&'static Peer, String)>,
    /// The reports, or why there is none.
    pub(crate) measured: Vec<(&'static Peer, Cell, Result<LoadReport, String>)>,
    /// Shared grants per second of tasks in one process that use all cores, without a runner.
    pub(crate) local_shared_per_s: f64,
}
