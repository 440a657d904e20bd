use super::figures::Figures;
use super::known::KNOWN;
use super::plan::{CELLS, Cell};
use super::run::Run;
use fencelock_lab::load::Workload;

/// A chart of one contended key, against the number of tasks.
pub(crate) struct ChartSpec {
    /// The path below `docs`.
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) note: &'static str,
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
pub(crate) const ALL: [ChartSpec; 3] = [
    ChartSpec {
        file: "benchmarks/throughput.svg",
        title: "One key: grants per second",
        note: "more is better; fencelock: tasks of one process share a lease, unshared: each sends its own claims",
        scale: Scale::Count,
        value: |figures| Some(figures.per_s),
    },
    ChartSpec {
        file: "benchmarks/p99.svg",
        title: "One key: 99 of 100 grants came within",
        note: "less is better; hollow: some tasks had no grant, so they are in no percentile",
        scale: Scale::Micros,
        #[expect(clippy::cast_precision_loss, reason = "seconds in microseconds")]
        value: |figures| figures.p99_us.map(|micros| micros as f64),
    },
    ChartSpec {
        file: "benchmarks/fairness.svg",
        title: "One key: fairness (Jain's index)",
        note: "1: equal shares; hollow: some tasks had no grant",
        scale: Scale::Share,
        value: |figures| figures.jain,
    },
];

/// The points of one library.
pub(crate) struct Line {
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
pub(crate) fn columns() -> Vec<Cell> {
    CELLS.into_iter().filter(|cell| cell.workload == Workload::HotKey).collect()
}

impl ChartSpec {
    /// The lines of all libraries with results, the highest last value first, as the lines end from top to bottom.
    pub(crate) fn lines(&self, run: &Run) -> Vec<Line> {
        let of = |(peer, name): (usize, &str)| {
            let points: Vec<Point> =
                columns().into_iter().enumerate().filter_map(|at| self.point(run, name, at)).collect();
            (!points.is_empty()).then_some(Line { peer, points })
        };
        let mut lines: Vec<Line> = KNOWN.iter().map(|peer| peer.name).enumerate().filter_map(of).collect();
        let last = |line: &Line| line.points.last().map_or(f64::NEG_INFINITY, |point| point.value);
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
