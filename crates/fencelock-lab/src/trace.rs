//! A counterexample that can be read.

use crate::columns::{padded, width, wrapped};
use crate::fault::Faults;
use crate::model::Model;
use crate::model::state::{Action, State, Step};
use crate::property::Property;
use crate::scheme::Home;
use crate::tell;
use crate::verdict::Verdict;
use crate::words::Lang;
use serde_json::{Value, json};
use std::fmt::Write;

/// Who does a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A client, counted from 0.
    Client(u8),
    /// Time passes.
    Time,
    /// Something happens to the servers.
    Servers,
}

/// One step of a trace.
#[derive(Debug, Clone)]
pub struct Row {
    /// Who does it.
    pub who: Who,
    /// The ticks that have passed after it.
    pub tick: u8,
    /// What is sent to Redis, or done without asking it.
    pub deed: String,
    /// What came back.
    pub reply: Option<String>,
    /// The step as a sentence.
    pub sentence: String,
    /// The lock afterwards.
    pub lock: String,
    /// Whose lock it is afterwards; on three servers that takes two.
    pub owner: Option<u8>,
    /// Which clients are at work afterwards.
    pub inside: Vec<bool>,
    /// Whether `deed` goes to Redis.
    pub is_command: bool,
    /// Whether the client dies, or its command does not arrive.
    pub fails: bool,
}

/// A shortest way to break a property, told in one language.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The scheme's name.
    pub scheme: &'static str,
    /// What it breaks.
    pub property: Property,
    /// The faults that had to be allowed.
    pub faults: Faults,
    /// The clients that take part.
    pub clients: u8,
    /// Its steps.
    pub rows: Vec<Row>,
    /// What the scheme is.
    pub title: &'static str,
    /// What to do instead.
    pub advice: &'static str,
    lang: Lang,
}

impl Trace {
    /// The shortest way found to break `property` if these faults may happen; `None` if there is none.
    pub fn of(verdict: &Verdict, property: Property, faults: impl Into<Faults>, lang: Lang) -> Option<Self> {
        let faults = faults.into();
        let way = verdict.way(property, faults)?;
        let model = Model { scheme: &verdict.scheme, faults };
        let mut state = State::default();
        let mut rows = Vec::new();
        for &action in way {
            let step = model.step(&state, action);
            rows.push(row(&model, &state, action, &step, lang));
            state = step.after;
        }
        let clients = way.iter().filter_map(|action| action.client()).max().map_or(1, |last| last + 1);
        let (title, advice) = (verdict.scheme.title.get(lang), verdict.scheme.advice.get(lang));
        Some(Self { scheme: verdict.scheme.id, property, faults, clients, rows, title, advice, lang })
    }

    /// The language it is told in.
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

    /// The trace in columns, then in sentences, for a terminal that is `cells` wide.
    pub fn text(&self, cells: usize) -> String {
        let pick = |en, zh| self.lang.pick(en, zh);
        let mut text = format!("{}{}{}\n{}\n\n", self.scheme, self.lang.pick(": ", "："), self.title, self.headline());
        text.push_str(&self.columns());
        text.push('\n');
        for (number, row) in (1..).zip(&self.rows) {
            let _ = writeln!(text, "{number:>3}. {}", row.sentence);
        }
        let told = [
            (pick("What went wrong", "出了什么问题"), self.property.breach(self.lang)),
            (pick("What to do", "应该怎么做"), self.advice),
        ];
        for (heading, body) in told {
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
        let head: Vec<_> = (0..self.clients).map(tell::name).collect();
        let cell = |row: &Row| match &row.reply {
            Some(reply) => format!("{} -> {reply}", row.deed),
            None => row.deed.clone(),
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
            let told = if row.who == Who::Servers {
                format!("{}{}", row.deed, self.lang.pick(": ", "："))
            } else {
                String::new()
            };
            let lock = if row.lock == before { "" } else { &row.lock };
            let _ = write!(text, " {told}{lock}");
            text.truncate(text.trim_end().len());
            text.push('\n');
            before.clone_from(&row.lock);
        }
        text
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let steps = self.rows.iter().map(|row| {
            let who = match row.who {
                Who::Client(client) => tell::name(client),
                Who::Time => "time".to_owned(),
                Who::Servers => "servers".to_owned(),
            };
            json!({
                "who": who, "tick": row.tick, "deed": row.deed, "reply": row.reply,
                "text": row.sentence, "lock": row.lock,
            })
        });
        json!({
            "scheme": self.scheme,
            "property": self.property.name(),
            "fault": (self.faults != Faults::NONE).then(|| self.faults.name()),
            "breach": self.property.breach(self.lang),
            "advice": self.advice,
            "steps": steps.collect::<Vec<_>>(),
        })
    }
}

/// Whose lock it is: on three servers, who has two of them.
fn owner(model: &Model<'_>, state: &State) -> Option<u8> {
    let of = |at: usize| state.keys[at].map(|entry| entry.owner);
    if model.scheme.home != Home::Three {
        return of(0);
    }
    (0..model.scheme.clients).find(|client| (0..3).filter(|at| of(*at) == Some(*client)).count() > 1)
}

fn row(model: &Model<'_>, before: &State, action: Action, step: &Step, lang: Lang) -> Row {
    let command = model.command(before, action);
    let who = match action {
        Action::Tick => Who::Time,
        _ => action.client().map_or(Who::Servers, Who::Client),
    };
    let deed = match (&command, action) {
        (Some(command), _) => tell::command(command, model.scheme.home),
        (None, Action::Step(client)) => tell::deed(model.op(before, usize::from(client)), step, lang).to_owned(),
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
        deed,
        reply: tell::reply(step.reply, lang),
        sentence: tell::sentence(model, before, action, step, lang),
        lock: tell::servers(model, &step.after, lang),
        owner: owner(model, &step.after),
        inside: inside.map(|(at, client)| step.after.running(at) && client.inside).collect(),
        is_command: command.is_some(),
        fails: matches!(action, Action::Crash(_) | Action::Lose(_)),
    }
}
