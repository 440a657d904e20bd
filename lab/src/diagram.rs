//! A counterexample as a sequence diagram: a lane for each client and one for Redis, with time from top to bottom.

use crate::columns::{width, wrapped};
use crate::describe;
use crate::svg::Svg;
use crate::trace::{Row, Trace, Who};

/// The distance between two lanes, in pixels.
const LANE: f64 = 270.0;
const LEFT: f64 = 90.0;
/// The space for the state of the lock, to the right of the last lane.
const NOTES: f64 = 260.0;
const TOP: f64 = 116.0;
const ROW: f64 = 46.0;
const TICK_ROW: f64 = 30.0;
const COLOURS: [&str; 3] = ["#2563a8", "#a8590b", "#5b3fa0"];
const BAD: &str = "#b3261e";

/// Draws a trace as an SVG picture.
pub fn diagram(trace: &Trace) -> String {
    let picture = Picture { trace, redis: LEFT + f64::from(trace.clients) * LANE };
    let mut svg = Svg::default();
    let heights: Vec<f64> = trace.rows.iter().map(height).collect();
    let bottom = TOP + heights.iter().sum::<f64>();
    picture.heading(&mut svg);
    picture.lanes(&mut svg, bottom);
    picture.spans(&mut svg, &heights);
    let mut y = TOP;
    for (at, (row, height)) in trace.rows.iter().zip(&heights).enumerate() {
        let before = at.checked_sub(1).map(|at| trace.rows[at].lock.as_str());
        picture.row(&mut svg, row, at + 1, y + height / 2.0, before);
        y += height;
    }
    let end = picture.verdict(&mut svg, bottom + 14.0);
    svg.finish((picture.redis + NOTES, end))
}

const fn height(row: &Row) -> f64 {
    if matches!(row.who, Who::Time) { TICK_ROW } else { ROW }
}

struct Picture<'t> {
    trace: &'t Trace,
    /// The lane of Redis.
    redis: f64,
}

impl Picture<'_> {
    fn heading(&self, svg: &mut Svg) {
        svg.text((20.0, 30.0), "head", &format!("{}: {}", self.trace.scheme, self.trace.title));
        svg.text((20.0, 54.0), "faint", &self.trace.headline());
    }

    fn x(client: u8) -> f64 {
        LEFT + f64::from(client) * LANE
    }

    fn lanes(&self, svg: &mut Svg, bottom: f64) {
        let clients = (0..self.trace.clients)
            .map(|client| (Self::x(client), describe::name(client), COLOURS[usize::from(client) % COLOURS.len()]));
        for (x, name, colour) in clients.chain([(self.redis, "Redis".to_owned(), "#444")]) {
            svg.line((x, TOP - 14.0), (x, bottom + 8.0), "stroke=\"#bbb\" stroke-width=\"1.5\"");
            svg.rect((x - 38.0, TOP - 40.0), (76.0, 26.0), &format!("rx=\"5\" fill=\"{colour}\""));
            svg.text((x, TOP - 22.0), "mid lane", &name);
        }
    }

    /// The bars that show which clients are working and which one owns the lock.
    fn spans(&self, svg: &mut Svg, heights: &[f64]) {
        let mut y = TOP;
        let mut owner = None;
        let mut inside = vec![false; usize::from(self.trace.clients)];
        for (at, (row, height)) in self.trace.rows.iter().zip(heights).enumerate() {
            let last = at + 1 == heights.len();
            let (from, to) = (y + height / 2.0, y + height / 2.0 + if last { 22.0 } else { gap(heights, at) });
            owner = row.owner.or(owner.filter(|_| row.owner.is_some()));
            if let Some(owner) = owner {
                let style = format!("fill=\"{}\" opacity=\"0.75\"", COLOURS[usize::from(owner) % COLOURS.len()]);
                svg.rect((self.redis - 5.0, from), (10.0, to - from), &style);
            }
            for (client, at_work) in (0..self.trace.clients).zip(&row.inside) {
                inside[usize::from(client)] = *at_work;
            }
            let together = inside.iter().filter(|inside| **inside).count() > 1;
            for (client, _) in (0..self.trace.clients).zip(&inside).filter(|(_, inside)| **inside) {
                let colour = if together { BAD } else { COLOURS[usize::from(client) % COLOURS.len()] };
                svg.rect(
                    (Self::x(client) - 6.0, from),
                    (12.0, to - from),
                    &format!("fill=\"{colour}\" opacity=\"0.55\""),
                );
            }
            y += height;
        }
    }

    fn row(&self, svg: &mut Svg, row: &Row, number: usize, y: f64, before: Option<&str>) {
        let last = number == self.trace.rows.len();
        let colour = if last { BAD } else { "#333" };
        if row.who != Who::Time {
            svg.text((34.0, y + 5.0), "end faint", &number.to_string());
        }
        match row.who {
            Who::Time => {
                let style = "stroke=\"#c9c9c9\" stroke-dasharray=\"5 5\"";
                svg.line((48.0, y), (self.redis + NOTES - 16.0, y), style);
                let tick = match self.trace.lang() {
                    crate::Lang::En => format!("tick {}", row.tick),
                    crate::Lang::Zh => format!("第 {} 拍", row.tick),
                };
                svg.text((self.redis - LANE / 2.0, y - 4.0), "mid faint", &tick);
            }
            Who::Servers => svg.text((self.redis - 14.0, y + 5.0), "end bad", &row.operation),
            Who::Client(client) if row.is_command => self.arrow(svg, row, Self::x(client), y, colour),
            Who::Client(client) => {
                let class = if row.fails || last { "bad" } else { "" };
                svg.text((Self::x(client) + 14.0, y + 5.0), class, &row.operation);
                if row.fails {
                    cross(svg, (Self::x(client), y));
                }
            }
        }
        if before != Some(row.lock.as_str()) {
            svg.text((self.redis + 16.0, y + if row.who == Who::Time { 14.0 } else { 5.0 }), "mono", &row.lock);
        }
    }

    /// A command to Redis, and its reply.
    fn arrow(&self, svg: &mut Svg, row: &Row, x: f64, y: f64, colour: &str) {
        let (from, to) = (x + 8.0, self.redis - 8.0);
        let end = if row.fails { from + (LANE - 40.0) } else { to };
        let dash = if row.fails { " stroke-dasharray=\"4 4\"" } else { "" };
        svg.line((from, y + 4.0), (end - 8.0, y + 4.0), &format!("stroke=\"{colour}\" stroke-width=\"1.4\"{dash}"));
        if row.fails {
            cross(svg, (end, y + 4.0));
        } else {
            svg.head((end, y + 4.0), true, colour);
        }
        let reply = row.reply.as_ref().map(|reply| format!(" \u{2192} {reply}")).unwrap_or_default();
        let label = format!("{}{reply}", row.operation);
        // A white background, so that lanes do not cross the text.
        let room = cells(width(&label));
        svg.rect((x + 12.0, y - 13.0), (room + 4.0, 15.0), "fill=\"#fff\" opacity=\"0.9\"");
        let class = if colour == BAD { "mono bad" } else { "mono" };
        svg.text((x + 14.0, y - 2.0), class, &label);
    }

    /// The violation, below all lanes. Returns the lower end of the picture.
    fn verdict(&self, svg: &mut Svg, y: f64) -> f64 {
        let right = self.redis + NOTES;
        svg.rect((20.0, y), (right - 40.0, 32.0), "rx=\"5\" fill=\"#fbe9e7\" stroke=\"#b3261e\"");
        let breach = format!("\u{2717} {}", self.trace.breach);
        svg.text((right / 2.0, y + 21.0), "mid bad", &breach);
        let mut below = y + 54.0;
        for line in wrapped(self.trace.advice, 30 + 38 * usize::from(self.trace.clients)) {
            svg.text((24.0, below), "", &line);
            below += 19.0;
        }
        below
    }
}

/// The width of `count` characters of the small fixed font, in pixels.
fn cells(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) * 7.4
}

fn gap(heights: &[f64], at: usize) -> f64 {
    f64::midpoint(heights[at], heights[at + 1])
}

fn cross(svg: &mut Svg, (x, y): (f64, f64)) {
    let style = "stroke=\"#b3261e\" stroke-width=\"3\"";
    svg.line((x - 7.0, y - 7.0), (x + 7.0, y + 7.0), style);
    svg.line((x - 7.0, y + 7.0), (x + 7.0, y - 7.0), style);
}
