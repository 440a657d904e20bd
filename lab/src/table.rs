//! The table of all schemes.

use crate::columns::{padded, widths};
use crate::lang::Lang;
use crate::property::Property;
use crate::scheme_results::{PropertyResult, SchemeResults};
use anstyle::{AnsiColor, Style};
use std::fmt::Write;

/// A table of schemes and properties: whether a property holds, or which fault violates it and in how many steps.
pub fn table(all: &[SchemeResults], lang: Lang, colours: bool) -> String {
    let mut rows = vec![head(lang)];
    rows.extend(all.iter().map(|results| {
        let cells = Property::ALL.map(|property| cell(results.result(property), lang));
        std::iter::once(results.scheme.id.to_owned()).chain(cells).collect()
    }));
    let widths = widths(rows.iter().map(Vec::as_slice));
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let last = column + 1 == row.len();
            let shown = if last { cell.clone() } else { padded(cell, *width) };
            let style = if colours { style(all, number, column) } else { Style::new() };
            let _ = write!(line, "{style}{shown}{style:#}{}", if last { "" } else { "  " });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push('\n');
    text.push_str(legend(lang));
    text.push('\n');
    text
}

fn head(lang: Lang) -> Vec<String> {
    let first = lang.pick("SCHEME", "方案").to_owned();
    let others = Property::ALL.map(|property| property.label(lang).to_uppercase());
    std::iter::once(first).chain(others).collect()
}

pub(crate) fn cell(result: PropertyResult, lang: Lang) -> String {
    match result {
        PropertyResult::Holds { .. } => lang.pick("holds", "成立").to_owned(),
        PropertyResult::BreaksTogether { steps, .. } => format!("{} {steps}", lang.pick("several:", "多个故障")),
        PropertyResult::Breaks { fault: None, steps } => {
            format!("{} {steps}", lang.pick("breaks:", "无故障"))
        }
        PropertyResult::Breaks { fault: Some(fault), steps } => {
            format!("{}{} {steps}", fault.label(lang), lang.pick(":", ""))
        }
    }
}

fn style(all: &[SchemeResults], row: usize, column: usize) -> Style {
    if row == 0 {
        return Style::new().bold();
    }
    let Some(property) = column.checked_sub(1) else { return Style::new() };
    match all[row - 1].result(Property::ALL[property]) {
        PropertyResult::Holds { .. } => AnsiColor::Green.on_default(),
        PropertyResult::Breaks { fault: Some(fault), .. } if fault.is_assumption() => AnsiColor::Yellow.on_default(),
        PropertyResult::Breaks { .. } | PropertyResult::BreaksTogether { .. } => AnsiColor::Red.on_default().bold(),
    }
}

const fn legend(lang: Lang) -> &'static str {
    match lang {
        Lang::En => {
            "\
A number is the fewest steps that break it, after the fault that has to happen; \"breaks\" needs none.
overrun: the work outlasts the lock. pause: the whole process stands still. clocks: they differ by a tick.
`SCHEME` as the argument shows the steps, `--property` and `--fault` choose which."
        }
        Lang::Zh => {
            "\
数字是打破该性质最少的步数，前面是需要发生的故障；“无故障”表示什么都不用坏。
执行超时：业务比锁的过期时间还长。进程停顿：整个进程停住不动。时钟不一致：相差一拍。
参数 `方案` 显示每一步，用 `--property` 和 `--fault` 选择看哪一个。"
        }
    }
}
