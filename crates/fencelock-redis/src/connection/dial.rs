//! Opens connections to the server.

use super::peers::Resolver;
use super::push_handler::{Origin, PushHandler};
use crate::url::target::Target;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisResult};
use std::sync::Arc;
use std::time::Duration;

/// The length of the request queue of one connection, beyond which senders wait.
pub(crate) const ROOM: usize = 4096;

/// `patience` is the timeout of a reply.
pub(crate) async fn dial(
    target: &Target,
    resp3: bool,
    patience: Duration,
    push_handler: &Arc<PushHandler>,
    server: &Arc<Origin>,
) -> RedisResult<MultiplexedConnection> {
    let mut connection = dial_untimed(target, resp3, push_handler, server).await?;
    connection.set_response_timeout(patience);
    Ok(connection)
}

/// A connection that waits for replies without a limit.
pub(crate) async fn dial_untimed(
    target: &Target,
    resp3: bool,
    push_handler: &Arc<PushHandler>,
    server: &Arc<Origin>,
) -> RedisResult<MultiplexedConnection> {
    let info = target.client.get_connection_info().clone();
    let protocol = if resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
    let settings = info.redis_settings().clone().set_protocol(protocol);
    let client = target.client_with(info.set_redis_settings(settings))?;
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(target.limit))
        .set_response_timeout(None)
        .set_dns_resolver(Resolver)
        .set_pipeline_buffer_size(ROOM);
    if resp3 {
        let (push_handler, server) = (Arc::clone(push_handler), Arc::clone(server));
        config = config.set_push_sender(move |info| {
            push_handler.push(&info, &server);
            Ok::<(), redis::aio::SendError>(())
        });
    }
    client.get_multiplexed_async_connection_with_config(&config).await
}
