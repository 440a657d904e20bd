pub(crate) mod args;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::window_done;
use crate::text::plain;
use args::Once;
use fencelock::{Client, Error, WindowDone};
use serde_json::json;
use std::time::Duration;

/// Shows or removes the record that the work of a key is done.
pub(super) async fn once(once: Once, context: &Context) -> Result<Exit, Failure> {
    context.with_client(async |client| show(&once, client, context).await).await
}

async fn show(once: &Once, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let Some(done) = done(client, &once.key).await? else {
        answer(once, None, "not done in this window", context)?;
        return Ok(Exit::Success);
    };
    if !once.clear {
        answer(once, Some(&done), &done.to_string(), context)?;
        return Ok(Exit::Success);
    }
    if client.once(&once.key, ANY_WINDOW).clear(&done).await? {
        answer(once, None, &format!("cleared, it may run again; it was {done}"), context)?;
        return Ok(Exit::Success);
    }
    let why = format!("{}: the record has changed, and was not removed: run the command again", plain(&once.key));
    Err(Failure::new(Exit::Busy, why))
}

/// The record contains the end of its window.
const ANY_WINDOW: Duration = Duration::from_secs(86_400);

/// Who has done the work of a key, if it is done.
pub(super) async fn done(client: &Client, key: &str) -> Result<Option<WindowDone>, Error> {
    client.once(key, ANY_WINDOW).done().await
}

fn answer(once: &Once, done: Option<&WindowDone>, text: &str, context: &Context) -> Result<(), Failure> {
    if context.report.json {
        return context.answer(&format!("{}\n", json!({ "key": once.key, "done": done.map(window_done) })));
    }
    context.answer(&format!("{}: {}\n", plain(&once.key), plain(text)))
}
