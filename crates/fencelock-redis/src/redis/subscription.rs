use super::liveness::Liveness;
use super::origin::Origin;
use super::push_handler::PushHandler;
use super::session_task::SessionTask;
use super::target::Target;
use futures_util::StreamExt;
use redis::RedisResult;
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
        let connect = async {
            let client = target.client_with(target.client.get_connection_info().clone())?;
            let mut pubsub = client.get_async_pubsub().await?;
            pubsub.subscribe(channel).await?;
            RedisResult::Ok(pubsub)
        };
        let pubsub = match tokio::time::timeout(target.limit, connect).await {
            Ok(pubsub) => pubsub?,
            Err(_) => return Err((redis::ErrorKind::Io, "no reply in time").into()),
        };
        let (push_handler, liveness, server) = (Arc::clone(push_handler), liveness.clone(), Arc::clone(server));
        let task = SessionTask::spawn(async move {
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
