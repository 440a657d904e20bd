//! `fencelock top`: all held locks on a screen that is kept current.
//!
//! It only reads, except for a lock that the user breaks and confirms. `table` is what is shown, and what a key does; `watch` is
//! what one list after another shows; `screen` draws and reads keys. One request is under way at a time, so a slow server delays the figures, and not the keys.

pub(crate) mod args;
mod screen;
mod table;
#[cfg(test)]
mod tests;

use super::breaking;
use super::list::held as list;
use crate::context::{Context, print};
use crate::exit::{Exit, Failure};
use crate::json::{is_unread, state};
use args::Top;
use fencelock::contract::RenewalPlan;
use fencelock::{Client, Error, HolderId, HolderInfo, Holding, Key, Liveness};
use screen::Screen;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::pin::Pin;
use std::time::Duration;
use table::{Table, Wish};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// A list asks the server about each held lock, so after a list of many there is a pause: at most so many are listed per second.
const LOCKS_PER_SECOND: u32 = 1000;
/// A list also scans what is not held. So it is under way for at most one in so many seconds.
const SHARE: u32 = 20;
/// A server that does not answer does little for a list, and whoever looks wants to know when it is back.
const SHARE_OF_FAILURES: u32 = 5;
/// The ages on the screen are in seconds.
const TICK: Duration = Duration::from_secs(1);

/// Shows the held locks.
pub(crate) async fn top(wanted: Top, context: &Context) -> Result<Exit, Failure> {
    let refuse = |why| Err(Failure::new(Exit::Usage, why));
    if !wanted.once && context.report.json {
        return refuse("a screen is not JSON: add --once");
    }
    if !wanted.once && !std::io::stdout().is_terminal() {
        return refuse("the output is not a terminal: add --once");
    }
    if !wanted.once && std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return refuse("this terminal has no cursor that can be moved (TERM=dumb): add --once");
    }
    context
        .with_client(async |client| {
            if wanted.once {
                return once(client, &wanted, context).await;
            }
            watch(client, &wanted, &context.identity(client)?).await
        })
        .await
}

fn new_table(client: &Client, wanted: &Top) -> Table {
    let mut table = Table::new(client.name(), client.capabilities().queues, wanted.sort);
    table.reversed = wanted.reverse;
    table
}

/// Writes what a screen would show, of all locks.
async fn once(client: &Client, wanted: &Top, context: &Context) -> Result<Exit, Failure> {
    let (mut table, asked) = (new_table(client, wanted), Instant::now());
    table.on_list(list(client, &wanted.prefix).await?, asked);
    let any_unread = table.locks().any(is_unread);
    print(&if context.report.json { format!("{}\n", as_json(&table)) } else { table.to_string() })?;
    Ok(if any_unread { Exit::Unreachable } else { Exit::Success })
}

fn as_json(table: &Table) -> Value {
    let totals = table.totals();
    json!({
        "backend": table.backend,
        "lock_count": totals.locks,
        "waiters": totals.waiters,
        "longest_wait_ms": totals.longest_wait.map(crate::json::millis),
        "locks": table.locks().map(|held| state(held.key.as_str(), Some(held), table.queues)).collect::<Value>(),
    })
}

/// A reply.
enum Reply {
    Listed(Result<Vec<Holding>, Error>),
    Inspected(Result<Option<Holding>, Error>),
    Broken(Result<String, Failure>),
}

type Request<'a> = Pin<Box<dyn Future<Output = Reply> + 'a>>;

async fn watch(client: &Client, wanted: &Top, backend: &str) -> Result<Exit, Failure> {
    let mut table = new_table(client, wanted);
    let (mut screen, mut keys) = Screen::open()?;
    let (mut due, mut begun) = (Instant::now(), Instant::now());
    let mut request: Option<Request<'_>> = None;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut wish = None;
    loop {
        if request.is_none() {
            (request, begun) = (next_request((client, backend), &wanted.prefix, &mut wish, due), Instant::now());
        }
        screen.draw(&mut table)?;
        let idle = request.is_none();
        tokio::select! {
            biased;
            key = keys.recv() => match key.map(|key| table.on_key(key)) {
                None | Some(Some(Wish::Quit)) => return Ok(Exit::Success),
                Some(Some(Wish::Stop)) => screen.stop()?,
                // What the user confirmed is not replaced by what is only looked at.
                Some(_) if matches!(wish, Some(Wish::Break(_))) => {}
                Some(asked) => wish = asked.or(wish),
            },
            Some(reply) = async { Some(request.as_mut()?.await) } => {
                request = None;
                due = match &reply {
                    Reply::Listed(listed) => Instant::now() + pause(wanted.interval, begun.elapsed(), listed),
                    // A broken lock is gone from the next list.
                    Reply::Broken(_) => Instant::now(),
                    Reply::Inspected(_) => due,
                };
                on_reply(&mut table, reply, begun);
            }
            _ = ticks.tick() => wish = wish.or_else(|| table.on_tick()),
            () = sleep_until(due), if idle => {}
        }
    }
}

/// What the user asked for goes first, then a list that is due.
fn next_request<'a>(
    (client, backend): (&'a Client, &'a str),
    prefix: &'a str,
    wish: &mut Option<Wish>,
    due: Instant,
) -> Option<Request<'a>> {
    match wish.take() {
        Some(Wish::Break(seen)) => {
            Some(Box::pin(async move { Reply::Broken(breaking::end_own(client, backend, &seen).await) }))
        }
        Some(Wish::Inspect(key)) => Some(Box::pin(async move { Reply::Inspected(client.inspect(key.as_str()).await) })),
        _ if due <= Instant::now() => Some(Box::pin(async move { Reply::Listed(list(client, prefix).await) })),
        _ => None,
    }
}

fn on_reply(table: &mut Table, reply: Reply, asked: Instant) {
    match reply {
        Reply::Listed(Ok(held)) => table.on_list(held, asked),
        Reply::Listed(Err(error)) | Reply::Inspected(Err(error)) => table.trouble = Some(format!("{error:#}")),
        Reply::Inspected(Ok(held)) => table.on_inspection(held, asked),
        Reply::Broken(Ok(done)) => table.on_notice(done),
        Reply::Broken(Err(failure)) => table.on_notice(failure.message),
    }
}

/// How long after a list the next one begins.
fn pause(interval: Duration, took: Duration, listed: &Result<Vec<Holding>, Error>) -> Duration {
    let locks = listed.as_ref().map_or(0, |held| u32::try_from(held.len()).unwrap_or(u32::MAX));
    let share = if listed.is_ok() { SHARE } else { SHARE_OF_FAILURES };
    interval.max(took * (share - 1)).max(Duration::from_secs(1) * locks / LOCKS_PER_SECOND)
}

/// What one look after another shows of holds: their renewals, where the backend does not tell them, and how many were granted.
#[derive(Debug, Default)]
struct Watch {
    holds: HashMap<(Key, HolderId), Seen>,
    listed: Option<Instant>,
    /// Since the list before the last one; `None` before the second list.
    grants_per_second: Option<f64>,
}

/// A hold with a lease: each renewal moves its end.
#[derive(Debug, Clone)]
struct Seen {
    /// The last look, and the remaining time that it showed.
    at: Instant,
    left: Duration,
    /// The greatest remaining time so far: the TTL, as soon as a look has closely followed a renewal.
    longest: Duration,
    /// The latest renewal.
    renewed: Option<Instant>,
    /// The shortest time between two renewals.
    every: Option<Duration>,
}

/// Servers count in milliseconds.
const RESOLUTION: Duration = Duration::from_millis(5);

impl Watch {
    /// All holds, in place of those before, and what shows that their holders are alive. Each was read after it was `asked` for, and
    /// before `now`.
    fn on_list(&mut self, mut held: Vec<Holding>, (asked, now): (Instant, Instant)) -> Vec<Holding> {
        let before = std::mem::take(&mut self.holds);
        for held in &held {
            self.look(held, (asked, now), &before);
        }
        let new = self.holds.keys().filter(|hold| !before.contains_key(hold)).count();
        let since = self.listed.replace(now).map(|listed| now.saturating_duration_since(listed).as_secs_f64());
        let rate = |since| f64::from(u32::try_from(new).unwrap_or(u32::MAX)) / since;
        self.grants_per_second = since.filter(|since| *since > 0.0).map(rate);
        for held in &mut held {
            self.tell(held);
        }
        held
    }

    /// One of them again. What was granted meanwhile is for the next list.
    fn on_inspection(&mut self, held: &mut Holding, times: (Instant, Instant)) {
        let known = |hold: &HolderInfo| Some((held.key.clone(), hold.holder_id()?));
        let known = held.holders.iter().filter_map(known);
        let before: HashMap<_, _> = known.filter_map(|hold| self.holds.remove_entry(&hold)).collect();
        self.look(held, times, &before);
        self.tell(held);
        let new = |hold: &(Key, HolderId)| hold.0 == held.key && !before.contains_key(hold);
        self.holds.retain(|hold, _| !new(hold));
    }

    fn look(&mut self, held: &Holding, times: (Instant, Instant), before: &HashMap<(Key, HolderId), Seen>) {
        for hold in held.holders.iter() {
            let (Some(id), Some(left)) = (hold.holder_id(), hold.expiry.span()) else { continue };
            let name = (held.key.clone(), id);
            let seen = Seen::next(before.get(&name), times, left);
            self.holds.insert(name, seen);
        }
    }

    /// Adds what was seen to what the backend tells.
    fn tell(&self, held: &mut Holding) {
        let key = &held.key;
        held.holders = held.holders.clone().map(|hold| {
            let seen = || self.holds.get(&(key.clone(), hold.holder_id()?))?.liveness();
            let alive = hold.alive.or_else(seen);
            hold.with_alive(alive)
        });
    }
}

impl Seen {
    /// After a look that was `asked` for and complete at these times.
    fn next(before: Option<&Self>, (asked, now): (Instant, Instant), left: Duration) -> Self {
        let Some(before) = before else { return Self { at: now, left, longest: left, renewed: None, every: None } };
        let same = Self { at: now, left, longest: before.longest.max(left), ..before.clone() };
        // The lease was to end at this time at the latest. If it now ends later, it was renewed.
        let end = before.at + before.left;
        if asked + left <= end + RESOLUTION {
            return same;
        }
        let moved = (now + left).saturating_duration_since(end);
        let every = before.every.map_or(moved, |every| every.min(moved));
        // Not before the last look, which did not show it.
        let ago = same.longest.saturating_sub(left).min(now.saturating_duration_since(before.at));
        Self { renewed: now.checked_sub(ago), every: Some(every), ..same }
    }

    fn liveness(&self) -> Option<Liveness> {
        let ago = self.at.saturating_duration_since(self.renewed?);
        // A renewal may be early, together with others, so one interval alone may be too short.
        let every = self.every.map(|every| every.max(RenewalPlan::interval(self.longest)));
        Some(Liveness::Renewed { ago, every })
    }
}
