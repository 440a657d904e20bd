//! The whole run in one picture.

use super::scale::{LEFT, STYLE, Scale, WIDTH, float};
use super::timeline::{Span, Timeline, colour};
use crate::fault::Fault;
use crate::history::Outcome;
use fencelock_lab::svg::Svg;

const LANE: f64 = 15.0;
const KEY: f64 = 20.0;
const GRANTS: f64 = 60.0;
const TOKENS: f64 = 90.0;

pub(super) fn draw(timeline: &Timeline<'_>) -> String {
    let mut svg = Svg::new(STYLE, 1);
    let scale = Scale { from: timeline.begin, until: timeline.end };
    let lanes = Fault::ALL.iter().filter(|fault| count(timeline, **fault) > 0).count();
    let lanes = float(lanes as u64) * LANE;
    let keys = float(timeline.holds.len() as u64) * KEY;
    let tops = [18.0, 18.0 + lanes + 26.0, 18.0 + lanes + 26.0 + GRANTS + 26.0];
    let tokens = tops[2] + keys + 26.0;
    scale.draw(&mut svg, timeline.begin, 8.0, tokens + TOKENS);
    faults(&mut svg, timeline, scale, tops[0]);
    grants(&mut svg, timeline, scale, tops[1]);
    holders(&mut svg, timeline, scale, tops[2]);
    fences(&mut svg, timeline, scale, tokens);
    svg.finish((WIDTH, tokens + TOKENS + 24.0))
}

fn count(timeline: &Timeline<'_>, fault: Fault) -> usize {
    timeline.faults.iter().filter(|line| line.what.as_deref() == Some(fault.name())).count()
}

fn faults(svg: &mut Svg, timeline: &Timeline<'_>, scale: Scale, top: f64) {
    let mut y = top;
    for fault in Fault::ALL.into_iter().filter(|fault| count(timeline, *fault) > 0) {
        svg.text((LEFT - 8.0, y + 10.0), "end", fault.name());
        svg.line((LEFT, y + 6.0), (WIDTH - 14.0, y + 6.0), "stroke=\"#eee\"");
        for line in timeline.faults.iter().filter(|line| line.what.as_deref() == Some(fault.name())) {
            let x = scale.x(line.invoke_us);
            let width = (scale.x(line.return_us) - x).max(3.0);
            let fill = if line.excuses.is_empty() { "fill=\"#d9822b\"" } else { "fill=\"#c0392b\"" };
            svg.titled_rect((x, y + 1.0), (width, LANE - 4.0), fill, &format!("{} of {}", fault.name(), line.client));
        }
        y += LANE;
    }
}

/// Grants per time slice; below, losses and rejected writes.
fn grants(svg: &mut Svg, timeline: &Timeline<'_>, scale: Scale, top: f64) {
    let slices = 200;
    let mut counts = vec![0u64; slices];
    let slice = |at: u64| {
        let slice = float(at.saturating_sub(scale.from)) / scale.span() * 200.0;
        // A double from 0 to 200 fits.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let slice = slice as usize;
        slice.min(slices - 1)
    };
    for span in timeline.holds.values().flatten() {
        counts[slice(span.acquire.return_us)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let width = (WIDTH - LEFT - 14.0) / 200.0;
    for (slice, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = float(*count) / float(most) * (GRANTS - 14.0);
        let x = LEFT + float(slice as u64) * width;
        svg.titled_rect(
            (x, top + GRANTS - 14.0 - height),
            (width - 0.5, height),
            "fill=\"#9db8d2\"",
            &count.to_string(),
        );
    }
    let per_second = float(most) / (scale.span() / 200.0 / 1e6);
    svg.text((LEFT - 8.0, top + 10.0), "end", "grants");
    svg.text((LEFT - 8.0, top + 24.0), "end faint", &format!("at most {per_second:.0}/s"));
    for (lines, style) in [
        (
            timeline.losses.iter().map(|line| line.return_us).collect::<Vec<_>>(),
            "stroke=\"#c0392b\" stroke-width=\"1.5\"",
        ),
        (refusals(timeline), "stroke=\"#7d3cb5\" stroke-width=\"1.5\""),
    ] {
        for at in lines {
            let offset = if style.contains("c0392b") { 0.0 } else { 7.0 };
            svg.line((scale.x(at), top + GRANTS - 11.0 + offset), (scale.x(at), top + GRANTS - 5.0 + offset), style);
        }
    }
    svg.text((LEFT - 8.0, top + GRANTS - 2.0), "end faint", "losses / refused writes");
}

fn refusals(timeline: &Timeline<'_>) -> Vec<u64> {
    timeline.writes.iter().filter(|line| line.result == Outcome::Fail).map(|line| line.return_us).collect()
}

fn holders(svg: &mut Svg, timeline: &Timeline<'_>, scale: Scale, top: f64) {
    let mut y = top;
    for (key, spans) in &timeline.holds {
        svg.text((LEFT - 8.0, y + 12.0), "end", &format!("holders of {key}"));
        for (x, width, colour) in runs(spans, scale) {
            svg.rect((x, y), (width.max(0.8), KEY - 5.0), &format!("fill=\"{colour}\""));
        }
        y += KEY;
    }
}

/// Consecutive holds of one process within a pixel are one bar, because a long run has a million.
fn runs(spans: &[Span<'_>], scale: Scale) -> Vec<(f64, f64, &'static str)> {
    let mut runs: Vec<(f64, f64, &'static str)> = Vec::new();
    for span in spans {
        let (x, end) = (scale.x(span.acquire.return_us), scale.x(span.until));
        let colour = colour(&span.acquire.client);
        match runs.last_mut() {
            Some((from, width, last))
                if *from + *width + 0.8 >= x && (*last == colour || end < *from + *width + 0.8) =>
            {
                *width = width.max(end - *from);
            }
            _ => runs.push((x, (end - x).max(0.8), colour)),
        }
    }
    runs
}

/// The difference between each token and the time of its grant. A decreasing token would be below the previous one by more
/// than the time between them.
fn fences(svg: &mut Svg, timeline: &Timeline<'_>, scale: Scale, top: f64) {
    let grants: Vec<_> =
        timeline.holds.values().flatten().filter_map(|span| Some((span.acquire, span.acquire.fence?))).collect();
    let offset = |(line, fence): &(&crate::history::HistoryLine, u64)| i128::from(*fence) - i128::from(line.return_us);
    let mut offsets: Vec<i128> = grants.iter().map(offset).collect();
    offsets.sort_unstable();
    let Some(median) = offsets.get(offsets.len() / 2).copied() else { return };
    let (low, high) = (offsets[0] - median, offsets[offsets.len() - 1] - median);
    let (low, high) = (low.min(-50_000), high.max(50_000));
    #[allow(clippy::cast_precision_loss, reason = "pixels")]
    let y = |off: i128| top + TOKENS - (off - low) as f64 / (high - low) as f64 * TOKENS;
    svg.line((LEFT, y(0)), (WIDTH - 14.0, y(0)), "stroke=\"#bbb\" stroke-dasharray=\"3 3\"");
    svg.text((LEFT - 8.0, top + 10.0), "end", "token minus its time");
    svg.text((LEFT - 8.0, top + 24.0), "end faint", &format!("{} to +{} ms", low / 1000, high / 1000));
    let mut colours: Vec<&str> = grants.iter().map(|(line, _)| colour(&line.client)).collect();
    colours.sort_unstable();
    colours.dedup();
    for of in colours {
        let mine = grants.iter().filter(|(line, _)| colour(&line.client) == of);
        let points: Vec<_> = mine.map(|grant| (scale.x(grant.0.return_us), y(offset(grant) - median))).collect();
        svg.dots(&points, of);
    }
}
