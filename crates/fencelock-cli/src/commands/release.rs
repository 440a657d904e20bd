use super::renew::{after_acquire, not_held, proof};
use crate::args::Release;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::keeper::{self, Request};
use crate::text::plain;
use fencelock::{LossReason, Released};
use serde_json::{Value, json};

/// Releases a lock that `acquire` acquired.
pub(super) async fn release(release: Release, context: &Context) -> Result<Exit, Failure> {
    let holder = proof(&release.holder)?;
    context
        .with_client(async |client| {
            let key = &release.key;
            let request = Request::Release { key: key.clone(), holder };
            if let Some(answer) = keeper::ask(client, holder, &request).await? {
                return kept(key, &answer, context);
            }
            let (exit, why) = match client.release(key, holder).await? {
                Released::Released => (Exit::Success, None),
                Released::AlreadyLost { why } => (Exit::Lost, Some(why)),
            };
            if context.report.json {
                let why = why.as_ref().map(LossReason::to_string);
                return in_json(key, exit, why.as_deref(), context);
            }
            match why {
                None => context.answer(&format!("{}: released\n", plain(key)))?,
                Some(why) => return Err(not_held(key, after_acquire(&why))),
            }
            Ok(exit)
        })
        .await
}

/// The answer of the process that keeps the lock.
fn kept(key: &str, answer: &Value, context: &Context) -> Result<Exit, Failure> {
    let why = answer["why"].as_str();
    match answer["done"].as_bool() {
        Some(done) if context.report.json => in_json(key, if done { Exit::Success } else { Exit::Lost }, why, context),
        Some(true) => context.answer(&format!("{}: released\n", plain(key))).map(|()| Exit::Success),
        Some(false) => Err(not_held(key, why.unwrap_or_default())),
        None => {
            let why = why.unwrap_or("its keeper gave no reason");
            Err(Failure::new(Exit::Unreachable, format!("the release of {key} is not confirmed: {why}")))
        }
    }
}

fn in_json(key: &str, exit: Exit, why: Option<&str>, context: &Context) -> Result<Exit, Failure> {
    let answer = json!({ "key": key, "released": exit == Exit::Success, "reason": why });
    context.answer(&format!("{answer}\n"))?;
    Ok(exit)
}
