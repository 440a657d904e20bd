//! Proxies that close the connection when they receive an unknown command.

use super::dial::dial;
use super::fault::fault_of;
use super::origin::Origin;
use super::protocol;
use super::push_handler::PushHandler;
use super::server_info::ServerInfo;
use crate::url::target::Target;
use fencelock_core::{Fault, Unknown};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, make_extension_error};
use std::sync::Arc;

/// The commands of fencelock that such a proxy supports.
const KNOWN: [&[u8]; 3] = [b"EVALSHA", b"EVAL", b"PING"];

const CLOSES: &str = "the server closes the connection at it, as some proxies do";

/// Whether the server has closed the connection instead of replying.
pub(crate) fn is_closed(error: &RedisError) -> bool {
    fault_of(error) == Fault::Unreachable && !error.is_connection_refusal()
}

/// Opens the session of such a proxy. If the server is not one, returns the error that ended the connection.
pub(crate) async fn session_of(
    target: &Target,
    push_handler: &Arc<PushHandler>,
    origin: &Arc<Origin>,
    unknown: Unknown,
) -> Result<(MultiplexedConnection, ServerInfo), Unknown> {
    // Sentinels and nodes of a cluster need commands that such a proxy does not support.
    let is_alone = target.sentinels.is_none() && target.cluster.is_none();
    let connection = if is_alone { connect(target, push_handler, origin).await } else { None };
    let Some(connection) = connection else {
        return Err(protocol::mismatch(target).await.unwrap_or(unknown));
    };
    check(target)?;
    Ok((connection, ServerInfo::plain(limitations())))
}

/// Connects to a proxy that closes the connection at `INFO` and replies to `PING`; `None` if it is not one. A server that is
/// shutting down also closes connections, so this tries again.
async fn connect(
    target: &Target,
    push_handler: &Arc<PushHandler>,
    origin: &Arc<Origin>,
) -> Option<MultiplexedConnection> {
    let open = async || dial(target, false, target.limit, push_handler, origin).await.ok();
    let again = redis::cmd("INFO").arg("server").exec_async(&mut open().await?).await;
    if !again.is_err_and(|error| is_closed(&error)) {
        return None;
    }
    let mut connection = open().await?;
    redis::cmd("PING").exec_async(&mut connection).await.ok()?;
    Some(connection)
}

/// Why the connection to another database is closed, if it is such a proxy.
pub(crate) async fn refuses_database(
    target: &Target,
    push_handler: &Arc<PushHandler>,
    origin: &Arc<Origin>,
) -> Option<Unknown> {
    let info = target.client.get_connection_info().clone();
    let db = info.redis_settings().db();
    if db == 0 {
        return None;
    }
    let settings = info.redis_settings().clone().set_db(0);
    let mut without = target.clone();
    without.client = target.client_with(info.set_redis_settings(settings)).ok()?;
    connect(&without, push_handler, origin).await?;
    let why = format!("database {db} needs SELECT, and {CLOSES}: leave the database out of the URL");
    Some(Unknown::new(&target.name, Fault::Unsupported, why))
}

/// Rejects options that such a proxy does not support.
fn check(target: &Target) -> Result<(), Unknown> {
    let lacks = |option: &str, command: &str| {
        let why = format!("{option} needs {command}, and {CLOSES}");
        Err(Unknown::new(&target.name, Fault::Unsupported, why))
    };
    if target.quarantine.is_some() {
        return lacks("a quarantine", "INFO");
    }
    match target.acks {
        Some(acks) => lacks(&format!("acks={}", acks.replicas), "WAIT"),
        None => Ok(()),
    }
}

/// The missing features, as text for users.
fn limitations() -> Vec<String> {
    let at = |command: &str| format!("the server closes the connection at {command}, as some proxies do");
    vec![
        format!("INFO is refused: unknown command: {}", at("it")),
        format!(
            "no client tracking ({}): a key deleted by another program is detected at the next renewal or poll",
            at("HELLO")
        ),
        format!("no wake-ups ({}): waiters poll once per second", at("INFO")),
    ]
}

/// The error for a command at which the proxy would close the connection.
pub(crate) fn refusal(command: &Cmd) -> Option<RedisError> {
    let Some(redis::Arg::Simple(name)) = command.args_iter().next() else { return None };
    if KNOWN.contains(&name) {
        return None;
    }
    let name = String::from_utf8_lossy(name);
    let why = format!("unknown command '{name}': a proxy would close the connection");
    Some(make_extension_error("ERR".to_owned(), Some(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scripts_and_pings_reach_a_proxy() {
        assert!(refusal(&redis::cmd("PING")).is_none() && refusal(redis::cmd("EVALSHA").arg("x")).is_none());
        let refused = refusal(redis::cmd("SCAN").arg(0)).unwrap();
        assert_eq!(refused.code(), Some("ERR"));
        assert!(refused.detail().unwrap().contains("'SCAN'"), "{refused}");
    }
}
