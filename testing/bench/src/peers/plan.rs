use fencelock_lab::load::Workload;
use serde::{Deserialize, Serialize};

/// The durations of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// The measured time, in milliseconds.
    pub span_ms: u64,
    /// The warm-up, in milliseconds.
    pub warm_up_ms: u64,
}

impl Effort {
    /// For the page.
    pub const FULL: Self = Self { span_ms: 3000, warm_up_ms: 500 };
    /// For a test.
    pub const QUICK: Self = Self { span_ms: 500, warm_up_ms: 200 };

    /// Whether the results must not be quoted.
    pub fn is_quick(self) -> bool {
        self.span_ms < Self::FULL.span_ms
    }
}

/// One measurement of each library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The workload.
    pub workload: Workload,
    /// The number of processes.
    pub processes: u32,
    /// The number of tasks of each process.
    pub tasks: u32,
}

const fn cell(workload: Workload, processes: u32, tasks: u32) -> Cell {
    Cell { workload, processes, tasks }
}

/// All measurements, in this order.
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

/// The sale before the measurements.
pub(crate) const SALE: Cell = cell(Workload::FlashSale, 2, 3);

impl Cell {
    /// The number of tasks of all processes.
    pub const fn all_tasks(self) -> u32 {
        self.processes * self.tasks
    }

    /// The same number of tasks, each in its own process.
    pub(crate) const fn single(self) -> Self {
        Self { workload: self.workload, processes: self.processes * self.tasks, tasks: 1 }
    }
}
