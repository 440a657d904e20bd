pub(crate) mod args;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::json::window_done;
use crate::text::plain;
use args::Once;
use fencelock::{Client, WindowDone};
use serde_json::json;
use std::time::Duration;

/// Shows or removes the record that the work of a key is done.
pub(super) async fn once(once: &Once, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let done = if once.window.check().map_err(|why| Failure::new(Exit::Usage, why))? {
        once.window.work(&once.key, client).done().await?
    } else {
        client.last_success(&once.key).await?
    };
    let Some(done) = done else { return answer(once, None, "not done in this window", context) };
    if !once.clear {
        return answer(once, Some(&done), &done.to_string(), context);
    }
    if client.once(&once.key, ANY_WINDOW).clear(&done).await? {
        return answer(once, None, &format!("cleared, it may run again; it was {done}"), context);
    }
    let why = format!("{}: the record has changed, and was not removed: run the command again", plain(&once.key));
    Err(Failure::new(Exit::Busy, why))
}

/// A record is removed for all windows.
const ANY_WINDOW: Duration = Duration::from_secs(86_400);

fn answer(once: &Once, done: Option<&WindowDone>, text: &str, context: &Context) -> Result<Exit, Failure> {
    let json = json!({ "key": once.key, "done": done.map(window_done) });
    context.answer_with(&json, &format!("{}: {}", plain(&once.key), plain(text)))
}
