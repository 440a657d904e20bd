use fencelock_load::Workload;
use std::time::Duration;

/// The durations of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) span: Duration,
    pub(crate) warm_up: Duration,
    /// The results must not be quoted.
    pub(crate) is_quick: bool,
}

impl Effort {
    /// For the page.
    pub(crate) const FULL: Self =
        Self { span: Duration::from_secs(3), warm_up: Duration::from_millis(500), is_quick: false };
    /// For a test.
    pub(crate) const QUICK: Self =
        Self { span: Duration::from_millis(500), warm_up: Duration::from_millis(200), is_quick: true };
}

/// One measurement of each library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) workload: Workload,
    pub(crate) processes: u32,
    /// The number of tasks of each process.
    pub(crate) tasks: u32,
}

const fn cell(workload: Workload, processes: u32, tasks: u32) -> Cell {
    Cell { workload, processes, tasks }
}

/// All measurements, in this order.
pub(crate) const CELLS: [Cell; 7] = [
    cell(Workload::HotKey, 4, 1),
    cell(Workload::HotKey, 4, 4),
    cell(Workload::HotKey, 4, 16),
    cell(Workload::HotKey, 4, 64),
    cell(Workload::ManyKeys, 4, 16),
    cell(Workload::Uncontended, 1, 1),
    cell(Workload::Uncontended, 4, 16),
];

/// The sale before the measurements.
pub(crate) const SALE: Cell = cell(Workload::FlashSale, 2, 3);

impl Cell {
    /// The same number of tasks, each in its own process.
    pub(crate) const fn single(self) -> Self {
        Self { processes: self.processes * self.tasks, tasks: 1, ..self }
    }
}
