//! One fault in detail: holders, writes, and rejected writes.

use super::scale::{LEFT, STYLE, Scale, WIDTH, float};
use super::timeline::{Span, Timeline, colour};
use crate::history::{HistoryLine, Outcome};
use fencelock_lab::svg::Svg;

const ROW: f64 = 18.0;
const GAP: f64 = 12.0;
const TOP: f64 = 26.0;
/// The time shown before the fault.
const BEFORE_US: u64 = 500_000;
const AFTER_US: u64 = 1_500_000;

pub(super) fn draw<'a>(timeline: &Timeline<'a>, fault: &HistoryLine) -> String {
    let scale = Scale {
        from: fault.invoke_us.saturating_sub(BEFORE_US).max(timeline.begin),
        until: (fault.return_us + AFTER_US).min(timeline.end),
    };
    let lanes: Vec<_> = timeline.holds.iter().map(|(key, spans)| (*key, stack(spans, scale))).collect();
    let height: f64 = lanes.iter().map(|(_, rows)| float(rows.len() as u64) * ROW + GAP).sum();
    let mut svg = Svg::new(STYLE, 1);
    let (x, end) = (scale.x(fault.invoke_us), scale.x(fault.return_us));
    svg.rect((x, TOP - 8.0), ((end - x).max(2.0), height + 8.0), "fill=\"#fbe3cf\"");
    svg.text((x, TOP - 12.0), "", fault.what.as_deref().unwrap_or_default());
    scale.draw(&mut svg, timeline.begin, TOP - 8.0, TOP + height);
    let shown = |lines: &[&'a HistoryLine]| -> Vec<_> {
        lines.iter().copied().filter(|line| scale.shows(line.return_us, line.return_us)).collect()
    };
    let (writes, losses) = (shown(&timeline.writes), shown(&timeline.losses));
    let mut y = TOP;
    for (key, rows) in lanes {
        svg.text((LEFT - 8.0, y + 13.0), "end", key);
        for row in rows {
            for span in row {
                hold(&mut svg, [&writes, &losses], scale, span, y);
            }
            y += ROW;
        }
        y += GAP;
    }
    svg.finish((WIDTH, TOP + height + 22.0))
}

/// Arranges holds in rows without overlap; with exclusion, one row is enough.
fn stack<'a>(spans: &[Span<'a>], scale: Scale) -> Vec<Vec<Span<'a>>> {
    let mut rows: Vec<Vec<Span<'a>>> = vec![Vec::new()];
    for span in spans.iter().filter(|span| scale.shows(span.acquire.return_us, span.until)) {
        let is_free = |row: &Vec<Span<'_>>| row.last().is_none_or(|last| last.until <= span.acquire.return_us);
        match rows.iter().position(is_free) {
            Some(row) => rows[row].push(*span),
            None => rows.push(vec![*span]),
        }
    }
    rows
}

fn hold(svg: &mut Svg, [writes, losses]: [&[&HistoryLine]; 2], scale: Scale, span: Span<'_>, y: f64) {
    let line = span.acquire;
    let (x, end) = (scale.x(line.return_us), scale.x(span.until));
    let token = line.fence.map_or("no token".to_owned(), |fence| format!("token {fence}"));
    let title =
        format!("{} held {} for {} ms with {token}", line.client, line.key, (span.until - line.return_us) / 1000);
    svg.titled_rect((x, y), (end - x, ROW - 4.0), &format!("rx=\"2\" fill=\"{}\"", colour(&line.client)), &title);
    // About six pixels for each character.
    let room = (end - x) / 5.6;
    let short = line.fence.map_or(String::new(), |fence| format!(" …{:07}", fence % 10_000_000));
    for text in [format!("{}{short}", line.client), line.client.clone()] {
        if float(text.chars().count() as u64) < room {
            svg.text((x + 3.0, y + 10.0), "small", &text);
            break;
        }
    }
    let mine = |other: &&&HistoryLine| other.holder == line.holder;
    for write in writes.iter().filter(mine) {
        let style = if write.result == Outcome::Fail {
            "stroke=\"#c0392b\" stroke-width=\"2.5\""
        } else {
            "stroke=\"#111\" stroke-width=\"1\""
        };
        let x = scale.x(write.return_us);
        svg.line((x, y + ROW - 6.0), (x, y + ROW), style);
        if write.result == Outcome::Fail {
            svg.text((x + 3.0, y + ROW + 2.0), "", "refused");
        }
    }
    for lost in losses.iter().filter(mine) {
        let x = scale.x(lost.return_us);
        svg.line((x, y - 4.0), (x, y + ROW - 2.0), "stroke=\"#c0392b\" stroke-width=\"2\"");
    }
}
