use fencelock_load::{LoadMode, Workload};
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
    /// The locks that the tasks request.
    #[serde(default, skip_serializing_if = "is_exclusive")]
    pub mode: LoadMode,
}

fn is_exclusive(mode: &LoadMode) -> bool {
    *mode == LoadMode::Exclusive
}

const fn cell(workload: Workload, processes: u32, tasks: u32) -> Cell {
    Cell { workload, processes, tasks, mode: LoadMode::Exclusive }
}

const fn hot(mode: LoadMode, processes: u32, tasks: u32) -> Cell {
    Cell { workload: Workload::HotKey, processes, tasks, mode }
}

/// Readers, with one writer in a hundred.
pub(crate) const READERS: LoadMode = LoadMode::Shared { writers_ppm: 10_000 };
/// Readers alone.
pub(crate) const READERS_ONLY: LoadMode = LoadMode::Shared { writers_ppm: 0 };
/// One permit of sixteen.
pub(crate) const PERMITS: LoadMode = LoadMode::Permits { limit: 16, weight: 1 };

/// All measurements, in this order.
pub(crate) const CELLS: [Cell; 19] = [
    cell(Workload::Uncontended, 1, 1),
    cell(Workload::Uncontended, 4, 16),
    cell(Workload::ManyKeys, 4, 16),
    cell(Workload::HotKey, 1, 1),
    cell(Workload::HotKey, 4, 1),
    cell(Workload::HotKey, 4, 4),
    cell(Workload::HotKey, 4, 16),
    cell(Workload::HotKey, 4, 64),
    hot(READERS, 1, 1),
    hot(READERS, 4, 1),
    hot(READERS, 4, 4),
    hot(READERS, 4, 16),
    hot(READERS, 4, 64),
    hot(PERMITS, 1, 1),
    hot(PERMITS, 4, 1),
    hot(PERMITS, 4, 4),
    hot(PERMITS, 4, 16),
    hot(PERMITS, 4, 64),
    hot(READERS_ONLY, 1, 64),
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
        Self { processes: self.processes * self.tasks, tasks: 1, ..self }
    }
}
