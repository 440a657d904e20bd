use crate::args::Status;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::state;
use crate::text::{holding, plain};
use fencelock::Client;

/// Tells who has a key.
pub(super) async fn status(status: Status, context: &Context) -> Result<Exit, Failure> {
    context.with_client(async |client| look(client, &status.key, context).await).await
}

async fn look(client: &Client, key: &str, context: &Context) -> Result<Exit, Failure> {
    let held = client.inspect(key).await?;
    let answer = match &held {
        held if context.report.json => state(key, held.as_ref()).to_string(),
        None => format!("{}: free", plain(key)),
        Some(held) => format!("{}: {}", plain(key), holding(held)),
    };
    context.answer(&format!("{answer}\n"))?;
    Ok(if held.is_some() { Exit::Busy } else { Exit::Success })
}
