//! Information about the server, collected when a session is opened.

use super::dial::Dialer;
use super::fault::{fault_of, is_about_a_key, is_unknown_command, unknown};
use super::liveness::{Liveness, SessionTask};
use super::protocol;
use super::push_handler::Origin;
use crate::scripts::script::ABSENT_KEY;
use crate::scripts::side_key::side_key;
use crate::sentinel::Mastership;
use crate::url::target::Target;
use fencelock_core::{Fault, Unknown};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value, make_extension_error};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The result of the handshake.
#[derive(Debug, Default)]
pub(crate) struct ServerInfo {
    /// The run id, which changes with every start of the server; with sentinels, also with every promotion.
    pub(crate) run_id: String,
    pub(crate) version: String,
    /// Whether a script may use keys that its call does not name. In a cluster it may not, because some of these keys may be
    /// moving to another server. Dragonfly rejects it too.
    pub(crate) derives_keys: AtomicBool,
    /// The channel of this client, with wake-ups.
    pub(crate) channel: Option<String>,
    /// Whether the server reports changes of tracked keys.
    pub(crate) tracking: bool,
    pub(crate) resp3: bool,
    /// Whether this is a proxy that closes the connection at an unknown command.
    pub(crate) is_plain: bool,
    /// Why no lock is acquired here: this user could not release it.
    pub(crate) no_release: Option<Unknown>,
    /// The missing features with their reasons, as text for users.
    pub(crate) limitations: Vec<String>,
    /// With RESP2, a second connection subscribes; it ends with the session.
    _subscription: Option<SessionTask>,
}

impl ServerInfo {
    /// Whether a script may use several locks. A proxy may send a script to the server of its first key only. None of them has client
    /// tracking, which belongs to one connection with one server.
    pub(crate) fn combines(&self) -> bool {
        self.tracking && self.derives_keys.load(Ordering::Relaxed)
    }

    pub(crate) async fn learn(
        mut connection: MultiplexedConnection,
        dialer: Dialer<'_>,
        resp3: bool,
        liveness: &Liveness,
        mastership: Option<&Arc<Mastership>>,
    ) -> Result<Self, Unknown> {
        let Dialer { target, channel, .. } = dialer;
        let node = target.name.as_str();
        let (mut found, mut subscription) = (Self { resp3, ..Self::default() }, None);
        // Not a pipeline: the driver replaces the error that ends a connection, such as an alert of TLS, by another one.
        let (mut info, mut deletes, mut other) = (redis::cmd("INFO"), redis::cmd("DEL"), connection.clone());
        let (info, deletes) = (info.arg("server"), deletes.arg(unused_key(target)));
        let (info, deletes) = tokio::join!(info.query_async(&mut connection), deletes.query_async(&mut other));
        let info: RedisResult<String> = info;
        match info {
            Ok(info) => {
                let info = Info::read(&info);
                (found.run_id, found.version) = (info.text("run_id"), info.text("redis_version"));
                found.derives_keys = AtomicBool::new(info.derives_keys());
                if let Some(why) = not_alone(target, &info) {
                    return Err(Unknown::new(node, Fault::Unsupported, why));
                }
            }
            // Wrong credentials make every command fail; a missing permission for one command does not.
            Err(error) if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) || is_passing(&error) => {
                return Err(unknown(node, &error));
            }
            Err(error) => found.limitations.push(format!("INFO is refused: {error}")),
        }
        if let Some(mastership) = mastership {
            found.run_id = mastership.identify(&found.run_id, replication_id(&mut connection, node).await?);
            found.limitations.extend(Mastership::limitation(target));
        }
        found.no_release = why_no_release(&mut connection, target, deletes, &mut found.limitations).await;
        match tracks(&mut connection, target, resp3).await {
            Ok(()) => found.tracking = true,
            Err(error) if is_passing(&error) => return Err(unknown(node, &error)),
            Err(error) => found.limitations.push(no_tracking(&reason(&error))),
        }
        let subscribed = if !target.push {
            Err((redis::ErrorKind::Client, "switched off by push=off").into())
        } else if target.cluster.is_some() {
            // Waiters subscribe: see `ShardChannels`.
            Ok(())
        } else if resp3 {
            connection.subscribe(channel).await
        } else {
            let server = Arc::new(Origin::of(mastership));
            let started = dialer.subscribe(channel, liveness, &server).await;
            // The address may have led the second connection to another server.
            if listeners(&mut connection, channel).await > 0 {
                let _ = server.run_id.set(found.run_id.clone());
            }
            started.map(|started| subscription = Some(started))
        };
        match subscribed {
            Ok(()) => found.channel = Some(channel.to_owned()).filter(|_| target.cluster.is_none()),
            Err(error) if is_passing(&error) => return Err(unknown(node, &error)),
            Err(error) => found.limitations.push(no_wake_ups(&reason(&error))),
        }
        Ok(Self { _subscription: subscription, ..found })
    }
}

fn no_tracking(reason: &str) -> String {
    format!("no client tracking ({reason}): a key deleted by another program is detected at the next renewal or poll")
}

pub(crate) fn no_wake_ups(reason: &str) -> String {
    format!("no wake-ups ({reason}): waiters poll once per second")
}

/// The text of the server, or of this module, without the kind that the driver appends.
fn reason(error: &RedisError) -> String {
    let text = error.to_string();
    text.strip_suffix(" - Client").map(str::to_owned).unwrap_or(text)
}

pub(crate) async fn track(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let mut on = redis::cmd("CLIENT");
    on.arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP").exec_async(connection).await
}

/// Asks the server to report changes of keys.
async fn tracks(connection: &mut MultiplexedConnection, target: &Target, resp3: bool) -> RedisResult<()> {
    let why = match (target.push, target.resp3) {
        (true, true) if resp3 => {
            return track(connection).await;
        }
        (false, _) => "switched off by push=off",
        (true, false) => "switched off by protocol=resp2",
        (true, true) => "the server has no RESP3",
    };
    Err((redis::ErrorKind::Client, why).into())
}

/// Permanently missing features are worked around. A temporary error would affect the whole session,
/// so the session is not started.
fn is_passing(error: &RedisError) -> bool {
    !matches!(fault_of(error), Fault::Denied | Fault::Unsupported | Fault::Other)
}

/// The number of subscribers of a channel on this server; zero if unknown.
async fn listeners(connection: &mut MultiplexedConnection, channel: &str) -> u64 {
    let counted = redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query_async::<(String, u64)>(connection).await;
    counted.map_or(0, |(_, listeners)| listeners)
}

const SENTINEL: &str =
    "this is a Sentinel, which stores no keys: use redis+sentinel://HOST,HOST,HOST/MASTER with all sentinels";

/// Why the server at an address does not match the scheme of the URL.
fn not_alone(target: &Target, info: &Info) -> Option<String> {
    if info.has_mode("sentinel") {
        return Some(SENTINEL.to_owned());
    }
    if target.cluster.is_some() || !info.has_mode("cluster") {
        return None;
    }
    let (scheme, address) = target.name.split_once("://").unwrap_or(("redis", &target.name));
    let why = "this is a node of a Redis Cluster, which keeps other keys on other nodes";
    Some(format!("{why}: use {scheme}+cluster://{address}"))
}

/// The fields of `INFO` by name.
pub(crate) struct Info(pub(crate) HashMap<String, String>);

impl Info {
    pub(crate) fn read(info: &str) -> Self {
        let fields = info.lines().filter_map(|line| line.trim().split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default().to_owned()
    }

    pub(crate) fn has_mode(&self, mode: &str) -> bool {
        ["redis_mode", "server_mode"].iter().any(|name| self.get(name) == Some(mode))
    }

    /// Only of a server that says so.
    fn derives_keys(&self) -> bool {
        self.has_mode("standalone") && self.get("dragonfly_version").is_none()
    }
}

/// The id that the server took with its promotion. Fails if it is not a master.
pub(crate) async fn replication_id(connection: &mut MultiplexedConnection, node: &str) -> Result<String, Unknown> {
    let mut query = redis::pipe();
    query.cmd("ROLE").cmd("INFO").arg("replication");
    let answers = connection.send_packed_commands(&query, 0, query.len()).await.map_err(|e| unknown(node, &e))?;
    let mut answers = answers.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    let (role, info) = (next(), next().and_then(|info| Ok(Info::read(&redis::from_redis_value::<String>(info)?))));
    let role = first_word(role).or_else(|error| match &info {
        Ok(info) => Ok(info.text("role")),
        Err(_) => Err(unknown(node, &error)),
    })?;
    if role != "master" {
        let why = format!("the sentinels name it as the master, but its role is {role:?}: a failover is in progress");
        return Err(Unknown::new(node, Fault::ReadOnly, why));
    }
    match info {
        Ok(info) => Ok(info.text("master_replid")),
        Err(_) => Ok(String::new()),
    }
}

fn first_word(role: RedisResult<Value>) -> RedisResult<String> {
    let words: Vec<Value> = redis::from_redis_value(role?)?;
    Ok(redis::from_redis_value(words.into_iter().next().unwrap_or(Value::Nil))?)
}

/// Shown to a user who asks for the state of a lock, too.
const REPLICA: &str =
    "this server is a replica: it grants no locks, and what it shows may be out of date; use the address of its master";

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
        is_about_del.then(|| Unknown::new(&target.name, node.fault, why))
    };
    if is_unknown_command(error) {
        let mut in_a_script = redis::cmd("EVAL");
        in_a_script.arg("return redis.call('DEL', KEYS[1])").arg(1).arg(unused_key(target));
        return cause(&in_a_script.exec_async(connection).await.err()?);
    }
    if fault_of(error) == Fault::Denied { cause(error) } else { None }
}

// Proxies that close the connection when they receive an unknown command.

/// The commands of fencelock that such a proxy supports.
const KNOWN: [&[u8]; 3] = [b"EVALSHA", b"EVAL", b"PING"];

const CLOSES: &str = "the server closes the connection at it, as some proxies do";

/// Whether the server has closed the connection instead of replying.
pub(crate) fn is_closed(error: &RedisError) -> bool {
    fault_of(error) == Fault::Unreachable && !error.is_connection_refusal()
}

/// Opens the session of such a proxy. If the server is not one, returns the error that ended the connection.
pub(crate) async fn session_of(
    dialer: Dialer<'_>,
    origin: &Arc<Origin>,
    unknown: Unknown,
) -> Result<(MultiplexedConnection, ServerInfo), Unknown> {
    let target = dialer.target;
    // Sentinels and nodes of a cluster need commands that such a proxy does not support.
    let is_alone = target.sentinels.is_none() && target.cluster.is_none();
    let connection = if is_alone { connect(dialer, origin).await } else { None };
    let Some(connection) = connection else {
        return Err(protocol::mismatch(target).await.unwrap_or(unknown));
    };
    check(target)?;
    let at = |command: &str| format!("the server closes the connection at {command}, as some proxies do");
    let info = format!("INFO is refused: unknown command: {}", at("it"));
    let limitations = vec![info, no_tracking(&at("HELLO")), no_wake_ups(&at("INFO"))];
    Ok((connection, ServerInfo { is_plain: true, limitations, ..ServerInfo::default() }))
}

/// Connects to a proxy that closes the connection at `INFO` and replies to `PING`; `None` if it is not one. A server that is
/// shutting down also closes connections, so this tries again.
async fn connect(dialer: Dialer<'_>, origin: &Arc<Origin>) -> Option<MultiplexedConnection> {
    let open = async || dialer.dial(false, Some(dialer.target.limit), origin).await.ok();
    let again = redis::cmd("INFO").arg("server").exec_async(&mut open().await?).await;
    if !again.is_err_and(|error| is_closed(&error)) {
        return None;
    }
    let mut connection = open().await?;
    redis::cmd("PING").exec_async(&mut connection).await.ok()?;
    Some(connection)
}

/// Why the connection to another database is closed, if it is such a proxy.
pub(crate) async fn refuses_database(dialer: Dialer<'_>, origin: &Arc<Origin>) -> Option<Unknown> {
    let target = dialer.target;
    let info = target.client.get_connection_info().clone();
    let db = info.redis_settings().db();
    if db == 0 {
        return None;
    }
    let settings = info.redis_settings().clone().set_db(0);
    let mut without = target.clone();
    without.client = target.client_with(info.set_redis_settings(settings)).ok()?;
    connect(Dialer { target: &without, ..dialer }, origin).await?;
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
    fn scripts_derive_keys_on_standalone_servers_only() {
        for (info, derives) in [
            ("redis_version:7.0.15\r\nredis_mode:standalone\r\n", true),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nserver_mode:standalone\r\n", true),
            ("redis_version:7.0.15\r\nredis_mode:cluster\r\n", false),
            ("redis_version:7.4.0\r\ndragonfly_version:df-v1.27.1\r\nredis_mode:standalone\r\n", false),
            ("redis_version:7.0.15\r\n", false),
            ("", false),
        ] {
            assert_eq!(Info::read(info).derives_keys(), derives, "{info}");
        }
    }
}

#[cfg(test)]
mod plain_proxy_tests {
    use super::*;

    #[test]
    fn only_scripts_and_pings_reach_a_proxy() {
        assert!(refusal(&redis::cmd("PING")).is_none() && refusal(redis::cmd("EVALSHA").arg("x")).is_none());
        let refused = refusal(redis::cmd("SCAN").arg(0)).unwrap();
        assert_eq!(refused.code(), Some("ERR"));
        assert!(refused.detail().unwrap().contains("'SCAN'"), "{refused}");
    }
}
