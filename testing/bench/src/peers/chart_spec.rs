use super::figures::Figures;
use super::known::KNOWN;
use super::plan::{CELLS, Cell, PERMITS, READERS};
use super::run::Run;
use fencelock_load::{LoadMode, Workload};

/// A chart of one contended key in one mode, against the number of tasks.
pub(crate) struct ChartSpec {
    /// The path below [`super::docs`].
    pub(crate) file: &'static str,
    pub(crate) mode: LoadMode,
    pub(crate) title: &'static str,
    pub(crate) note: &'static str,
    /// What the picture shows, for its alternative text.
    pub(crate) shows: &'static str,
    pub(crate) scale: Scale,
    value: fn(&Figures) -> Option<f64>,
}

/// The scale and format of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// A number, with a logarithmic scale.
    Count,
    /// Microseconds, with a logarithmic scale.
    Micros,
    /// From 0 to 1.
    Share,
}

/// All charts.
pub(crate) const ALL: [ChartSpec; 6] = [
    ChartSpec {
        file: "throughput.svg",
        mode: LoadMode::Exclusive,
        title: "One key: grants per second",
        note: "more is better; fencelock: tasks of one process share a lease, unshared: each sends its own claims",
        shows: "One key, grants per second against the number of tasks",
        scale: Scale::Count,
        value: per_s,
    },
    ChartSpec {
        file: "p99.svg",
        mode: LoadMode::Exclusive,
        title: "One key: 99 of 100 grants came within",
        note: "less is better; hollow: some tasks had no grant, so they are in no percentile",
        shows: "One key, 99th percentile of the waits against the number of tasks",
        scale: Scale::Micros,
        value: |figures| micros(figures.p99_us),
    },
    ChartSpec {
        file: "fairness.svg",
        mode: LoadMode::Exclusive,
        title: "One key: fairness (Jain's index)",
        note: "1: equal shares; hollow: some tasks had no grant",
        shows: "One key, fairness against the number of tasks",
        scale: Scale::Share,
        value: |figures| figures.jain,
    },
    ChartSpec {
        file: "readers.svg",
        mode: READERS,
        title: "Readers, 1 % writers: grants per second",
        note: "one key; more is better; fencelock: readers of one process share a lease",
        shows: "One key, grants per second of readers and 1 % writers against the number of tasks",
        scale: Scale::Count,
        value: per_s,
    },
    ChartSpec {
        file: "writers.svg",
        mode: READERS,
        title: "Readers, 1 % writers: the longest wait of a writer",
        note: "less is better; a writer that still waits at the end is not counted; hollow: some tasks had no grant",
        shows: "One key, the longest wait of a writer among readers against the number of tasks",
        scale: Scale::Micros,
        value: |figures| micros(figures.writer_longest_us),
    },
    ChartSpec {
        file: "permits.svg",
        mode: PERMITS,
        title: "16 permits: grants per second",
        note: "one semaphore, one permit for each task; more is better",
        shows: "One semaphore of 16 permits, grants per second against the number of tasks",
        scale: Scale::Count,
        value: per_s,
    },
];

#[expect(clippy::unnecessary_wraps, reason = "the type of a value of a chart")]
fn per_s(figures: &Figures) -> Option<f64> {
    Some(figures.per_s)
}

#[expect(clippy::cast_precision_loss, reason = "seconds in microseconds")]
fn micros(micros: Option<u64>) -> Option<f64> {
    micros.map(|micros| micros as f64)
}

/// The points of one library.
pub(crate) struct ChartLine {
    /// Its index in [`KNOWN`], which determines its colour in all charts.
    pub(crate) peer: usize,
    pub(crate) points: Vec<Point>,
}

pub(crate) struct Point {
    /// The index in [`columns`].
    pub(crate) column: usize,
    /// The value on the scale; for a number, its decimal logarithm.
    pub(crate) value: f64,
    pub(crate) starved: bool,
}

/// The values of the horizontal axis.
pub(crate) fn columns(mode: LoadMode) -> Vec<Cell> {
    CELLS.into_iter().filter(|cell| cell.workload == Workload::HotKey && cell.mode == mode).collect()
}

impl ChartSpec {
    /// The lines of all libraries with results, the highest last value first, as the lines end from top to bottom.
    pub(crate) fn lines(&self, run: &Run) -> Vec<ChartLine> {
        let of = |(peer, name): (usize, &str)| {
            let points: Vec<Point> =
                columns(self.mode).into_iter().enumerate().filter_map(|at| self.point(run, name, at)).collect();
            (!points.is_empty()).then_some(ChartLine { peer, points })
        };
        let mut lines: Vec<ChartLine> = KNOWN.iter().map(|peer| peer.name).enumerate().filter_map(of).collect();
        let last = |line: &ChartLine| line.points.last().map_or(f64::NEG_INFINITY, |point| point.value);
        lines.sort_by(|a, b| last(b).total_cmp(&last(a)));
        lines
    }

    fn point(&self, run: &Run, name: &str, (column, cell): (usize, Cell)) -> Option<Point> {
        let figures = run.figures(name, cell)?;
        let value = (self.value)(figures)?;
        let value = if self.scale == Scale::Share { value } else { value.max(1.0).log10() };
        Some(Point { column, value, starved: figures.starved > 0 })
    }
}
