//! Whether a user may delete a key, which a release does: found when a session is opened, before a lock is held.

use super::fault::{fault_of, is_about_a_key, is_unknown_command, unknown};
use crate::scripts::script::ABSENT_KEY;
use crate::url::target::Target;
use fencelock_core::{Fault, Unknown, side_key};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};

/// Shown to a user who asks for the state of a lock, too.
const REPLICA: &str =
    "this server is a replica: it grants no locks, and what it shows may be out of date; use the address of its master";

/// `INFO`, and whether this user may delete a key, in one trip.
pub(crate) async fn greet(
    connection: &mut MultiplexedConnection,
    target: &Target,
) -> (RedisResult<String>, RedisResult<Value>) {
    // Not a pipeline: the driver replaces the error that ends a connection, such as an alert of TLS, by another one.
    let (mut info, mut deletes, mut other) = (redis::cmd("INFO"), redis::cmd("DEL"), connection.clone());
    info.arg("server");
    deletes.arg(unused_key(target));
    tokio::join!(info.query_async(connection), deletes.query_async(&mut other))
}

/// A side key that nothing writes: a user may have a lock of any other name.
fn unused_key(target: &Target) -> String {
    side_key(&format!("{}fencelock-doctor", target.prefix), ABSENT_KEY)
}

/// The first claim would succeed, and its release would fail until the lease has ended. An error about the key says nothing about
/// other keys, and a proxy may lack a command that scripts have.
pub(crate) async fn why_no_release(
    connection: &mut MultiplexedConnection,
    target: &Target,
    deletes: RedisResult<Value>,
    limitations: &mut Vec<String>,
) -> Option<Unknown> {
    let error = &deletes.err()?;
    if fault_of(error) == Fault::ReadOnly {
        // Sentinels name another server soon.
        limitations.extend(target.sentinels.is_none().then(|| REPLICA.to_owned()));
        return None;
    }
    let cause = |error: &RedisError| {
        let cause = unknown(&target.name, error);
        let node = cause.nodes().first()?;
        // In a script, the words of Redis and of Valkey for a command that is renamed.
        let is_renamed = node.detail.contains("nknown");
        let is_about_del = is_renamed || node.fault == Fault::Denied && !is_about_a_key(&node.detail);
        let why = format!("a lock could not be released without DEL: {}", node.detail);
        is_about_del.then(|| Unknown::new(&target.name, node.fault, why).unsent())
    };
    if is_unknown_command(error) {
        let mut in_a_script = redis::cmd("EVAL");
        in_a_script.arg("return redis.call('DEL', KEYS[1])").arg(1).arg(unused_key(target));
        return cause(&in_a_script.exec_async(connection).await.err()?);
    }
    if fault_of(error) == Fault::Denied { cause(error) } else { None }
}
