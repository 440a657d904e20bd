use super::renew::{after_acquire, held_elsewhere, not_held, proof};
use crate::args::Release;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::keeper::{self, Done, Request};
use crate::report::Event;
use crate::text::plain;
use fencelock::Released;
use serde_json::json;

/// Releases a lock that `acquire` acquired, or all of a session.
pub(super) async fn release(release: Release, context: &Context) -> Result<Exit, Failure> {
    if let Some(pid) = release.while_pid {
        let done = keeper::release_all(&release, pid, context).await?;
        if done.is_empty() {
            context.report.emit(&Event::NothingKept { pid, owner: release.owner.as_deref() });
        }
        let exits: Result<Vec<_>, Failure> = done.iter().map(|done| report(done, context)).collect();
        return Ok(exits?.into_iter().find(|exit| *exit != Exit::Success).unwrap_or(Exit::Success));
    }
    let (key, holder) = (release.key.unwrap_or_default(), proof(&release.holder.unwrap_or_default())?);
    context
        .with_client(async |client| {
            let request = Request::Release { key: key.clone(), holder };
            let backend = context.identity(client)?;
            let kept = keeper::ask_holder(client, &backend, (&key, holder), &request).await?;
            let done = match kept.and_then(|done| serde_json::from_value::<Done>(done).ok()) {
                Some(done) => Done { keys: vec![key.clone()], ..done },
                None => match client.release(&key, holder).await? {
                    Released::Released => Done { keys: vec![key.clone()], released: Some(true), why: None },
                    Released::AlreadyLost { why } => {
                        let why = if context.report.json { why.to_string() } else { after_acquire(&why) };
                        Done { keys: vec![key.clone()], released: Some(false), why: Some(why) }
                    }
                },
            };
            if done.released == Some(false)
                && let Some(why) = held_elsewhere(&key, holder, client).await
            {
                return Err(Failure::new(Exit::Usage, why));
            }
            report(&done, context)
        })
        .await
}

/// A lock that was lost is an error, unless others are reported beside it.
fn report(done: &Done, context: &Context) -> Result<Exit, Failure> {
    let exit = match done.released {
        Some(true) => Exit::Success,
        Some(false) => Exit::Lost,
        None => Exit::Unreachable,
    };
    let why = done.why.as_deref();
    for key in &done.keys {
        match done.released {
            Some(_) if context.report.json => in_json(key, done, context)?,
            Some(true) => context.answer(&format!("{}: released\n", plain(key)))?,
            Some(false) => return Err(not_held(key, why.unwrap_or_default())),
            None => {
                let why = why.unwrap_or("its keeper gave no reason");
                return Err(Failure::new(Exit::Unreachable, format!("the release of {key} is not confirmed: {why}")));
            }
        }
    }
    Ok(exit)
}

fn in_json(key: &str, done: &Done, context: &Context) -> Result<(), Failure> {
    let answer = json!({ "key": key, "released": done.released == Some(true), "reason": done.why });
    context.answer(&format!("{answer}\n"))
}
