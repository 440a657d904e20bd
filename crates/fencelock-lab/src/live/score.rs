//! The results of each scheme.

use super::job::Tally;
use super::legend::legend;
use super::{Load, WorkloadKind};
use crate::columns::{padded, width, widths, wrapped};
use crate::lang::Lang;
use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The width of the texts around the table: that of a usual terminal.
const CELLS: usize = 80;

/// The result of one scheme, from the ledger and its processes.
#[derive(Debug, Clone)]
pub struct Score {
    /// The scheme.
    pub scheme: String,
    /// The workload.
    pub load: Load,
    /// The sum of the process tallies; a killed process has none.
    pub tally: Tally,
    /// The most users of a pool, or readers and buyers, at the same time; 0 for other workloads.
    pub at_once: u64,
    /// From the first request to the last answer.
    pub took: Duration,
    /// The sum of the remaining amounts.
    pub left: i64,
    /// The sum sold or paid.
    pub taken: i64,
    /// Accounts whose value is not the initial value minus the recorded amounts.
    pub wrong: u64,
    /// The sum of these differences.
    pub missing: u64,
}

impl Score {
    /// Items sold beyond the stock.
    pub fn oversold(&self) -> i64 {
        match self.load.workload {
            WorkloadKind::Stock | WorkloadKind::Readers => (self.taken - i64::from(self.load.stock)).max(0),
            WorkloadKind::Bank | WorkloadKind::Transfers | WorkloadKind::Pool => 0,
        }
    }

    /// Users of a pool beyond its permits.
    pub fn too_many(&self) -> u64 {
        self.load.pool().map_or(0, |permits| self.at_once.saturating_sub(permits.into()))
    }

    /// The number of items, reads, accounts or users that prove overlapping holders.
    pub fn harm(&self) -> u64 {
        match self.load.workload {
            WorkloadKind::Stock => self.oversold().unsigned_abs(),
            WorkloadKind::Readers => self.oversold().unsigned_abs() + self.tally.torn,
            WorkloadKind::Bank | WorkloadKind::Transfers => self.wrong,
            WorkloadKind::Pool => self.too_many(),
        }
    }

    /// Served requests per second.
    pub fn per_second(&self) -> u64 {
        let millis = self.took.as_millis().max(1);
        u64::try_from(u128::from(self.tally.answered) * 1000 / millis).unwrap_or(u64::MAX)
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "scheme": self.scheme,
            "answered": self.tally.answered,
            "busy": self.tally.busy,
            "refused": self.tally.refused,
            "given_up": self.tally.given_up,
            "stuck": self.tally.stuck,
            "dead": self.tally.stuck > 0,
            "took_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "per_second": self.per_second(),
        });
        match self.load.workload {
            WorkloadKind::Stock | WorkloadKind::Readers => {
                value["stock"] = self.load.stock.into();
                value["sold"] = self.taken.into();
                value["oversold"] = self.oversold().into();
                value["left"] = self.left.into();
                if self.load.workload == WorkloadKind::Readers {
                    value["torn"] = self.tally.torn.into();
                    value["at_once"] = self.at_once.into();
                }
            }
            WorkloadKind::Pool => {
                value["permits"] = self.load.permits.into();
                value["at_once"] = self.at_once.into();
                value["too_many"] = self.too_many().into();
            }
            WorkloadKind::Bank | WorkloadKind::Transfers => {
                value["accounts"] = self.load.accounts().into();
                value["wrong"] = self.wrong.into();
                value["money_wrong"] = self.missing.into();
                if self.load.workload == WorkloadKind::Bank {
                    value["paid"] = self.taken.into();
                } else {
                    value["deadlocks"] = self.tally.deadlocks.into();
                }
            }
        }
        value
    }

    fn cells(&self) -> Vec<String> {
        let shown = match self.load.workload {
            WorkloadKind::Stock => [self.taken.to_string(), self.oversold().to_string()],
            WorkloadKind::Readers => [self.oversold().to_string(), self.tally.torn.to_string()],
            WorkloadKind::Bank => [self.wrong.to_string(), self.missing.to_string()],
            WorkloadKind::Transfers => [self.wrong.to_string(), self.tally.deadlocks.to_string()],
            WorkloadKind::Pool => [self.at_once.to_string(), self.too_many().to_string()],
        };
        let Tally { busy, refused, given_up, stuck, .. } = self.tally;
        let counts = [busy, refused, given_up, stuck, self.per_second()].map(|count| count.to_string());
        std::iter::once(self.scheme.clone()).chain(shown).chain(counts).collect()
    }

    fn style(&self, column: usize) -> Style {
        let worst = AnsiColor::Red.on_default().bold();
        match column {
            1 | 2 if self.harm() > 0 || self.tally.deadlocks > 0 => worst,
            6 if self.tally.stuck > 0 => worst,
            1 | 2 => AnsiColor::Green.on_default(),
            _ => Style::new(),
        }
    }
}

fn head(workload: WorkloadKind, lang: Lang) -> Vec<String> {
    let workload = match (workload, lang) {
        (WorkloadKind::Stock, Lang::En) => ["SOLD", "OVERSOLD"],
        (WorkloadKind::Stock, Lang::Zh) => ["卖出", "超卖"],
        (WorkloadKind::Readers, Lang::En) => ["OVERSOLD", "TORN"],
        (WorkloadKind::Readers, Lang::Zh) => ["超卖", "读到变化"],
        (WorkloadKind::Bank, Lang::En) => ["WRONG", "OFF BY"],
        (WorkloadKind::Bank, Lang::Zh) => ["错账户数", "错账金额"],
        (WorkloadKind::Transfers, Lang::En) => ["WRONG", "DEADLOCKS"],
        (WorkloadKind::Transfers, Lang::Zh) => ["错账户数", "死锁"],
        (WorkloadKind::Pool, Lang::En) => ["AT ONCE", "TOO MANY"],
        (WorkloadKind::Pool, Lang::Zh) => ["同时使用", "超出"],
    };
    let first = lang.pick("SCHEME", "方案");
    let rest = lang
        .pick(["BUSY", "REFUSED", "GIVEN UP", "STUCK", "PER S"], ["繁忙", "被拒写入", "主动放弃", "卡死", "每秒应答"]);
    [first].into_iter().chain(workload).chain(rest).map(str::to_owned).collect()
}

/// `Flash sale: 20 in stock, 1000 requests, ...`
pub(super) fn headline(load: &Load, lang: Lang) -> String {
    let Load { requests, processes, stock, permits, .. } = load;
    let accounts = load.accounts();
    let mut text = match (load.workload, lang) {
        (WorkloadKind::Stock, Lang::En) => {
            format!("Flash sale: {stock} in stock, {requests} requests from {processes} processes")
        }
        (WorkloadKind::Stock, Lang::Zh) => format!("秒杀：库存 {stock}，{processes} 个进程共 {requests} 个请求"),
        (WorkloadKind::Readers, Lang::En) => {
            format!("Flash sale with readers: {stock} in stock, {requests} requests from {processes} processes")
        }
        (WorkloadKind::Readers, Lang::Zh) => {
            format!("秒杀，同时有人查看库存：库存 {stock}，{processes} 个进程共 {requests} 个请求")
        }
        (WorkloadKind::Pool, Lang::En) => {
            format!("Pool: {permits} connections, {requests} requests from {processes} processes")
        }
        (WorkloadKind::Pool, Lang::Zh) => format!("连接池：{permits} 个连接，{processes} 个进程共 {requests} 个请求"),
        (WorkloadKind::Transfers, Lang::En) => {
            format!(
                "Transfers: {accounts} accounts with 1000, in pairs; 500 and 300 go opposite ways at once; {processes} processes"
            )
        }
        (WorkloadKind::Transfers, Lang::Zh) => {
            format!("转账：{accounts} 个账户，余额各 1000，两两之间同时对转 500 和 300；{processes} 个进程")
        }
        (WorkloadKind::Bank, Lang::En) => {
            format!(
                "Bank: {accounts} accounts with 1000; from each, 500 and 300 are paid at once; {processes} processes"
            )
        }
        (WorkloadKind::Bank, Lang::Zh) => {
            format!("银行：{accounts} 个账户，余额各 1000，同时消费 500 和 300；{processes} 个进程")
        }
    };
    let ttl = load.ttl.as_millis();
    if let Some(sleep) = load.sleep.map(|sleep| sleep.as_millis()) {
        let _ = match lang {
            Lang::En => write!(text, "; some holders sleep {sleep} ms; the TTL is {ttl} ms"),
            Lang::Zh => write!(text, "；部分持有者睡 {sleep} 毫秒，锁的过期时间为 {ttl} 毫秒"),
        };
    }
    if load.pause {
        text.push_str(
            lang.pick("; each process is paused once while it holds a lock", "；每个进程各有一次持锁时整个停住"),
        );
    }
    if let Some(permits) = load.pool().filter(|_| load.crash) {
        let _ = match lang {
            Lang::En => write!(text, "; {permits} users are killed with their processes"),
            Lang::Zh => write!(text, "；有 {permits} 个使用者连同进程被杀死"),
        };
    } else if load.crash {
        text.push_str(lang.pick("; one process is killed while it holds the lock", "；有一个进程持锁时被杀死"));
    }
    text
}

/// All schemes in a table.
pub fn scores(scores: &[Score], lang: Lang, colours: bool) -> String {
    let Some(load) = scores.first().map(|score| score.load) else { return String::new() };
    let mut rows = vec![head(load.workload, lang)];
    rows.extend(scores.iter().map(Score::cells));
    let widths = widths(rows.iter().map(Vec::as_slice));
    let mut text = paragraph(&headline(&load, lang)) + "\n";
    for (number, row) in rows.iter().enumerate() {
        let score = number.checked_sub(1).map(|at| &scores[at]);
        for (column, (cell, cells)) in row.iter().zip(&widths).enumerate() {
            let style = match score {
                _ if !colours => Style::new(),
                None => Style::new().bold(),
                Some(score) => score.style(column),
            };
            // Numbers are right-aligned.
            let shown = if column == 0 {
                padded(cell, *cells)
            } else {
                format!("{}{cell}", " ".repeat(cells.saturating_sub(width(cell))))
            };
            let _ = write!(text, "{}{style}{shown}{style:#}", if column == 0 { "" } else { "  " });
        }
        text.push('\n');
    }
    let crash_note = if load.crash {
        lang.pick(
            "The requests of a killed process are not counted.\n",
            "被杀进程自己的请求随它一起消失，不计入表中。\n",
        )
    } else {
        ""
    };
    let legend: String = legend(load.workload, lang).lines().map(paragraph).collect();
    text + "\n" + &legend + crash_note
}

fn paragraph(text: &str) -> String {
    wrapped(text, CELLS).join("\n") + "\n"
}

/// All results as JSON.
pub fn json_scores(scores: &[Score]) -> Value {
    let load = scores.first().map(|score| &score.load);
    json!({
        "workload": load.map(|load| load.workload.name()),
        "processes": load.map(|load| load.processes),
        "requests": load.map(|load| load.requests),
        "overrun": load.is_some_and(|load| load.sleep.is_some()),
        "pause": load.is_some_and(|load| load.pause),
        "crash": load.is_some_and(|load| load.crash),
        "schemes": scores.iter().map(Score::json).collect::<Vec<_>>(),
    })
}
