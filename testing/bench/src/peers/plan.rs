use fencelock_lab::load::Workload;
use serde::{Deserialize, Serialize};

/// For how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// What counts, in milliseconds.
    pub span_ms: u64,
    /// What does not yet, in milliseconds.
    pub warm_up_ms: u64,
}

impl Effort {
    /// For the page.
    pub const FULL: Self = Self { span_ms: 3000, warm_up_ms: 500 };
    /// To see that everything works.
    pub const QUICK: Self = Self { span_ms: 500, warm_up_ms: 200 };

    /// Whether nobody should quote what comes out.
    pub fn is_quick(self) -> bool {
        self.span_ms < Self::FULL.span_ms
    }
}

/// One measurement of each library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// What tasks ask for.
    pub workload: Workload,
    /// How many processes there are.
    pub processes: u32,
    /// Tasks of each.
    pub tasks: u32,
}

const fn cell(workload: Workload, processes: u32, tasks: u32) -> Cell {
    Cell { workload, processes, tasks }
}

/// What is measured, in this order.
pub(crate) const CELLS: [Cell; 8] = [
    cell(Workload::Uncontended, 1, 1),
    cell(Workload::Uncontended, 4, 16),
    cell(Workload::ManyKeys, 4, 16),
    cell(Workload::HotKey, 1, 1),
    cell(Workload::HotKey, 4, 1),
    cell(Workload::HotKey, 4, 4),
    cell(Workload::HotKey, 4, 16),
    cell(Workload::HotKey, 4, 64),
];

/// What is sold before anything is measured.
pub(crate) const SALE: Cell = cell(Workload::FlashSale, 2, 3);

impl Cell {
    /// Tasks of all processes.
    pub const fn everybody(self) -> u32 {
        self.processes * self.tasks
    }

    /// The same tasks, each in a process of its own.
    pub(crate) const fn single(self) -> Self {
        Self { workload: self.workload, processes: self.processes * self.tasks, tasks: 1 }
    }
}
