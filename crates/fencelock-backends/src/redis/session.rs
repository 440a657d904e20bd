use super::acks::AckLine;
use super::fault::{fault_of, unknown};
use super::feed::Feed;
use super::guard::NOBODY;
use super::target::Target;
use fencelock_core::{Fault, Unknown};
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, RedisError, RedisResult, Value};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// One connection, from its handshake to its end. Nothing reconnects it: what was true of it dies with it.
#[derive(Debug)]
pub(crate) struct Session {
    connection: MultiplexedConnection,
    pub(crate) number: u64,
    pub(crate) facts: Facts,
    /// Where what replicas must confirm is written.
    pub(crate) acks: Option<AckLine>,
    /// Answers missed in a row. A connection that swallows requests without breaking must be given up too.
    missed: Arc<AtomicU32>,
    opened: Instant,
}

/// What the handshake found out.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Changes with every start of the server.
    pub(crate) run_id: String,
    pub(crate) version: String,
    /// Where this client is woken; `-` if it cannot be.
    pub(crate) channel: String,
    /// Whether the server tells of changes to keys that were asked for.
    pub(crate) tracking: bool,
    pub(crate) resp3: bool,
    /// What is missing and why, for people.
    pub(crate) lacks: Vec<String>,
    /// With RESP2 a second connection listens; it ends with the session.
    _listener: Option<Listener>,
}

/// The run id of the server of a connection, once it is known.
pub(crate) type ServerName = Arc<OnceLock<String>>;

#[derive(Debug)]
struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Requests that one connection takes before a sender has to wait for room.
const ROOM: usize = 4096;
/// A master that was demoted keeps its connections, while its address may lead to the new one by now. So one that only
/// takes reads is left; but no sooner than this, or all who wait would dial without a pause while there is no other.
const READ_ONLY_AT_LEAST: Duration = Duration::from_millis(500);
/// After so many missed answers in a row the connection is taken for dead.
pub(crate) const MISSED_MAX: u32 = 2;

impl Session {
    /// Connects and shakes hands: which server is it, can it wake us, does it tell of changes.
    pub(crate) async fn open(target: &Target, number: u64, channel: &str, feed: &Arc<Feed>) -> Result<Self, Unknown> {
        let told = ServerName::default();
        let open = async {
            match Self::dial(target, target.resp3, target.limit, feed, &told).await {
                // Servers before Redis 6 and some proxies do not know HELLO.
                Err(error) if target.resp3 && !is_final(&error) => {
                    tracing::debug!(node = %target.name, %error, "no RESP3, trying RESP2");
                    Ok((Self::dial(target, false, target.limit, feed, &told).await?, false))
                }
                dialled => Ok((dialled?, target.resp3)),
            }
        };
        let (connection, resp3) = match tokio::time::timeout(target.limit * 2, open).await {
            Ok(dialled) => dialled.map_err(|error: RedisError| unknown(&target.name, &error))?,
            Err(_) => return Err(Unknown::new(&target.name, Fault::Timeout, "")),
        };
        let missed = Arc::default();
        let facts = Facts::learn(connection.clone(), target, resp3, channel, feed, &missed).await?;
        let _ = told.set(facts.run_id.clone());
        let acks = AckLine::open(target, &facts, feed, &missed).await?;
        Ok(Self { connection, number, facts, acks, missed, opened: Instant::now() })
    }

    /// `patience` is how long to wait for an answer.
    pub(crate) async fn dial(
        target: &Target,
        resp3: bool,
        patience: Duration,
        feed: &Arc<Feed>,
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
            let (feed, server) = (Arc::clone(feed), Arc::clone(server));
            config = config.set_push_sender(move |info| {
                feed.push(&info, server.get().map_or(NOBODY, String::as_str));
                Ok::<(), redis::aio::SendError>(())
            });
        }
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    pub(crate) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let answer = self.connection.clone().send_packed_command(command).await.and_then(Value::extract_error);
        self.note(answer.as_ref().err());
        answer
    }

    /// All commands in one go; an error of one is its own.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        let answers = self.connection.clone().send_packed_commands(commands, 0, commands.len()).await;
        self.note(answers.as_ref().err());
        let answers: Vec<_> = answers?.into_iter().map(Value::extract_error).collect();
        for answer in &answers {
            self.note(answer.as_ref().err());
        }
        Ok(answers)
    }

    /// Whether it is of no use any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.missed.load(Ordering::Relaxed) >= MISSED_MAX
    }

    fn note(&self, error: Option<&RedisError>) {
        match error.map(fault_of) {
            Some(Fault::Timeout) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
            Some(Fault::Unreachable) => self.missed.store(MISSED_MAX, Ordering::Relaxed),
            Some(Fault::ReadOnly) if self.opened.elapsed() >= READ_ONLY_AT_LEAST => {
                self.missed.store(MISSED_MAX, Ordering::Relaxed);
            }
            // Any answer is a sign of life.
            Some(_) | None => {
                if (1..MISSED_MAX).contains(&self.missed.load(Ordering::Relaxed)) {
                    self.missed.store(0, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Whether another protocol would meet the same end.
fn is_final(error: &RedisError) -> bool {
    matches!(fault_of(error), Fault::Denied | Fault::Timeout | Fault::Unreachable | Fault::Loading)
}

impl Facts {
    async fn learn(
        mut connection: MultiplexedConnection,
        target: &Target,
        resp3: bool,
        channel: &str,
        feed: &Arc<Feed>,
        missed: &Arc<AtomicU32>,
    ) -> Result<Self, Unknown> {
        let node = target.name.as_str();
        let mut lacks = Vec::new();
        let (mut run_id, mut version) = (String::new(), String::new());
        match redis::cmd("INFO").arg("server").query_async::<String>(&mut connection).await {
            Ok(info) => (run_id, version) = (field(&info, "run_id"), field(&info, "redis_version")),
            Err(error) if is_about_login(&error) || is_passing(&error) => return Err(unknown(node, &error)),
            Err(error) => lacks.push(format!("INFO is refused: {error}")),
        }
        let mut tracking = false;
        if resp3 && target.push {
            let mut on = redis::cmd("CLIENT");
            on.arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
            match on.exec_async(&mut connection).await {
                Ok(()) => tracking = true,
                Err(error) if is_passing(&error) => return Err(unknown(node, &error)),
                Err(error) => lacks.push(format!(
                    "no client tracking ({error}): a key deleted by another program is noticed at the next renewal or poll"
                )),
            }
        } else {
            lacks.push("no client tracking without RESP3: a key deleted by another program is noticed at the next renewal or poll".into());
        }
        let mut listener = None;
        let subscribed = if !target.push {
            Err((redis::ErrorKind::Client, "switched off by push=off").into())
        } else if resp3 {
            connection.subscribe(channel).await
        } else {
            let server = ServerName::default();
            let started = Listener::start(target, channel, feed, missed, &server).await;
            // The address may have led the second connection to another server.
            if listeners(&mut connection, channel).await > 0 {
                let _ = server.set(run_id.clone());
            }
            started.map(|l| listener = Some(l))
        };
        let channel = match subscribed {
            Ok(()) => channel.to_owned(),
            Err(error) if is_passing(&error) => return Err(unknown(node, &error)),
            Err(error) => {
                lacks.push(format!("no wake-ups ({error}): waiters ask once a second"));
                "-".to_owned()
            }
        };
        Ok(Self { run_id, version, channel, tracking, resp3, lacks, _listener: listener })
    }
}

/// What a server lacks for good is worked around. What it only lacks now would be missed for as long as the session
/// lives, so the session is not begun.
pub(crate) fn is_passing(error: &RedisError) -> bool {
    !matches!(fault_of(error), Fault::Denied | Fault::Other)
}

/// Wrong credentials make every command fail; a command that this user may not use is another matter.
fn is_about_login(error: &RedisError) -> bool {
    error.code() == Some("NOAUTH") || error.code() == Some("WRONGPASS")
}

/// How many listen on a channel of this very server. Where that is not told, nobody does.
async fn listeners(connection: &mut MultiplexedConnection, channel: &str) -> u64 {
    let counted = redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query_async::<(String, u64)>(connection).await;
    counted.map_or(0, |(_, listeners)| listeners)
}

fn field(info: &str, name: &str) -> String {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

impl Listener {
    /// When it ends, the session ends too: a release must not hand the lock to a channel that nobody reads.
    async fn start(
        target: &Target,
        channel: &str,
        feed: &Arc<Feed>,
        missed: &Arc<AtomicU32>,
        server: &ServerName,
    ) -> RedisResult<Self> {
        let connect = async {
            let mut pubsub = target.client.get_async_pubsub().await?;
            pubsub.subscribe(channel).await?;
            RedisResult::Ok(pubsub)
        };
        let pubsub = match tokio::time::timeout(target.limit, connect).await {
            Ok(pubsub) => pubsub?,
            Err(_) => return Err((redis::ErrorKind::Io, "no answer in time").into()),
        };
        let (feed, missed, server) = (Arc::clone(feed), Arc::clone(missed), Arc::clone(server));
        let task = tokio::spawn(async move {
            let mut messages = pubsub.into_on_message();
            while let Some(message) = messages.next().await {
                feed.message(message.get_payload_bytes(), server.get().map_or(NOBODY, String::as_str));
            }
            missed.store(MISSED_MAX, Ordering::Relaxed);
            // Wake-ups may be missed from here on.
            feed.reset();
        });
        Ok(Self(task))
    }
}
