use super::figures::Figures;
use super::known::KNOWN;
use super::plan::{CELLS, Cell, PERMITS, READERS};
use super::run::Run;
use fencelock_lab::Text;
use fencelock_load::{LoadMode, Workload};

/// A chart of one contended key in one mode, against the number of tasks.
pub(crate) struct ChartSpec {
    /// The path below the directory of a language.
    pub(crate) file: &'static str,
    pub(crate) mode: LoadMode,
    pub(crate) title: Text,
    pub(crate) note: Text,
    /// What the picture shows, for its alternative text.
    pub(crate) shows: Text,
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
        file: "benchmarks/throughput.svg",
        mode: LoadMode::Exclusive,
        title: Text::new("One key: grants per second", "同一个 key：每秒加锁次数"),
        note: Text::new(
            "more is better; fencelock: tasks of one process share a lease, unshared: each sends its own claims",
            "越高越好；fencelock：同一进程的任务共用一个租约；unshared：每个任务各自请求",
        ),
        shows: Text::new(
            "One key, grants per second against the number of tasks",
            "同一个 key，每秒加锁次数与任务数的关系",
        ),
        scale: Scale::Count,
        value: per_s,
    },
    ChartSpec {
        file: "benchmarks/p99.svg",
        mode: LoadMode::Exclusive,
        title: Text::new("One key: 99 of 100 grants came within", "同一个 key：99% 的加锁等待不超过"),
        note: Text::new(
            "less is better; hollow: some tasks had no grant, so they are in no percentile",
            "越低越好；空心：有的任务一次也没有拿到锁，不计入百分位",
        ),
        shows: Text::new(
            "One key, 99th percentile of the waits against the number of tasks",
            "同一个 key，等待时间的 99 百分位与任务数的关系",
        ),
        scale: Scale::Micros,
        value: |figures| micros(figures.p99_us),
    },
    ChartSpec {
        file: "benchmarks/fairness.svg",
        mode: LoadMode::Exclusive,
        title: Text::new("One key: fairness (Jain's index)", "同一个 key：公平性（Jain 指数）"),
        note: Text::new(
            "1: equal shares; hollow: some tasks had no grant",
            "1：完全平均；空心：有的任务一次也没有拿到锁",
        ),
        shows: Text::new("One key, fairness against the number of tasks", "同一个 key，公平性与任务数的关系"),
        scale: Scale::Share,
        value: |figures| figures.jain,
    },
    ChartSpec {
        file: "benchmarks/readers.svg",
        mode: READERS,
        title: Text::new("Readers, 1 % writers: grants per second", "读锁，1% 写锁：每秒加锁次数"),
        note: Text::new(
            "one key; more is better; fencelock: readers of one process share a lease",
            "同一个 key；越高越好；fencelock：同一进程的读者共用一个租约",
        ),
        shows: Text::new(
            "One key, grants per second of readers and 1 % writers against the number of tasks",
            "同一个 key，读锁和 1% 写锁的每秒加锁次数与任务数的关系",
        ),
        scale: Scale::Count,
        value: per_s,
    },
    ChartSpec {
        file: "benchmarks/writers.svg",
        mode: READERS,
        title: Text::new("Readers, 1 % writers: the longest wait of a writer", "读锁，1% 写锁：写者最长的等待"),
        note: Text::new(
            "less is better; a writer that still waits at the end is not counted; hollow: some tasks had no grant",
            "越低越好；结束时仍在等待的写者不计入；空心：有的任务一次也没有拿到锁",
        ),
        shows: Text::new(
            "One key, the longest wait of a writer among readers against the number of tasks",
            "同一个 key，写者在读者中最长的等待与任务数的关系",
        ),
        scale: Scale::Micros,
        value: |figures| micros(figures.writer_longest_us),
    },
    ChartSpec {
        file: "benchmarks/permits.svg",
        mode: PERMITS,
        title: Text::new("16 permits: grants per second", "16 个许可：每秒授予次数"),
        note: Text::new(
            "one semaphore, one permit for each task; more is better",
            "一个信号量，每次一个许可；越高越好",
        ),
        shows: Text::new(
            "One semaphore of 16 permits, grants per second against the number of tasks",
            "一个有 16 个许可的信号量，每秒授予次数与任务数的关系",
        ),
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
