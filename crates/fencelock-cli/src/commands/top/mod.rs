//! `fencelock top`: all held locks on a screen that is kept current.
//!
//! It only reads, except for a lock that the user breaks and confirms. `table` is what is shown, and what a key does; `watch` is
//! what one list after another shows; `screen` draws and reads keys. One request is under way at a time, so a slow server delays the figures, and not the keys.

pub(crate) mod args;
mod screen;
mod table;
#[cfg(test)]
mod tests;
mod watch;

use super::breaking;
use crate::context::{Context, print};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{is_unread, state};
use args::Top;
use fencelock::{Client, Error, Holding};
use screen::Screen;
use serde_json::{Value, json};
use std::future::pending;
use std::io::IsTerminal;
use std::pin::Pin;
use std::time::Duration;
use table::{Order, Table, Wish};
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
    context
        .with_client(async |client| {
            if wanted.once {
                return once(client, &wanted, context).await;
            }
            watch(client, &wanted, &context.identity(client)?).await
        })
        .await
}

async fn list(client: &Client, prefix: &str) -> Result<Vec<Holding>, Error> {
    let mut held = client.list().await?;
    held.retain(|held| held.key.as_str().starts_with(prefix));
    Ok(held)
}

fn new_table(client: &Client, wanted: &Top) -> Table {
    let order = Order { by: wanted.sort, reversed: wanted.reverse };
    Table::new(client.name(), client.capabilities().queues, order)
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
        "backend": table.backend(),
        "lock_count": totals.locks,
        "waiters": totals.waiters,
        "longest_wait_ms": totals.longest_wait.map(crate::json::millis),
        "locks": table.locks().map(|held| state(held.key.as_str(), Some(held), table.queues())).collect::<Value>(),
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
                // What the user confirmed is not replaced by what is only looked at.
                Some(_) if matches!(wish, Some(Wish::Break(_))) => {}
                Some(asked) => wish = asked.or(wish),
            },
            reply = reply_to(&mut request) => {
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

async fn reply_to(request: &mut Option<Request<'_>>) -> Reply {
    match request {
        Some(request) => request.await,
        None => pending().await,
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
        Reply::Listed(Err(error)) | Reply::Inspected(Err(error)) => table.on_trouble(format!("{error:#}")),
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
