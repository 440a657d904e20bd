//! The generated part of the page, in two languages.

use super::chart_spec::{ALL, ChartSpec};
use super::goals::goals;
use super::known::{known, title};
use super::page_table::{cell_text, contended, millis, permits, readers, uncontended};
use super::plan::{CELLS, Cell, PERMITS, READERS, READERS_ONLY};
use super::run::{Present, Run};
use crate::Failure;
use fencelock_lab::Lang;
use fencelock_load::{LoadMode, Workload};
use std::fmt::Write as _;

const BEGIN: &str = "<!-- peers: begin; written by scripts/bench-peers -->";
const END: &str = "<!-- peers: end -->";

/// Replaces the text between the marks of the page.
///
/// # Errors
/// If the page has no marks.
pub(crate) fn insert(page: &str, text: &str) -> Result<String, Failure> {
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| format!("the page has no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("the page has no {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{text}\n{END}{after}"))
}

/// The generated text of a run.
pub(crate) fn text(run: &Run, lang: Lang) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut out, run, lang);
    out
}

fn write_all(out: &mut String, run: &Run, lang: Lang) -> std::fmt::Result {
    introduction(out, run, lang)?;
    libraries(out, run, lang)?;
    expectations(out, run, lang)?;
    charts(out, run, lang, LoadMode::Exclusive)?;
    for cell in of(Workload::HotKey, LoadMode::Exclusive).filter(|cell| cell.all_tasks() > 1) {
        let (tasks, processes) = (cell.all_tasks(), cell.processes);
        let title = match lang {
            Lang::En => format!("One key, {tasks} tasks in {processes} processes, empty critical section"),
            Lang::Zh => format!("同一个 key，{processes} 个进程共 {tasks} 个任务，临界区为空"),
        };
        contended(out, run, lang, cell, &title)?;
    }
    for cell in of(Workload::ManyKeys, LoadMode::Exclusive) {
        let (tasks, processes) = (cell.all_tasks(), cell.processes);
        let title = match lang {
            Lang::En => format!("1000 keys, {tasks} tasks in {processes} processes"),
            Lang::Zh => format!("1000 个 key，{processes} 个进程共 {tasks} 个任务"),
        };
        contended(out, run, lang, cell, &title)?;
    }
    for cell in of(Workload::Uncontended, LoadMode::Exclusive) {
        uncontended(out, run, lang, cell)?;
    }
    modes(out, run, lang)
}

/// Locks that several clients hold together.
fn modes(out: &mut String, run: &Run, lang: Lang) -> std::fmt::Result {
    charts(out, run, lang, READERS)?;
    for mode in [READERS, READERS_ONLY] {
        for cell in of(Workload::HotKey, mode) {
            readers(out, run, lang, cell)?;
        }
    }
    if let Some(per_s) = run.local_shared_per_s {
        let text = match lang {
            Lang::En => format!("256 readers of one process with all cores, without a runner: {per_s:.0} grants/s."),
            Lang::Zh => format!("一个进程用全部核心、256 个读者、不经过测试程序：每秒授予 {per_s:.0} 次。"),
        };
        writeln!(out, "\n{text}")?;
    }
    charts(out, run, lang, PERMITS)?;
    for cell in of(Workload::HotKey, PERMITS) {
        permits(out, run, lang, cell)?;
    }
    Ok(())
}

fn of(workload: Workload, mode: LoadMode) -> impl Iterator<Item = Cell> {
    CELLS.into_iter().filter(move |cell| cell.workload == workload && cell.mode == mode)
}

fn introduction(out: &mut String, run: &Run, lang: Lang) -> std::fmt::Result {
    let (span, warm_up) = (millis(run.effort.span_ms), millis(run.effort.warm_up_ms));
    let (machine, when) = (&run.machine, &run.when);
    if run.effort.is_quick() {
        let text = lang.pick(
            "**A quick run on a busy machine, as a test: do not quote these numbers.**",
            "**机器繁忙时的快速试运行，请勿引用这些数字。**",
        );
        writeln!(out, "{text}\n")?;
    }
    match lang {
        Lang::En => {
            writeln!(out, "Measured with {machine}, {when}; {span} for each figure, after")?;
            writeln!(out, "{warm_up} of warm-up (Redisson: 3 s more, for its compiler).\n")
        }
        Lang::Zh => writeln!(
            out,
            "测量环境：{machine}，{when}；每个数字测 {span}，之前预热 {warm_up}（Redisson 另加 3 s，供它的编译器预热）。\n"
        ),
    }
}

fn libraries(out: &mut String, run: &Run, lang: Lang) -> std::fmt::Result {
    let head = lang.pick(
        "| library | installed | how its waiters wait | sold under the lock |",
        "| 库 | 安装的版本 | 等待者怎样等待 | 在锁内卖出 |",
    );
    writeln!(out, "{head}\n|---|---|---|---|")?;
    for (peer, present) in run.present.iter().filter_map(|present| Some((known(&present.name)?, present))) {
        let waiting = peer.waiting.get(lang);
        writeln!(out, "| {} | {} | {waiting} | {} |", peer.title, present.version, sale(present, lang))?;
    }
    if !run.absent.is_empty() {
        let text = lang.pick("Not measured, because it could not be installed:", "未测量，因为无法安装：");
        writeln!(out, "\n{text}\n")?;
        for absent in &run.absent {
            writeln!(out, "- {}: {}", title(&absent.name), absent.why)?;
        }
    }
    Ok(())
}

fn sale(present: &Present, lang: Lang) -> String {
    match (&present.sale, lang) {
        (None, _) => "-".to_owned(),
        (Some(Ok(sale)), Lang::En) if sale.is_exact() => format!("{}, exactly", sale.sold),
        (Some(Ok(sale)), Lang::Zh) if sale.is_exact() => format!("{}，账目相符", sale.sold),
        (Some(Ok(sale)), Lang::En) => {
            format!("**{}, {} of them unknown to the stock: it does not exclude**", sale.sold, sale.oversold)
        }
        (Some(Ok(sale)), Lang::Zh) => format!("**{}，其中 {} 件库存没有减：没有互斥**", sale.sold, sale.oversold),
        (Some(Err(why)), Lang::En) => format!("failed: {}", cell_text(why)),
        (Some(Err(why)), Lang::Zh) => format!("失败：{}", cell_text(why)),
    }
}

fn expectations(out: &mut String, run: &Run, lang: Lang) -> std::fmt::Result {
    let goals = goals(run, lang);
    if goals.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}\n|---|---:|---|", lang.pick("| goal | measured | |", "| 目标 | 实测 | |"))?;
    for goal in goals {
        let result = if goal.is_met { lang.pick("met", "达到") } else { lang.pick("**MISSED**", "**未达到**") };
        writeln!(out, "| {} | {} | {result} |", goal.text, goal.measured)?;
    }
    Ok(())
}

fn charts(out: &mut String, run: &Run, lang: Lang, mode: LoadMode) -> std::fmt::Result {
    let has_data = |chart: &ChartSpec| chart.mode == mode && !chart.lines(run).is_empty();
    for chart in ALL.into_iter().filter(has_data) {
        writeln!(out, "\n![{}]({})", chart.shows.get(lang), chart.file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_is_replaced() {
        let page = format!("head\n{BEGIN}\nold\n{END}\nfoot\n");
        let page = insert(&page, "new\n").unwrap();
        assert_eq!(page, format!("head\n{BEGIN}\n\nnew\n\n{END}\nfoot\n"));
        assert_eq!(insert(&page, "new\n").unwrap(), page);
        assert!(insert("no marks", "new").is_err());
    }
}
