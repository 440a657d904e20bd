//! A counterexample in readable form.

use crate::columns::{padded, width, wrapped};
use crate::describe;
use crate::fault::Faults;
use crate::lang::Lang;
use crate::model::LockModel;
use crate::model::state::{Action, State, Transition};
use crate::property::Property;
use crate::scheme::Home;
use crate::scheme_results::SchemeResults;
use std::fmt::Write;

/// The actor of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A client, counted from 0.
    Client(u8),
    /// Time.
    Time,
    /// The servers.
    Servers,
}

/// A step of a trace.
#[derive(Debug, Clone)]
pub struct Row {
    /// The actor.
    pub who: Who,
    /// The number of ticks that have passed after the step.
    pub tick: u8,
    /// The command, or the local operation.
    pub operation: String,
    /// The reply.
    pub reply: Option<String>,
    /// The step as a sentence.
    pub sentence: String,
    /// The lock after the step.
    pub lock: String,
    /// The owner of the lock after the step; on three servers, the client with two of them.
    pub owner: Option<u8>,
    /// The clients that are working after the step.
    pub inside: Vec<bool>,
    /// Whether `operation` is a Redis command.
    pub is_command: bool,
    /// Whether the client dies, or its command does not arrive.
    pub fails: bool,
}

/// A shortest violation of a property, described in one language.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The name of the scheme.
    pub scheme: &'static str,
    /// The violated property.
    pub property: Property,
    /// The faults that were allowed.
    pub faults: Faults,
    /// The number of clients.
    pub clients: u8,
    /// The steps.
    pub rows: Vec<Row>,
    /// The description of the scheme.
    pub title: &'static str,
    /// What to do instead.
    pub advice: &'static str,
    /// What happens when the property is violated.
    pub breach: &'static str,
    lang: Lang,
}

impl Trace {
    /// The shortest violation of `property` with these faults; `None` if there is none.
    pub fn of(results: &SchemeResults, property: Property, faults: impl Into<Faults>, lang: Lang) -> Option<Self> {
        let faults = faults.into();
        let way = results.way(property, faults)?;
        let model = LockModel { scheme: &results.scheme, faults };
        let mut state = State::default();
        let mut rows = Vec::new();
        for &action in way {
            let step = model.step(&state, action);
            rows.push(row(&model, &state, action, &step, lang));
            state = step.after;
        }
        let clients = way.iter().filter_map(|action| action.client()).max().map_or(1, |last| last + 1);
        let (title, advice) = (results.scheme.title.get(lang), results.scheme.advice.get(lang));
        let (scheme, breach) = (results.scheme.id, results.scheme.breach(property, lang));
        Some(Self { scheme, property, faults, clients, rows, title, advice, breach, lang })
    }

    /// The language of the text.
    pub const fn lang(&self) -> Lang {
        self.lang
    }

    /// `one holder is broken in 6 steps, if the work takes longer than the lock lasts`
    pub fn headline(&self) -> String {
        let (label, steps) = (self.property.label(self.lang), self.rows.len());
        let meaning = self.faults.meaning(self.lang);
        match (self.lang, meaning) {
            (Lang::En, None) => format!("\"{label}\" is broken in {steps} steps, without any fault"),
            (Lang::En, Some(meaning)) => format!("\"{label}\" is broken in {steps} steps, if {meaning}"),
            (Lang::Zh, None) => format!("“{label}”在 {steps} 步内被打破，无需任何故障"),
            (Lang::Zh, Some(meaning)) => format!("“{label}”在 {steps} 步内被打破，条件：{meaning}"),
        }
    }

    /// The trace as columns and sentences, for a terminal `cells` wide.
    pub fn text(&self, cells: usize) -> String {
        let pick = |en, zh| self.lang.pick(en, zh);
        let mut text = format!("{}{}{}\n{}\n\n", self.scheme, self.lang.pick(": ", "："), self.title, self.headline());
        text.push_str(&self.columns());
        text.push('\n');
        for (number, row) in (1..).zip(&self.rows) {
            let _ = writeln!(text, "{number:>3}. {}", row.sentence);
        }
        let sections =
            [(pick("What went wrong", "出了什么问题"), self.breach), (pick("What to do", "应该怎么做"), self.advice)];
        for (heading, body) in sections {
            let stop = if body.ends_with(['.', '。']) { "" } else { pick(".", "。") };
            let body = format!("{heading}{}{body}{stop}", pick(": ", "："));
            text.push('\n');
            for line in wrapped(&body, cells.clamp(40, 110)) {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }

    fn columns(&self) -> String {
        let head: Vec<_> = (0..self.clients).map(describe::name).collect();
        let cell = |row: &Row| match &row.reply {
            Some(reply) => format!("{} -> {reply}", row.operation),
            None => row.operation.clone(),
        };
        let mut widths: Vec<_> = head.iter().map(|name| width(name)).collect();
        for row in &self.rows {
            if let Who::Client(client) = row.who {
                let widest = &mut widths[usize::from(client)];
                *widest = width(&cell(row)).max(*widest);
            }
        }
        let mut text = format!("{:>3} {}", "", padded(self.lang.pick("tick", "拍"), 5));
        for (name, width) in head.iter().zip(&widths) {
            let _ = write!(text, " {} ", padded(name, *width));
        }
        text.push_str(" Redis\n");
        let mut before = String::new();
        for (number, row) in (1..).zip(&self.rows) {
            let _ = write!(text, "{number:>3} {:<5}", row.tick);
            for (client, width) in (0..).zip(&widths) {
                let is_its = row.who == Who::Client(client);
                let _ = write!(text, " {} ", padded(&if is_its { cell(row) } else { String::new() }, *width));
            }
            let operation = if row.who == Who::Servers {
                format!("{}{}", row.operation, self.lang.pick(": ", "："))
            } else {
                String::new()
            };
            let lock = if row.lock == before { "" } else { &row.lock };
            let _ = write!(text, " {operation}{lock}");
            text.truncate(text.trim_end().len());
            text.push('\n');
            before.clone_from(&row.lock);
        }
        text
    }
}

/// The owner of the lock: on three servers, the client with two of them. A semaphore has none.
fn owner(model: &LockModel<'_>, state: &State) -> Option<u8> {
    let of = |at: usize| state.keys[at].map(|entry| entry.owner);
    if !model.scheme.is_lock() {
        return None;
    }
    if model.scheme.home != Home::Three {
        return of(0);
    }
    (0..model.scheme.clients).find(|client| (0..3).filter(|at| of(*at) == Some(*client)).count() > 1)
}

fn row(model: &LockModel<'_>, before: &State, action: Action, step: &Transition, lang: Lang) -> Row {
    let command = model.command(before, action);
    let who = match action {
        Action::Tick => Who::Time,
        _ => action.client().map_or(Who::Servers, Who::Client),
    };
    let operation = match (&command, action) {
        (Some(command), _) => describe::command(command, model.scheme.home),
        (None, Action::Step(client)) => {
            describe::operation(model.op(before, usize::from(client)), step, lang).to_owned()
        }
        (None, Action::Crash(_)) => lang.pick("crashes", "崩溃").to_owned(),
        (None, Action::Replicate) => lang.pick("copied", "同步").to_owned(),
        (None, Action::Failover) => lang.pick("failover", "主从切换").to_owned(),
        (None, Action::Restart(node)) => format!("{} {}", lang.pick("restart of", "重启节点"), node + 1),
        (None, _) => String::new(),
    };
    let inside = step.after.clients.iter().enumerate();
    Row {
        who,
        tick: step.after.now,
        operation,
        reply: describe::reply(step.reply, lang),
        sentence: describe::sentence(model, before, action, step, lang),
        lock: describe::servers(model, &step.after, lang),
        owner: owner(model, &step.after),
        inside: inside.map(|(at, client)| step.after.running(at) && client.inside).collect(),
        is_command: command.is_some(),
        fails: matches!(action, Action::Crash(_) | Action::Lose(_)),
    }
}
