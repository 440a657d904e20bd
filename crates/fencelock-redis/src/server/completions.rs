//! Completions on one server.

use super::Redis;
use crate::scripts::reply::Reply;
use crate::scripts::script::{self, COMPLETION_KEY, Call};
use crate::scripts::side_key::side_key;
use fencelock_core::{
    ClearCompletion, Completion, CompletionRead, CountedSuccess, Fault, HolderId, Key, Unknown, WriteCompletion,
};
use redis::Value;

pub(crate) async fn read_stored(redis: &Redis, key: &Key) -> Result<CompletionRead, Unknown> {
    let node = redis.link.node();
    let redis_key = redis.link.target.redis_key(key);
    let answer = redis.send(|epoch_check| script::read_completion(&redis_key, epoch_check)).await?;
    let mut reply = Reply::new(node, answer)?;
    let (text, kind, now) = (reply.text()?, reply.text()?, reply.text()?);
    // Windows are computed from it.
    let now_micros = Some(&now).filter(|now| now.len() <= 16).and_then(|now| now.parse().ok());
    let now_micros = now_micros.ok_or_else(|| Unknown::new(node, Fault::Other, format!("its time is {now:?}")))?;
    let completion = match &*text {
        "" if kind.is_empty() => None,
        _ => {
            let completion = Some(&text).filter(|_| kind.is_empty()).and_then(|text| Completion::from_wire(text));
            let kind = if kind.is_empty() { "string" } else { &kind };
            Some(completion.ok_or_else(|| unreadable(redis, &redis_key, kind, &text))?)
        }
    };
    Ok(CompletionRead::new(completion, now_micros))
}

pub(crate) async fn write_stored(
    redis: &Redis,
    key: &Key,
    holder: Option<&HolderId>,
    completion: &Completion,
) -> Result<WriteCompletion, Unknown> {
    let redis_key = redis.link.target.redis_key(key);
    let answer = call_acked(redis, script::write_completion(&redis_key, holder, completion)).await?;
    let mut reply = Reply::new(redis.link.node(), answer)?;
    match &*reply.text()? {
        "written" => Ok(WriteCompletion::Written),
        "absent" => Ok(WriteCompletion::NotHeld),
        _ => {
            let kind = reply.text()?;
            Err(unreadable(redis, &redis_key, &kind, &reply.text()?))
        }
    }
}

/// The server forgets a completion an hour after its end: a caller with longer windows must name its own.
pub(crate) async fn confirm_stored(redis: &Redis, key: &Key, done: &CountedSuccess) -> Result<(), Unknown> {
    if done.outlasts_its_completion() {
        write_stored(redis, key, None, &done.stored()).await?;
    }
    Ok(())
}

pub(crate) async fn clear_stored(redis: &Redis, key: &Key, seen: &Completion) -> Result<ClearCompletion, Unknown> {
    let call = script::clear_completion(&redis.link.target.redis_key(key), seen);
    let mut reply = Reply::new(redis.link.node(), call_acked(redis, call).await?)?;
    Ok(match &*reply.text()? {
        "cleared" => ClearCompletion::Cleared,
        "absent" => ClearCompletion::Absent,
        _ => ClearCompletion::Changed,
    })
}

/// With `acks`, the write counts if enough replicas confirm it.
async fn call_acked(redis: &Redis, call: Call) -> Result<Value, Unknown> {
    let session = redis.link.session().await?;
    let (Some(writer), Some(acks)) = (session.acks.as_ref().filter(|_| !redis.in_trial), redis.link.target.acks) else {
        return redis.call_over(&session, call).await;
    };
    let sent = writer.send(vec![call]).await;
    redis.link.check(&session);
    let (mut answers, acked) = sent.map_err(|error| redis.unknown(&error))?;
    let answer = answers.pop().unwrap_or(Ok(Value::Nil)).map_err(|error| redis.unknown(&error))?;
    acks.enough(redis.link.node(), acked.map_err(|error| redis.unknown(&error))?)?;
    session.ensure_master(redis.link.node()).await?;
    Ok(answer)
}

fn unreadable(redis: &Redis, redis_key: &str, kind: &str, begins: &str) -> Unknown {
    let detail = format!(
        "{}; the work was not started and nothing was changed: use a later version of fencelock, or DEL it if the work may run again",
        described(redis_key, kind, begins)
    );
    Unknown::new(redis.link.node(), Fault::Unsupported, detail)
}

/// An unreadable completion.
pub(crate) fn described(redis_key: &str, kind: &str, begins: &str) -> String {
    let (name, begins) = (side_key(redis_key, COMPLETION_KEY), begins.chars().take(60).collect::<String>());
    format!("{name:?} cannot be read by this version: a {kind}, {begins:?}")
}
