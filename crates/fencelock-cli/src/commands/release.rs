use super::renew::{after_acquire, held_elsewhere, not_held, proof};
use crate::args::Release;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::keeper::{self, Request};
use crate::text::plain;
use fencelock::Released;
use serde_json::{Value, json};

/// Releases a lock that `acquire` acquired.
pub(super) async fn release(release: Release, context: &Context) -> Result<Exit, Failure> {
    let holder = proof(&release.holder)?;
    context
        .with_client(async |client| {
            let key = &release.key;
            let request = Request::Release { key: key.clone(), holder };
            let lost = match keeper::ask(client, holder, &request).await? {
                Some(answer) => not_released(key, &answer)?,
                None => match client.release(key, holder).await? {
                    Released::Released => None,
                    Released::AlreadyLost { why } if context.report.json => Some(why.to_string()),
                    Released::AlreadyLost { why } => Some(after_acquire(&why)),
                },
            };
            if lost.is_some()
                && let Some(why) = held_elsewhere(key, holder, client).await
            {
                return Err(Failure::new(Exit::Usage, why));
            }
            match lost {
                _ if context.report.json => in_json(key, lost.as_deref(), context),
                None => context.answer(&format!("{}: released\n", plain(key))).map(|()| Exit::Success),
                Some(why) => Err(not_held(key, why)),
            }
        })
        .await
}

/// Why the process that keeps the lock does not hold it.
fn not_released(key: &str, answer: &Value) -> Result<Option<String>, Failure> {
    let why = answer["why"].as_str();
    match answer["done"].as_bool() {
        Some(true) => Ok(None),
        Some(false) => Ok(Some(why.unwrap_or_default().to_owned())),
        None => {
            let why = why.unwrap_or("its keeper gave no reason");
            Err(Failure::new(Exit::Unreachable, format!("the release of {key} is not confirmed: {why}")))
        }
    }
}

fn in_json(key: &str, lost: Option<&str>, context: &Context) -> Result<Exit, Failure> {
    let answer = json!({ "key": key, "released": lost.is_none(), "reason": lost });
    context.answer(&format!("{answer}\n"))?;
    Ok(if lost.is_none() { Exit::Success } else { Exit::Lost })
}
