use super::chart_spec::{ChartLine, ChartSpec, Scale, columns};
use super::known::KNOWN;
use super::run::Run;
use crate::Failure;
use fencelock_load::LoadMode;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const SIZE: (u32, u32) = (960, 560);
/// The names are to the right of the plot, where no line passes.
const PLOT_WIDTH: u32 = 730;
const FONT: &str = "sans-serif";
const TEXT: RGBColor = RGBColor(34, 34, 34);
const FAINT: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(222, 222, 222);

/// One for each of [`KNOWN`]; those of one programming language have one hue. All are visible on the white background of the chart, so
/// the chart is the same on light and dark pages.
const COLOURS: [RGBColor; KNOWN.len()] = [
    RGBColor(200, 16, 46),
    RGBColor(240, 110, 120),
    RGBColor(20, 20, 20),
    RGBColor(130, 130, 130),
    RGBColor(0, 150, 170),
    RGBColor(20, 70, 160),
    RGBColor(60, 130, 220),
    RGBColor(135, 175, 235),
    RGBColor(20, 110, 40),
    RGBColor(90, 180, 80),
    RGBColor(190, 90, 0),
    RGBColor(235, 160, 50),
    RGBColor(80, 40, 140),
    RGBColor(140, 90, 200),
    RGBColor(200, 100, 180),
    RGBColor(150, 70, 0),
    RGBColor(205, 120, 20),
    RGBColor(245, 180, 80),
    RGBColor(60, 150, 70),
];

const QUICK: &str = "a quick run on a busy machine: do not quote";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the chart as SVG.
///
/// # Errors
/// If there is no data.
pub(crate) fn draw(chart_spec: &ChartSpec, run: &Run) -> Result<String, Failure> {
    let lines = chart_spec.lines(run);
    if lines.is_empty() {
        return Err(format!("{}: nothing was measured", chart_spec.file).into());
    }
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw(&words(chart_spec.title, (20, 16), 19, TEXT))?;
        root.draw(&words(chart_spec.note, (20, 42), 14, FAINT))?;
        if run.effort.is_quick() {
            root.draw(&words(QUICK, (590, 16), 14, COLOURS[0]))?;
        }
        let (left, right) = root.split_horizontally(PLOT_WIDTH);
        plot(&left, chart_spec, &lines)?;
        names(&right, &lines)?;
        root.present()?;
    }
    Ok(svg + "\n")
}

fn plot(area: &Area<'_>, chart_spec: &ChartSpec, lines: &[ChartLine]) -> Result<(), Failure> {
    let columns = columns(chart_spec.mode);
    let (low, high) = bounds(chart_spec.scale, lines);
    let steps = if chart_spec.scale == Scale::Share { 0.2 } else { 1.0 };
    let rows: Vec<f64> =
        std::iter::successors(Some(low), |row| Some(row + steps)).take_while(|row| *row < high + 0.01).collect();
    let across: Vec<f64> = (0..columns.len()).map(position).collect();
    let right = position(columns.len() - 1) + 0.1;
    let mut chart = ChartBuilder::on(area)
        .margin_top(66)
        .margin_left(10)
        .margin_bottom(8)
        .x_label_area_size(48)
        .y_label_area_size(66)
        .build_cartesian_2d(
            Axis { low: -0.1, high: right, lines: across },
            Axis { low, high: high + 0.02, lines: rows },
        )?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(FAINT)
        .label_style((FONT, 14).into_font().color(&TEXT))
        .x_desc("tasks, in up to four processes")
        .x_label_formatter(&|x| column_label(*x))
        .y_label_formatter(&|y| label(chart_spec.scale, *y))
        .draw()?;
    // fencelock is drawn last, on top of the others.
    for line in lines.iter().rev() {
        let (colour, width) = style(line.peer);
        let points = || line.points.iter().map(|point| (position(point.column), point.value));
        chart.draw_series(LineSeries::new(points(), colour.stroke_width(width)))?;
        for point in &line.points {
            let at = (position(point.column), point.value);
            if point.starved {
                chart.draw_series([Circle::new(at, 4, WHITE.filled()), Circle::new(at, 4, colour.stroke_width(2))])?;
            } else {
                chart.draw_series([Circle::new(at, 4, colour.filled())])?;
            }
        }
    }
    Ok(())
}

/// An evenly divided axis with lines at given positions.
struct Axis {
    low: f64,
    high: f64,
    lines: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        #[expect(clippy::cast_possible_truncation, reason = "pixels of a picture")]
        let pixels = (share * f64::from(limit.1 - limit.0)).round() as i32;
        limit.0 + pixels
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.lines.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {}

fn names(area: &Area<'_>, lines: &[ChartLine]) -> Result<(), Failure> {
    for (row, line) in lines.iter().enumerate() {
        let y = 84 + 28 * i32::try_from(row)?;
        let (colour, width) = style(line.peer);
        area.draw(&PathElement::new([(12, y), (44, y)], colour.stroke_width(width)))?;
        area.draw(&Circle::new((28, y), 4, colour.filled()))?;
        let title = KNOWN[line.peer].title.replace('`', "");
        let font = (FONT, 14).into_font().color(&TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(title, (52, y), font))?;
    }
    Ok(())
}

fn words(text: &str, at: (i32, i32), size: i32, colour: RGBColor) -> Text<'_, (i32, i32), &str> {
    Text::new(text, at, (FONT, size).into_font().color(&colour))
}

/// fencelock has a wider line.
fn style(peer: usize) -> (RGBColor, u32) {
    (COLOURS[peer], if KNOWN[peer].ours().is_some() { 4 } else { 2 })
}

fn bounds(scale: Scale, lines: &[ChartLine]) -> (f64, f64) {
    if scale == Scale::Share {
        return (0.0, 1.0);
    }
    let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.value);
    let low = values().fold(f64::INFINITY, f64::min).floor();
    (low, values().fold(low + 1.0, f64::max).ceil())
}

/// Columns have equal distances, because each has four times the tasks of the previous one.
fn position(column: usize) -> f64 {
    u32::try_from(column).map_or(0.0, f64::from)
}

fn column_label(x: f64) -> String {
    let found =
        columns(LoadMode::Exclusive).into_iter().enumerate().find(|(column, _)| (position(*column) - x).abs() < 0.01);
    found.map_or_else(String::new, |(_, cell)| cell.all_tasks().to_string())
}

fn label(scale: Scale, y: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "a row of the chart, or far less than 2^31 of them")]
    let power = y.round() as i32;
    match scale {
        Scale::Share => format!("{y:.1}"),
        Scale::Count => format!("{:.0}", 10_f64.powi(power)),
        Scale::Micros if power < 3 => format!("{:.0} us", 10_f64.powi(power)),
        Scale::Micros if power < 6 => format!("{:.0} ms", 10_f64.powi(power - 3)),
        Scale::Micros => format!("{:.0} s", 10_f64.powi(power - 6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_has_a_colour_and_its_name_fits() {
        for (at, colour) in COLOURS.iter().enumerate() {
            assert!(!COLOURS[..at].contains(colour), "{}", KNOWN[at].name);
        }
        for chart in super::super::chart_spec::ALL {
            let lines = KNOWN.iter().filter(|peer| peer.measures(chart.mode)).count();
            assert!(84 + 28 * lines < SIZE.1 as usize, "{}", chart.file);
            // The labels of all modes are those of exclusive locks.
            let tasks = |mode| columns(mode).iter().map(|cell| cell.all_tasks()).collect::<Vec<_>>();
            assert_eq!(tasks(chart.mode), tasks(LoadMode::Exclusive));
        }
        // A letter of this font is about 8 pixels wide.
        let widest = KNOWN.iter().map(|peer| peer.title.len()).max().unwrap_or_default();
        assert!(52 + 8 * widest <= (SIZE.0 - PLOT_WIDTH) as usize, "{widest}");
    }

    #[test]
    fn row_labels_have_a_suitable_unit() {
        let of = |scale, values: [f64; 3]| values.map(|value| label(scale, value)).join(" ");
        assert_eq!(of(Scale::Count, [0.0, 2.0, 5.0]), "1 100 100000");
        assert_eq!(of(Scale::Micros, [2.0, 4.0, 6.0]), "100 us 10 ms 1 s");
        assert_eq!(of(Scale::Share, [0.0, 0.6, 1.0]), "0.0 0.6 1.0");
        assert_eq!([column_label(0.0), column_label(4.0), column_label(0.5)], ["1", "256", ""]);
    }
}
