use super::figures::Figures;
use super::plan::{Cell, Effort};
use crate::report::Machine;
use serde::{Deserialize, Serialize};

/// Everything that is known of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Month and year.
    pub when: String,
    /// Where.
    pub machine: Machine,
    /// For how long.
    pub effort: Effort,
    /// Who took part.
    pub present: Vec<Present>,
    /// Who could not.
    pub absent: Vec<Absent>,
    /// What was measured.
    pub measured: Vec<Measured>,
}

/// A library that took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// The peer.
    pub name: String,
    /// What is installed.
    pub version: String,
    /// What it sold before anything was measured; or why it could not.
    pub sale: Result<Sale, String>,
}

/// What was sold, and how much of it the stock does not know of: nothing, if the lock excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sale {
    /// How often something was sold.
    pub sold: u64,
    /// By how much less, or more, the stock fell.
    pub oversold: u64,
}

/// A library that is not here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// The peer.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// One measurement of one library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The peer.
    pub name: String,
    /// What was done.
    pub cell: Cell,
    /// What came of it; or why nothing did.
    pub figures: Result<Figures, String>,
}

impl Run {
    /// What a peer reached in a cell.
    pub fn figures(&self, name: &str, cell: Cell) -> Option<&Figures> {
        let found = self.measured.iter().find(|measured| measured.name == name && measured.cell == cell);
        found.and_then(|measured| measured.figures.as_ref().ok())
    }
}

impl Sale {
    /// Whether nobody sold what another was about to sell.
    pub const fn is_exact(self) -> bool {
        self.oversold == 0
    }
}
