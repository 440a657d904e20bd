//! The generated page about all schemes.

use crate::diagram::diagram;
use crate::lang::Lang;
use crate::property::Property;
use crate::scheme_results::SchemeResults;
use crate::table::cell;
use crate::trace::Trace;
use std::fmt::Write;

/// A page in Markdown, and its pictures.
#[derive(Debug, Clone)]
pub struct Page {
    /// The text.
    pub text: String,
    /// File names and contents of the pictures, which are stored in the directory `lab` next to the English page. Both languages show
    /// these.
    pub pictures: Vec<(String, String)>,
}

/// Writes the page about these schemes.
pub fn page(all: &[SchemeResults], lang: Lang) -> Page {
    let mut page = Page { text: heading(lang).to_owned(), pictures: Vec::new() };
    page.table(all, lang);
    for results in all {
        page.scheme(results, lang);
    }
    page
}

impl Page {
    fn table(&mut self, all: &[SchemeResults], lang: Lang) {
        let head: Vec<_> = Property::ALL.map(|property| property.label(lang)).into();
        let _ = writeln!(self.text, "| {} | {} |", lang.pick("scheme", "方案"), head.join(" | "));
        let _ = writeln!(self.text, "|---|{}", "---|".repeat(head.len()));
        for results in all {
            let cells: Vec<_> = Property::ALL.map(|property| cell(results.result(property), lang)).into();
            let id = results.scheme.id;
            let _ = writeln!(self.text, "| [{id}](#{id}) | {} |", cells.join(" | "));
        }
    }

    fn scheme(&mut self, results: &SchemeResults, lang: Lang) {
        let (id, period) = (results.scheme.id, lang.pick(".", "。"));
        let _ = write!(self.text, "\n## {id}\n\n{}{period}\n", results.scheme.title.get(lang));
        let shown =
            results.chosen(None, None).and_then(|(property, faults)| Trace::of(results, property, faults, lang));
        if let Some(trace) = shown {
            let file = format!("{id}.svg");
            let _ = write!(self.text, "\n**{}{period}**\n\n", trace.headline());
            for (number, row) in (1..).zip(&trace.rows) {
                let _ = writeln!(self.text, "{number}. {}", row.sentence);
            }
            let (steps, breach) = (trace.rows.len(), trace.breach);
            let _ = match lang {
                Lang::En => write!(self.text, "\nSo after step {steps} {breach}.\n"),
                Lang::Zh => write!(self.text, "\n到第 {steps} 步：{breach}。\n"),
            };
            let _ = write!(self.text, "\n![{}]({}lab/{file})\n", trace.headline(), lang.pick("", "../en/"));
            self.pictures.extend((lang == Lang::En).then(|| (file, diagram(&trace))));
        }
        let _ = write!(self.text, "\n{}\n", results.scheme.advice.get(lang));
    }
}

const fn heading(lang: Lang) -> &'static str {
    match lang {
        Lang::En => {
            "\
# Why naive locks break

`cargo run -p fencelock-lab` searches every order of the steps of two or three clients, with crashes and delays, and
prints the shortest way to break each scheme. `cargo run -p fencelock-lab -- SCHEME --url redis://HOST` replays the same steps on a real server.

A lock lasts two ticks, so it is set with `EX 2`. The number in a cell is the smallest number of steps that breaks the property, and the
word in front of it is the fault that is needed. \"breaks\" means that no fault is needed, \"several\" that more than one is.

- *one holder*: two clients never work at the same time
- *own lock only*: no client deletes, overwrites or shortens a valid lock of another client
- *no dead lock*: once all clients have been gone for one lifetime of the lock, the next client acquires it at once
- *no late write*: no write is accepted after a later holder has started

For a semaphore, *one holder* means that no more clients work than there are permits, and a write is late if the lease of its
permit has ended. For a lock with readers, a reader counts like a writer.

Without faults, clients finish in time. *crash*: one client dies. *lost release*: its connection breaks before it releases the
lock. *clocks*: the clocks of the clients differ by a tick. *overrun*: the work takes longer than the lock lasts, while the
process keeps running. *pause*: the whole process is paused, including its watchdog. *failover*: a replica that has not copied
everything takes over. *restart*: a server has lost all data. A property that \"holds\" was searched with each fault of the scheme
and with all of them together.

Bounds: each client acquires the lock at most once and tries at most twice; a search lasts six ticks; a command and its reply
are one step.

"
        }
        Lang::Zh => {
            "\
# 朴素的锁为什么会失效

本页由 `cargo run -p fencelock-lab` 自动生成：它穷举两三个客户端各步骤的所有先后次序，加上崩溃和延迟，给出打破每个方案的最短过程。`cargo run -p fencelock-lab -- 方案 --url redis://主机 --lang zh` 会在真实服务器上照做一遍。

锁的过期时间是两拍，所以写作 `EX 2`。表中数字是打破该性质最少的步数，前面是需要发生的故障；“无故障”表示什么都不用坏，“多个故障”表示要同时发生几种。

- *互斥*：任何时刻最多只有一个客户端在锁内执行
- *不误删别人的锁*：谁都不能删除、覆盖或缩短别人仍然有效的锁
- *不会死锁*：所有人都离开满一个过期时间之后，新来的客户端应当立刻拿到锁
- *锁过期后不会再写入*：后来者开始执行之后，过期持有者的写入不再被接受

对于信号量，*互斥*是指同时执行的客户端不多于许可数；许可的租约到期之后的写入才算过期的写入。对于读写锁，读者和写者同样对待。

没有故障时，客户端总能在过期之前做完。*崩溃*：有一个客户端退出。*释放失败*：释放锁之前断了连接。*时钟不一致*：相差一拍。*执行超时*：业务比锁的过期时间还长，但进程照常运行。*进程停顿*：整个进程停住，看门狗也跟着停。*主从切换*：没同步完的从库被提升为主库。*节点重启*：有一个节点的数据全部丢失。“成立”的性质，对该方案的每种故障以及全部故障同时发生都搜索过。

搜索的边界：每个客户端最多加锁一次、最多尝试两次；最多六拍；一条命令和它的应答算一步。

"
        }
    }
}
