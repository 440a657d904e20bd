//! Opens connections to the server, and detects dead ones.

use super::push_handler::PushHandler;
use super::quarantine::UNKNOWN_RUN_ID;
use super::target::Target;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisResult};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The run id of the server of a connection, once it is known.
pub(crate) type ServerName = Arc<OnceLock<String>>;

/// The length of the request queue of one connection, beyond which senders wait.
const ROOM: usize = 4096;

/// `patience` is the timeout of a reply.
pub(crate) async fn dial(
    target: &Target,
    resp3: bool,
    patience: Duration,
    push_handler: &Arc<PushHandler>,
    server: &ServerName,
) -> RedisResult<MultiplexedConnection> {
    let info = target.client.get_connection_info().clone();
    let protocol = if resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
    let settings = info.redis_settings().clone().set_protocol(protocol);
    let client = target.client_with(info.set_redis_settings(settings))?;
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(target.limit))
        .set_response_timeout(Some(patience))
        .set_pipeline_buffer_size(ROOM);
    if resp3 {
        let (push_handler, server) = (Arc::clone(push_handler), Arc::clone(server));
        config = config.set_push_sender(move |info| {
            push_handler.push(&info, server.get().map_or(UNKNOWN_RUN_ID, String::as_str));
            Ok::<(), redis::aio::SendError>(())
        });
    }
    client.get_multiplexed_async_connection_with_config(&config).await
}
