use super::figures::Figures;
use super::plan::{Cell, Effort};
use crate::report::Machine;
use serde::{Deserialize, Serialize};

/// All data of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Month and year.
    pub when: String,
    /// The machine.
    pub machine: Machine,
    /// The durations.
    pub effort: Effort,
    /// The libraries that took part.
    pub present: Vec<Present>,
    /// The libraries that are not installed.
    pub absent: Vec<Absent>,
    /// The measurements.
    pub measured: Vec<Measured>,
    /// Shared grants per second of tasks in one process that use all cores, without a runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_shared_per_s: Option<f64>,
}

/// A library that took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// The peer.
    pub name: String,
    /// The installed version.
    pub version: String,
    /// The sale before the measurements; or why it failed. `None` for locks that are not exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sale: Option<Result<Sale, String>>,
}

/// The number of sales, and how many of them the stock misses: zero with mutual exclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sale {
    /// The number of recorded sales.
    pub sold: u64,
    /// The difference between the sales and the decrease of the stock.
    pub oversold: u64,
}

/// A library that is not installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// The peer.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// A measurement of one library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The peer.
    pub name: String,
    /// The measurement.
    pub cell: Cell,
    /// The result; or why it failed.
    pub figures: Result<Figures, String>,
}

impl Run {
    /// The figures of a peer in a cell.
    pub fn figures(&self, name: &str, cell: Cell) -> Option<&Figures> {
        let found = self.measured.iter().find(|measured| measured.name == name && measured.cell == cell);
        found.and_then(|measured| measured.figures.as_ref().ok())
    }
}

impl Sale {
    /// Whether no two sales overlapped.
    pub const fn is_exact(self) -> bool {
        self.oversold == 0
    }
}
