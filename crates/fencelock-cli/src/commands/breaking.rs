use super::status::describe;
use crate::args::Break;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::{holding, plain};
use fencelock::{Client, Eviction, Holding};
use serde_json::json;

/// Ends somebody else's hold.
pub(super) async fn breaking(breaking: Break, context: &Context) -> Result<Exit, Failure> {
    context.with_client(async |client| end(&breaking, client, context).await).await
}

async fn end(breaking: &Break, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let key = plain(&breaking.key);
    let Some(seen) = client.inspect(&breaking.key).await? else {
        let free = if context.report.json {
            json!({ "key": breaking.key, "broken": false, "held": false }).to_string()
        } else {
            format!("{key}: free, so nothing was done")
        };
        context.answer(&format!("{free}\n"))?;
        return Ok(Exit::Success);
    };
    if !breaking.yes {
        let why = format!("{key} is {}; nothing was done: add --yes to end this hold", holding(&seen));
        return Err(Failure::new(Exit::Usage, why));
    }
    match client.evict(&seen).await? {
        Eviction::Evicted => context.answer(&format!("{}\n", ended(&seen, context.report.json)))?,
        Eviction::Changed(None) => context.answer(&format!("{key}: free by now, so nothing was done\n"))?,
        Eviction::Changed(Some(now)) => {
            let why = format!("{key} is {} by now: nothing was done, look again", holding(&now));
            return Err(Failure::new(Exit::Busy, why));
        }
        Eviction::Refused(why) => return Err(Failure::new(Exit::Usage, format!("{key}: {why}"))),
    }
    Ok(Exit::Success)
}

fn ended(victim: &Holding, json: bool) -> String {
    if json {
        let mut answer = describe(victim);
        answer["broken"] = true.into();
        return answer.to_string();
    }
    format!("{}: ended the hold that was {}", plain(&victim.key), holding(victim))
}
