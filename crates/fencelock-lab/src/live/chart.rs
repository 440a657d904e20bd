//! Draws the scores as a bar chart.

use super::WorkloadKind;
use super::score::{Score, headline};
use crate::columns::wrapped;
use crate::lang::Lang;
use crate::svg::{STYLE, Svg};

const LEFT: f64 = 190.0;
const BAR: f64 = 420.0;
/// Where the second column begins: answers per second.
const SECOND: f64 = LEFT + BAR + 130.0;
const SPEED: f64 = 150.0;
const WIDTH: f64 = SECOND + SPEED + 80.0;
/// The start of the bars below a title of one line.
const TOP: f64 = 104.0;
const LINE: f64 = 20.0;
/// The maximum width of a line below the title.
const CELLS: usize = 130;
const ROW: f64 = 30.0;
const GOOD: &str = "#2563a8";
const BAD: &str = "#b3261e";

/// Draws the scores as an SVG picture.
pub fn chart(scores: &[Score], lang: Lang) -> String {
    let mut svg = Svg::new(STYLE, 0);
    let Some(load) = scores.first().map(|score| score.load) else { return svg.finish((WIDTH, TOP)) };
    let accounts = u64::from(load.accounts());
    let top = TOP + title(&mut svg, &headline(&load, lang));
    let (good, bad) = match (load.workload, lang) {
        (WorkloadKind::Stock, Lang::En) => ("sold", "oversold"),
        (WorkloadKind::Stock, Lang::Zh) => ("卖出", "超卖"),
        (WorkloadKind::Readers, Lang::En) => ("sold", "oversold, and torn reads"),
        (WorkloadKind::Readers, Lang::Zh) => ("卖出", "超卖，以及读到变化的读者"),
        (WorkloadKind::Bank | WorkloadKind::Transfers, Lang::En) => ("accounts that are right", "wrong accounts"),
        (WorkloadKind::Bank | WorkloadKind::Transfers, Lang::Zh) => ("余额正确的账户", "余额错误的账户"),
        (WorkloadKind::Pool, Lang::En) => ("users at once", "too many"),
        (WorkloadKind::Pool, Lang::Zh) => ("同时使用", "超出"),
    };
    for (x, colour, label) in [(LEFT, GOOD, good), (LEFT + 210.0, BAD, bad)] {
        svg.rect((x, top - 44.0), (12.0, 12.0), &format!("fill=\"{colour}\""));
        svg.text((x + 18.0, top - 33.0), "", label);
    }
    svg.text((SECOND, top - 33.0), "", lang.pick("answers per second", "每秒应答"));
    let bottom = top + ROW * number(scores.len() as u64);
    let parts = |score: &Score| {
        let harm = score.harm();
        match load.workload {
            WorkloadKind::Stock | WorkloadKind::Readers => ((score.taken - score.oversold()).unsigned_abs(), harm),
            WorkloadKind::Bank | WorkloadKind::Transfers => (accounts - harm.min(accounts), harm),
            WorkloadKind::Pool => (score.at_once - harm, harm),
        }
    };
    let most = scores.iter().map(|score| parts(score).0 + parts(score).1).max().unwrap_or(1).max(1);
    let fastest = scores.iter().map(Score::per_second).max().unwrap_or(1).max(1);
    for (at, score) in (0_u32..).zip(scores) {
        let y = top + ROW * f64::from(at);
        svg.text((LEFT - 12.0, y + 15.0), "end mono", &score.scheme);
        let (right, wrong) = parts(score);
        let (first, second) = (BAR * number(right) / number(most), BAR * number(wrong) / number(most));
        svg.rect((LEFT, y), (first, 20.0), &format!("fill=\"{GOOD}\""));
        svg.rect((LEFT + first, y), (second, 20.0), &format!("fill=\"{BAD}\""));
        let stuck = if score.tally.stuck > 0 {
            format!("  {} {}", lang.pick("stuck:", "卡死"), score.tally.stuck)
        } else {
            String::new()
        };
        let label = if wrong > 0 { format!("{right} + {wrong}{stuck}") } else { format!("{right}{stuck}") };
        let class = if wrong > 0 || score.tally.stuck > 0 { "bad" } else { "" };
        svg.text((LEFT + first + second + 8.0, y + 15.0), class, &label);
        let speed = SPEED * number(score.per_second()) / number(fastest);
        svg.rect((SECOND, y + 3.0), (speed, 14.0), "fill=\"#9aa7b4\"");
        svg.text((SECOND + speed + 8.0, y + 15.0), "faint", &score.per_second().to_string());
    }
    svg.line((LEFT, top - 8.0), (LEFT, bottom), "stroke=\"#444\" stroke-width=\"1.5\"");
    let limit = match load.workload {
        WorkloadKind::Stock | WorkloadKind::Readers => Some((lang.pick("stock:", "库存"), load.stock)),
        WorkloadKind::Pool => Some((lang.pick("connections:", "连接"), load.permits.into())),
        WorkloadKind::Bank | WorkloadKind::Transfers => None,
    };
    if let Some((label, limit)) = limit {
        let x = LEFT + BAR * f64::from(limit) / number(most);
        svg.line((x, top - 8.0), (x, bottom), "stroke=\"#444\" stroke-dasharray=\"4 4\"");
        svg.text((x, bottom + 16.0), "mid faint", &format!("{label} {limit}"));
    }
    svg.finish((WIDTH, bottom + 34.0))
}

/// Writes the first clause as the title and the others below it. Returns their height.
fn title(svg: &mut Svg, headline: &str) -> f64 {
    let (first, rest) = headline.split_once([';', '；']).unwrap_or((headline, ""));
    svg.text((20.0, 32.0), "head", first);
    let mut height = 0.0;
    for line in wrapped(rest.trim_start(), CELLS).iter().filter(|line| !line.is_empty()) {
        height += LINE;
        svg.text((20.0, 32.0 + height), "faint", line);
    }
    height
}

/// A count as a coordinate.
fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::width;

    #[test]
    fn a_long_title_is_broken_into_lines_that_fit() {
        let clause = "; each process is paused once while it holds a lock";
        let mut svg = Svg::new(STYLE, 0);
        let height = title(&mut svg, &format!("Bank: 30 accounts{}", clause.repeat(4)));
        let picture = svg.finish((WIDTH, TOP));
        let texts: Vec<_> =
            picture.lines().filter_map(|line| line.strip_prefix("<text ")?.split(['>', '<']).nth(1)).collect();
        assert_eq!((texts[0], texts.len()), ("Bank: 30 accounts", 3), "{picture}");
        assert!(texts.iter().all(|text| width(text) <= CELLS), "{picture}");
        assert!((height - 2.0 * LINE).abs() < f64::EPSILON, "{height}");
        assert!(title(&mut Svg::new(STYLE, 0), "Flash sale: 20 in stock").abs() < f64::EPSILON);
    }
}
