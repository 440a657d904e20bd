//! The results of each scheme.

use super::job::Tally;
use super::{Load, WorkloadKind};
use crate::columns::{padded, width, widths};
use crate::lang::Lang;
use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The result of one scheme, from the ledger and its processes.
#[derive(Debug, Clone)]
pub struct Score {
    /// The scheme.
    pub scheme: String,
    /// The workload.
    pub load: Load,
    /// The sum of the process tallies; a killed process has none.
    pub tally: Tally,
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
            WorkloadKind::Stock => (self.taken - i64::from(self.load.stock)).max(0),
            WorkloadKind::Bank => 0,
        }
    }

    /// The number of items or accounts that prove overlapping holders.
    pub fn harm(&self) -> u64 {
        match self.load.workload {
            WorkloadKind::Stock => self.oversold().unsigned_abs(),
            WorkloadKind::Bank => self.wrong,
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
            WorkloadKind::Stock => {
                value["stock"] = self.load.stock.into();
                value["sold"] = self.taken.into();
                value["oversold"] = self.oversold().into();
                value["left"] = self.left.into();
            }
            WorkloadKind::Bank => {
                value["accounts"] = self.load.accounts().into();
                value["wrong"] = self.wrong.into();
                value["money_wrong"] = self.missing.into();
                value["paid"] = self.taken.into();
            }
        }
        value
    }

    fn cells(&self) -> Vec<String> {
        let shown = match self.load.workload {
            WorkloadKind::Stock => [self.taken.to_string(), self.oversold().to_string()],
            WorkloadKind::Bank => [self.wrong.to_string(), self.missing.to_string()],
        };
        let Tally { busy, refused, given_up, stuck, .. } = self.tally;
        let counts = [busy, refused, given_up, stuck, self.per_second()].map(|count| count.to_string());
        std::iter::once(self.scheme.clone()).chain(shown).chain(counts).collect()
    }

    fn style(&self, column: usize) -> Style {
        let worst = AnsiColor::Red.on_default().bold();
        match column {
            1 | 2 if self.harm() > 0 => worst,
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
        (WorkloadKind::Bank, Lang::En) => ["WRONG", "MONEY WRONG"],
        (WorkloadKind::Bank, Lang::Zh) => ["错账户数", "错账金额"],
    };
    let first = lang.pick("SCHEME", "方案");
    let rest = lang.pick(
        ["BUSY", "REFUSED", "GIVEN UP", "STUCK", "PER SECOND"],
        ["繁忙", "被拒写入", "主动放弃", "卡死", "每秒应答"],
    );
    [first].into_iter().chain(workload).chain(rest).map(str::to_owned).collect()
}

/// `Flash sale: 20 in stock, 1000 requests, ...`
pub(super) fn headline(load: &Load, lang: Lang) -> String {
    let Load { requests, processes, stock, .. } = load;
    let accounts = load.accounts();
    let mut text = match (load.workload, lang) {
        (WorkloadKind::Stock, Lang::En) => {
            format!("Flash sale: {stock} in stock, {requests} requests from {processes} processes")
        }
        (WorkloadKind::Stock, Lang::Zh) => format!("秒杀：库存 {stock}，{processes} 个进程共 {requests} 个请求"),
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
    if load.crash {
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
    let mut text = format!("{}\n\n", headline(&load, lang));
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
            "The requests of the killed process are not counted.\n",
            "被杀进程自己的请求随它一起消失，不计入表中。\n",
        )
    } else {
        ""
    };
    text + "\n" + legend(load.workload, lang) + "\n" + crash_note
}

const fn legend(workload: WorkloadKind, lang: Lang) -> &'static str {
    match (workload, lang) {
        (WorkloadKind::Stock, Lang::En) => {
            "\
Each request reads the stock and, if it is positive, writes it minus one. Only the lock prevents overlapping requests.
busy: attempts that found the lock held, and were retried. stuck: requests that were never answered.
refused: late writes rejected by the fencing token. given up: writes skipped because the holder detected the loss of its lock.
fencelock renews the lock of a holder that sleeps. A paused process cannot renew."
        }
        (WorkloadKind::Bank, Lang::En) => {
            "\
Both requests read the balance and write it minus their payment, so 200 must be left. Only the lock prevents overlapping
payments. wrong: accounts whose balance is not 1000 minus the payments. stuck: payments that were never answered.
busy: attempts that found the lock held, and were retried. refused: late writes rejected by the fencing token.
given up: writes skipped because the holder detected the loss of its lock."
        }
        (WorkloadKind::Stock, Lang::Zh) => {
            "\
每个请求读取库存，大于 0 就写回库存减一；除了锁，没有别的东西阻止两个请求同时进行。
繁忙：被告知“锁被占用”的次数，之后会再来。卡死：始终没有得到答复的请求。
被拒写入：被栅栏令牌拦下的迟到写入。主动放弃：写入前发现锁已丢失，于是没有写。
持有者睡着时，fencelock 会自动续期；整个进程停住时，谁也没法续期。"
        }
        (WorkloadKind::Bank, Lang::Zh) => {
            "\
两个请求都读取余额，再写回余额减消费额，所以应剩 200；除了锁，没有别的东西阻止它们同时进行。
错账户数：余额不等于 1000 减去已消费金额的账户。卡死：始终没有得到答复的消费。
繁忙：被告知“锁被占用”的次数，之后会再来。被拒写入：被栅栏令牌拦下的迟到写入。
主动放弃：写入前发现锁已丢失，于是没有写。"
        }
    }
}

/// All results as JSON.
pub fn json_scores(scores: &[Score]) -> Value {
    let load = scores.first().map(|score| &score.load);
    json!({
        "workload": load.map(|load| match load.workload { WorkloadKind::Stock => "stock", WorkloadKind::Bank => "bank" }),
        "processes": load.map(|load| load.processes),
        "requests": load.map(|load| load.requests),
        "overrun": load.is_some_and(|load| load.sleep.is_some()),
        "pause": load.is_some_and(|load| load.pause),
        "crash": load.is_some_and(|load| load.crash),
        "schemes": scores.iter().map(Score::json).collect::<Vec<_>>(),
    })
}
