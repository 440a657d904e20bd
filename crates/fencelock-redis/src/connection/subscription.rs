use super::liveness::{Liveness, SessionTask};
use super::names::resolved;
use super::origin::Origin;
use super::push_handler::PushHandler;
use crate::url::target::Target;
use futures_util::{FutureExt, StreamExt};
use redis::aio::PubSub;
use redis::{ErrorKind, RedisError, RedisResult};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// With RESP2, a second connection subscribes. It ends with its session, and ends its session.
#[derive(Debug)]
pub(crate) struct Subscription(#[expect(dead_code, reason = "the task runs as long as it lives")] SessionTask);

impl Subscription {
    /// The session ends with this task: a release must not hand the lock to a channel without subscriber.
    pub(crate) async fn start(
        target: &Target,
        channel: &str,
        push_handler: &Arc<PushHandler>,
        liveness: &Liveness,
        server: &Arc<Origin>,
    ) -> RedisResult<Self> {
        let subscribe = async {
            let mut pubsub = connect(target).await?;
            pubsub.subscribe(channel).await?;
            RedisResult::Ok(pubsub)
        };
        let pubsub = match tokio::time::timeout(target.limit, subscribe).await {
            Ok(pubsub) => pubsub?,
            Err(_) => return Err((ErrorKind::Io, "no reply in time").into()),
        };
        let (push_handler, liveness, server) = (Arc::clone(push_handler), liveness.clone(), Arc::clone(server));
        let task = SessionTask::spawn(&liveness.clone(), async move {
            let mut messages = pubsub.into_on_message();
            while let Some(message) = messages.next().await {
                push_handler.message(message.get_payload_bytes(), &server);
            }
            liveness.end();
            // Wake-ups may be lost from here on.
            push_handler.reset();
        });
        Ok(Self(task))
    }
}

async fn connect(target: &Target) -> RedisResult<PubSub> {
    let mut last = RedisError::from((ErrorKind::Io, "the name of the host has no address"));
    for info in resolved(target.client.get_connection_info()).await? {
        let client = target.client_with(info)?;
        // With TLS, the driver still looks up the name in the pool of tokio, which may panic.
        let panicked = |_| Err((ErrorKind::Io, "the connection attempt panicked").into());
        match AssertUnwindSafe(client.get_async_pubsub()).catch_unwind().await.unwrap_or_else(panicked) {
            Err(error) => last = error,
            connected => return connected,
        }
    }
    Err(last)
}
