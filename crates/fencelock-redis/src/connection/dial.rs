//! Opens connections to the server.

use super::liveness::{Liveness, SessionTask};
use super::names::{Resolver, resolved};
use super::push_handler::{Origin, PushHandler};
use crate::url::target::Target;
use futures_util::{FutureExt, StreamExt};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, ErrorKind, ProtocolVersion, RedisError, RedisResult};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The length of the request queue of one connection, beyond which senders wait.
pub(crate) const ROOM: usize = 4096;

/// What the connections of a client to one server have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialer<'a> {
    pub(crate) target: &'a Target,
    /// The channel of the client.
    pub(crate) channel: &'a str,
    pub(crate) push_handler: &'a Arc<PushHandler>,
}

impl Dialer<'_> {
    /// Opens a connection. `patience` is the timeout of a reply; without it, there is none.
    pub(crate) async fn dial(
        self,
        resp3: bool,
        patience: Option<Duration>,
        origin: &Arc<Origin>,
    ) -> RedisResult<MultiplexedConnection> {
        let info = self.target.client.get_connection_info().clone();
        let protocol = if resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let settings = info.redis_settings().clone().set_protocol(protocol);
        let client = self.target.client_with(info.set_redis_settings(settings))?;
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.target.limit))
            .set_response_timeout(patience)
            .set_dns_resolver(Resolver)
            .set_pipeline_buffer_size(ROOM);
        if resp3 {
            let (push_handler, origin) = (Arc::clone(self.push_handler), Arc::clone(origin));
            config = config.set_push_sender(move |info| {
                push_handler.push(&info, &origin);
                Ok::<(), redis::aio::SendError>(())
            });
        }
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// With RESP2, another connection subscribes. It ends with its session, and the session ends with it: a release must not hand the
    /// lock to a channel without subscriber.
    pub(crate) async fn subscribe(
        self,
        channel: &str,
        liveness: &Liveness,
        origin: &Arc<Origin>,
    ) -> RedisResult<SessionTask> {
        let subscribe = async {
            let mut pubsub = self.pubsub().await?;
            pubsub.subscribe(channel).await?;
            RedisResult::Ok(pubsub)
        };
        let silent = |_| Err((ErrorKind::Io, "no reply in time").into());
        let pubsub = timeout(self.target.limit, subscribe).await.unwrap_or_else(silent)?;
        let (push_handler, ended, origin) = (Arc::clone(self.push_handler), liveness.clone(), Arc::clone(origin));
        Ok(SessionTask::spawn(liveness, async move {
            let mut messages = pubsub.into_on_message();
            while let Some(message) = messages.next().await {
                push_handler.message(message.get_payload_bytes(), &origin);
            }
            ended.end();
            // Wake-ups may be lost from here on.
            push_handler.reset();
        }))
    }

    async fn pubsub(self) -> RedisResult<PubSub> {
        let mut last = RedisError::from((ErrorKind::Io, "the name of the host has no address"));
        for info in resolved(self.target.client.get_connection_info()).await? {
            let client = self.target.client_with(info)?;
            // With TLS, the driver still looks up the name in the pool of tokio, which may panic.
            let panicked = |_| Err((ErrorKind::Io, "the connection attempt panicked").into());
            match AssertUnwindSafe(client.get_async_pubsub()).catch_unwind().await.unwrap_or_else(panicked) {
                Err(error) => last = error,
                connected => return connected,
            }
        }
        Err(last)
    }
}
