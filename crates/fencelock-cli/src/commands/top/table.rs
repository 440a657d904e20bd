use super::Watch;
use super::args::By;
use crate::json::{is_unread, waiters};
use crate::text::{plain, process_of};
use crate::{mode, text};
use clap::ValueEnum;
use fencelock::{Expiry, Holding, Key, Liveness, Occupant, Span};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::time::Duration;
use tokio::time::Instant;

/// What the screen shows, and what a key does. It sends nothing and reads no clock but for ages.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) backend: String,
    /// Whether the number of waiters is known.
    pub(super) queues: bool,
    by: By,
    pub(super) reversed: bool,
    /// Only locks whose key or holder contains this, in lower case.
    filter: String,
    rows: Vec<Row>,
    watch: Watch,
    /// The rows that the filter leaves, in their order.
    shown: Vec<usize>,
    /// Among those that are shown.
    pub(super) selected: usize,
    /// The first one on the screen.
    top: usize,
    pub(super) focus: Focus,
    /// A lock is about to be broken.
    breaking: bool,
    listed: Option<Instant>,
    /// Why the last request failed.
    pub(super) trouble: Option<String>,
    notice: Option<String>,
}

/// A lock.
#[derive(Debug)]
struct Row {
    held: Holding,
    /// Its holders, as a text that is compared and filtered.
    holder: String,
}

/// What the keys act on.
#[derive(Debug, Default)]
pub(super) enum Focus {
    #[default]
    Rows,
    Filter,
    /// The lock, the last inspection of it, which may have found it free, and the first line on the screen.
    Details(Key, Option<Holding>, usize),
    /// Whether to break it.
    Question(Holding),
}

/// What is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    /// ^Z.
    Stop,
    Inspect(Key),
    Break(Box<Holding>),
}

/// Numbers about the locks that are shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) locks: usize,
    /// `None` where there is no queue.
    pub(super) waiters: Option<u64>,
    pub(super) longest_wait: Option<Duration>,
}

/// The heads of the columns.
pub(super) const HEADS: [&str; 8] = ["KEY", "HELD FOR", "ENDS IN", "RENEWED", "WAITING", "WAITED", "MODE", "HOLDER"];
/// How far page up and page down go.
const PAGE: usize = 10;

impl Table {
    pub(super) fn new(backend: String, queues: bool, by: By) -> Self {
        Self { backend, queues, by, ..Self::default() }
    }

    /// All locks, in place of those before: what was `asked` for then.
    pub(super) fn on_list(&mut self, held: Vec<Holding>, asked: Instant) {
        let row = |held: Holding| {
            let holders = held.holders.clone().map(|hold| hold.occupant);
            Row { held, holder: plain(&holders) }
        };
        let held = self.watch.on_list(held, (asked, Instant::now()));
        (self.listed, self.trouble) = (Some(Instant::now()), None);
        self.arrange(|table| table.rows = held.into_iter().map(row).collect());
    }

    /// The details of the selected lock: what was `asked` for then.
    pub(super) fn on_inspection(&mut self, mut held: Option<Holding>, asked: Instant) {
        if let Some(held) = &mut held {
            self.watch.on_inspection(held, (asked, Instant::now()));
        }
        if let Focus::Details(key, seen, _) = &mut self.focus
            && held.as_ref().is_none_or(|held| held.key == *key)
        {
            (*seen, self.trouble) = (held, None);
        }
    }

    /// What became of a lock that was to be broken.
    pub(super) fn on_notice(&mut self, text: String) {
        (self.breaking, self.notice) = (false, Some(text));
    }

    /// Once a second.
    pub(super) fn on_tick(&mut self) -> Option<Wish> {
        match &self.focus {
            Focus::Details(key, ..) => Some(Wish::Inspect(key.clone())),
            _ => None,
        }
    }

    pub(super) fn on_key(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Wish::Quit),
                KeyCode::Char('z') => Some(Wish::Stop),
                _ => None,
            };
        }
        match &mut self.focus {
            Focus::Question(_) => return self.on_answer(key.code),
            Focus::Filter => self.on_filter(key.code),
            Focus::Details(_, _, first) => match key.code {
                KeyCode::Up | KeyCode::Char('k') => *first = first.saturating_sub(1),
                KeyCode::Down | KeyCode::Char('j') => *first += 1,
                KeyCode::PageUp => *first = first.saturating_sub(PAGE),
                KeyCode::PageDown => *first += PAGE,
                KeyCode::Home => *first = 0,
                KeyCode::Char('b') => self.ask(),
                KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => self.focus = Focus::Rows,
                _ => {}
            },
            Focus::Rows => return self.on_row_key(key.code),
        }
        None
    }

    fn on_row_key(&mut self, key: KeyCode) -> Option<Wish> {
        let last = self.shown.len().saturating_sub(1);
        match key {
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.selected = (self.selected + PAGE).min(last),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Char('s') => self.arrange(|table| table.by = table.by.next()),
            KeyCode::Char('r') => self.arrange(|table| table.reversed ^= true),
            KeyCode::Char('/') => (self.focus, self.notice) = (Focus::Filter, None),
            KeyCode::Esc => self.arrange(|table| table.filter.clear()),
            KeyCode::Char('b') => self.ask(),
            KeyCode::Enter => {
                let held = self.lock()?.clone();
                let key = held.key.clone();
                self.focus = Focus::Details(key.clone(), Some(held), 0);
                return Some(Wish::Inspect(key));
            }
            _ => {}
        }
        None
    }

    fn on_filter(&mut self, key: KeyCode) {
        if matches!(key, KeyCode::Enter | KeyCode::Esc) {
            self.focus = Focus::Rows;
        }
        self.arrange(|table| match key {
            KeyCode::Esc => table.filter.clear(),
            KeyCode::Backspace => drop(table.filter.pop()),
            KeyCode::Char(c) => table.filter.extend(c.to_lowercase()),
            _ => {}
        });
    }

    /// Any key but `y` is a no.
    fn on_answer(&mut self, key: KeyCode) -> Option<Wish> {
        let Focus::Question(held) = std::mem::replace(&mut self.focus, Focus::Rows) else { return None };
        match key {
            KeyCode::Char('y' | 'Y') => {
                self.breaking = true;
                self.notice = Some(format!("breaking {} ...", plain(&held.key)));
                Some(Wish::Break(Box::new(held)))
            }
            // A changed size of the screen is no answer.
            KeyCode::Null => {
                self.focus = Focus::Question(held);
                None
            }
            _ => {
                self.notice = Some("nothing was broken".to_owned());
                None
            }
        }
    }

    /// Asks whether to break the selected lock: what is broken is what was on the screen, or nothing.
    fn ask(&mut self) {
        if self.breaking {
            return;
        }
        let seen = match &mut self.focus {
            Focus::Details(_, seen, _) => seen.take(),
            _ => self.lock().cloned(),
        };
        match seen {
            Some(held) if held.holders.count() == 1 => self.focus = Focus::Question(held),
            Some(held) => {
                self.focus = Focus::Rows;
                let (key, count) = (plain(&held.key), held.holders.count());
                self.notice = Some(format!("{key} has {count} holders: fencelock break --holder PREFIX {key}"));
            }
            None => {}
        }
    }

    /// Filters and orders the rows after this change. The selected lock stays selected.
    fn arrange(&mut self, change: impl FnOnce(&mut Self)) {
        let selected = self.lock().map(|held| held.key.clone());
        change(self);
        let Self { rows, filter, by, reversed, .. } = self;
        let fits = |row: &Row| {
            filter.is_empty()
                || row.held.key.as_str().to_lowercase().contains(filter.as_str())
                || row.holder.to_lowercase().contains(filter.as_str())
        };
        self.shown = (0..rows.len()).filter(|at| fits(&rows[*at])).collect();
        self.shown.sort_by(|a, b| {
            let before = by.compare(&rows[*a], &rows[*b]);
            let before = if *reversed { before.reverse() } else { before };
            before.then_with(|| rows[*a].held.key.cmp(&rows[*b].held.key))
        });
        let place = selected.and_then(|key| self.shown.iter().position(|at| self.rows[*at].held.key == key));
        self.selected = place.unwrap_or(self.selected).min(self.shown.len().saturating_sub(1));
    }

    /// The selected lock.
    fn lock(&self) -> Option<&Holding> {
        self.shown.get(self.selected).map(|at| &self.rows[*at].held)
    }

    /// The rows of a screen of this height, with the selected one among them.
    pub(super) fn on_screen(&mut self, height: usize) -> Range<usize> {
        let first = self.top.min(self.selected).max((self.selected + 1).saturating_sub(height));
        // No empty lines while there are more rows.
        self.top = first.min(self.shown.len().saturating_sub(height));
        self.top..self.shown.len().min(self.top + height)
    }
}

/// What is shown.
impl Table {
    /// The shown locks, in their order.
    pub(super) fn locks(&self) -> impl Iterator<Item = &Holding> {
        self.shown.iter().map(|at| &self.rows[*at].held)
    }

    pub(super) fn totals(&self) -> Totals {
        let waiters = self.queues.then(|| self.locks().map(|held| u64::from(held.waiters)).sum());
        Totals { locks: self.shown.len(), waiters, longest_wait: self.locks().filter_map(Holding::longest_wait).max() }
    }

    /// `5000 locks, 12 waiting, longest wait 3 min`.
    fn summary(&self) -> String {
        let Totals { locks, waiters, longest_wait } = self.totals();
        let mut text = if locks == 1 { "1 lock".to_owned() } else { format!("{locks} locks") };
        if self.shown.len() < self.rows.len() {
            text = format!("{text} of {}", self.rows.len());
        }
        text += &waiters.map_or_else(String::new, |waiters| format!(", {waiters} waiting"));
        text += &longest_wait.map_or_else(String::new, |wait| format!(", longest wait {}", Span(wait)));
        // Not those that came and went between two lists.
        let rate = self.watch.grants_per_second.filter(|rate| *rate > 0.0);
        text + &rate.map_or_else(String::new, |rate| format!(", {rate:.1} grants/s seen"))
    }

    /// The summary and how old it is, or why it could not be renewed.
    pub(super) fn state(&self) -> String {
        let age = self.listed.map(|listed| Span(Duration::from_secs(listed.elapsed().as_secs())));
        match (&self.trouble, age) {
            (None, None) => "listing ...".to_owned(),
            (None, Some(age)) => format!("{}; {age} ago", self.summary()),
            (Some(why), None) => plain(why),
            (Some(why), Some(age)) => format!("{} {age} ago; now: {}", self.summary(), plain(why)),
        }
    }

    /// The last lines: a question, or what was done and what the keys do.
    pub(super) fn foot(&self) -> String {
        let (by, filter) = (self.by.name(), plain(&self.filter));
        let keys = match &self.focus {
            Focus::Filter => return format!("filter: {filter}_   enter keeps it, esc clears it"),
            Focus::Question(held) => {
                return format!(
                    "Break {}, {}? It does not stop the holder. y/n",
                    plain(&held.key),
                    text::holding(held)
                );
            }
            Focus::Details(..) => "up/down scroll  b break  esc back".to_owned(),
            Focus::Rows => format!("enter details  s sort ({by})  r reverse  / filter  b break  q quit"),
        };
        match &self.notice {
            Some(notice) => format!("{}   {keys}", plain(notice)),
            None if filter.is_empty() => keys,
            None => format!("filter: {filter}   esc clears it  {keys}"),
        }
    }

    /// The holders and waiters of a lock, a line for each.
    pub(super) fn details(key: &Key, held: Option<&Holding>) -> Vec<String> {
        let text = match held {
            None => "free now: it was released, or its lease has ended".to_owned(),
            Some(held) => {
                let fence = held.first().fence.map_or_else(String::new, |fence| format!("\n  fencing token {fence}"));
                let remedy = remedy(held).unwrap_or_default();
                format!("{}{fence}{remedy}{}{}", text::holding(held), text::holders(held), text::waiters(held))
            }
        };
        format!("{}: {text}", plain(key)).lines().map(str::to_owned).collect()
    }

    /// The columns of a shown row.
    pub(super) fn cells(&self, at: usize) -> [String; 8] {
        let Row { held, holder } = &self.rows[self.shown[at]];
        let alive = alive(held);
        let mark = if alive.is_some_and(Liveness::is_overdue) { OVERDUE } else { "" };
        let (unread, span) = (is_unread(held), |span: Option<Duration>| span.map(|span| Span(span).to_string()));
        [
            plain(&held.key),
            span(held_for(held)).unwrap_or_else(|| "?".to_owned()),
            span(ends(held).span()).map_or_else(|| "-".to_owned(), |ends| format!("{mark}{ends}")),
            match alive {
                Some(Liveness::Renewed { ago, .. }) => Span(ago).to_string(),
                Some(Liveness::Process) => "lives".to_owned(),
                _ => "-".to_owned(),
            },
            waiters(held, self.queues).map_or_else(|| "-".to_owned(), |waiters| waiters.to_string()),
            span(held.longest_wait()).unwrap_or_else(|| "-".to_owned()),
            if unread { "-".to_owned() } else { mode::column(held.first().mode) },
            holder.clone(),
        ]
    }
}

/// As `top --once` writes it.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", plain(&self.backend), self.summary())?;
        if self.shown.is_empty() {
            return Ok(());
        }
        let rows = (0..self.shown.len()).map(|at| self.cells(at));
        let all: Vec<_> = std::iter::once(HEADS.map(str::to_owned)).chain(rows).collect();
        f.write_str(&text::table(&all))
    }
}

/// What frees the lock of one holder.
fn remedy(held: &Holding) -> Option<String> {
    let (Occupant::Holder(holder), 1) = (&held.first().occupant, held.holders.count()) else { return None };
    let (pid, host) = (holder.owner.pid()?, plain(holder.owner.host()));
    let watched = holder.owner.label().and_then(process_of);
    let (pid, keeper) = match watched.and_then(|watched| u32::try_from(watched).ok()) {
        Some(watched) => (watched, format!(", for which process {pid} keeps it and ignores TERM")),
        None => (pid, String::new()),
    };
    Some(format!("\n  to free it, end process {pid} on {host}{keeper}, or break the lock (b), which stops no process"))
}

/// In front of a lease whose renewal is overdue.
pub(super) const OVERDUE: &str = "! ";

/// What shows that the holder is alive; of several, the one that has not renewed for the longest time.
fn alive(held: &Holding) -> Option<Liveness> {
    let ago = |alive: &Liveness| if let Liveness::Renewed { ago, .. } = alive { *ago } else { Duration::ZERO };
    held.holders.iter().filter_map(|hold| hold.alive).max_by_key(ago)
}

/// The duration of the oldest hold.
fn held_for(held: &Holding) -> Option<Duration> {
    held.holders.iter().filter_map(|hold| hold.held_for).max()
}

/// When the first hold ends.
fn ends(held: &Holding) -> Expiry {
    held.holders.iter().fold(Expiry::Never, |earliest, hold| earliest.earlier(hold.expiry))
}

impl By {
    /// What comes first is less.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        match self {
            Self::Waiting => b.held.waiters.cmp(&a.held.waiters),
            Self::Waited => b.held.longest_wait().cmp(&a.held.longest_wait()),
            Self::Held => held_for(&b.held).cmp(&held_for(&a.held)),
            Self::Ends => {
                let left = |row: &Row| ends(&row.held).span().unwrap_or(Duration::MAX);
                left(a).cmp(&left(b))
            }
            Self::Key => a.held.key.cmp(&b.held.key),
            Self::Holder => a.holder.cmp(&b.holder),
        }
    }

    /// The one after it, in their order.
    fn next(self) -> Self {
        let all = Self::value_variants();
        all[(self as usize + 1) % all.len()]
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Waited => "waited",
            Self::Held => "held for",
            Self::Ends => "ends in",
            Self::Key => "key",
            Self::Holder => "holder",
        }
    }
}
