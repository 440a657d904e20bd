use crate::args::Break;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::state;
use crate::text::{holding, plain};
use fencelock::{Client, Eviction, Holding};

/// Ends somebody else's hold.
pub(super) async fn breaking(breaking: Break, context: &Context) -> Result<Exit, Failure> {
    context.with_client(async |client| end(&breaking, client, context).await).await
}

async fn end(breaking: &Break, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let key = plain(&breaking.key);
    let Some(seen) = client.inspect(&breaking.key).await? else {
        return nothing_to_end(&breaking.key, "free, so nothing was done", context);
    };
    if !breaking.yes {
        let why = format!("{key} is {}; nothing was done: add --yes to end this hold", holding(&seen));
        return Err(Failure::new(Exit::Usage, why));
    }
    match client.evict(&seen).await? {
        Eviction::Evicted => context.answer(&format!("{}\n", ended(&seen, context.report.json)))?,
        Eviction::Changed(None) => {
            return nothing_to_end(&breaking.key, "free by now, so nothing was done", context);
        }
        Eviction::Changed(Some(now)) => {
            let why = format!("{key} is {} by now: nothing was done, look again", holding(&now));
            return Err(Failure::new(Exit::Busy, why));
        }
        Eviction::Refused(why) => return Err(Failure::new(Exit::Usage, format!("{key}: {why}"))),
    }
    Ok(Exit::Success)
}

fn nothing_to_end(key: &str, why: &str, context: &Context) -> Result<Exit, Failure> {
    let mut answer = state(key, None);
    answer["broken"] = false.into();
    context.answer(&if context.report.json { format!("{answer}\n") } else { format!("{}: {why}\n", plain(key)) })?;
    Ok(Exit::Success)
}

/// With what was seen before it was ended.
fn ended(victim: &Holding, json: bool) -> String {
    if json {
        let mut answer = state(victim.key.as_str(), Some(victim));
        answer["broken"] = true.into();
        return answer.to_string();
    }
    format!("{}: ended the hold that was {}", plain(&victim.key), holding(victim))
}
