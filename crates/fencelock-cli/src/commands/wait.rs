use crate::args::Wait;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::{holding, plain};
use fencelock::{Client, Expiry, Holding};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A look costs one small request; a fifth of a second is soon enough for a person and slow enough for a server.
const PAUSE: Duration = Duration::from_millis(200);

/// Waits until a key is free.
pub(super) async fn wait(wait: Wait, context: &Context) -> Result<Exit, Failure> {
    let held = context.with_client(async |client| until_free(&wait, client).await).await?;
    Ok(held)
}

async fn until_free(wait: &Wait, client: &Client) -> Result<Exit, Failure> {
    let started = Instant::now();
    loop {
        let Some(held) = client.inspect(&wait.key).await? else { return Ok(Exit::Success) };
        let left = wait.wait.map(|limit| limit.saturating_sub(started.elapsed()));
        if left == Some(Duration::ZERO) {
            return Err(Failure::new(Exit::Busy, format!("{} is {}", plain(&wait.key), holding(&held))));
        }
        sleep(pause(&held).min(left.unwrap_or(PAUSE))).await;
    }
}

/// A lease about to end is worth waiting for exactly.
fn pause(held: &Holding) -> Duration {
    match held.expiry {
        Expiry::In(left) => PAUSE.min(left + Duration::from_millis(1)),
        Expiry::Never => PAUSE,
    }
}
