use super::ack_writer::AckWriter;
use super::batch::PipelineSender;
use super::combiner::{Combiner, LockRequest};
use super::dial::{Dialer, ROOM};
use super::fault::{fault_of, unknown};
use super::liveness::{Liveness, PendingRequest, SessionTask};
use super::push_handler::Origin;
use super::server_info::{ServerInfo, replication_id};
use super::shard_channels::ShardChannels;
use super::{protocol, server_info};
use crate::scripts::combined::Common;
use crate::sentinel::Mastership;
use crate::url::target::Target;
use fencelock_core::{BootClock, Clock, Fault, Unknown};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::time::Instant;

/// One connection, from its handshake to its end. It is never reconnected, because its information would be outdated.
#[derive(Debug)]
pub(crate) struct Session {
    connection: MultiplexedConnection,
    /// Combines concurrent claims and releases.
    pub(crate) combiner: Combiner,
    pub(crate) server_info: ServerInfo,
    /// The connection for writes that replicas must confirm.
    pub(crate) acks: Option<AckWriter>,
    pub(crate) liveness: Liveness,
    /// Set for a node of a cluster.
    pub(crate) shards: Option<ShardChannels>,
    /// Set with sentinels: whether this server is the master.
    pub(crate) mastership: Option<Arc<Mastership>>,
    /// Disconnects from a replaced master.
    _watch: Option<SessionTask>,
    /// The server was seen out of quarantine.
    pub(crate) serves: AtomicBool,
    opened: Instant,
    /// Whether the server has replied to a claim. The first claim runs the whole script. It fails if the user lacks a right that
    /// the common case does not need, but that a renewal or a release needs.
    pub(crate) has_claimed: AtomicBool,
    /// Whether its end has been noted.
    pub(crate) loss_noted: AtomicBool,
    /// Whether the quarantine of the server has been logged.
    pub(crate) quarantine_logged: AtomicBool,
}

/// A demoted master keeps its connections, although its address may lead to the new master. So a connection to a read-only
/// server is closed, but not sooner than this; otherwise all waiters would reconnect in a loop while there is no master.
const READ_ONLY_AT_LEAST: Duration = Duration::from_millis(500);
impl Session {
    /// Connects, and determines the server, the wake-ups and the tracking. With sentinels, the server is the master that they name.
    pub(crate) async fn open(dialer: Dialer<'_>) -> Result<Self, Unknown> {
        let target = dialer.target;
        let Some(sentinels) = &target.sentinels else { return Self::open_at(dialer, None).await };
        let (queried, mut causes) = (BootClock.now(), Vec::new());
        for named in sentinels.candidates(&target.name).await? {
            let window = target.quarantine.as_ref().map(|quarantine| quarantine.window);
            let server = target.at(&named.address).map_err(|error| unknown(&target.name, &error))?;
            let mastership = Arc::new(Mastership::new(sentinels, named, queried, window));
            let address = mastership.address();
            match Self::open_at(Dialer { target: &server, ..dialer }, Some(mastership)).await {
                Ok(session) => return Ok(session),
                Err(unknown) => causes.extend(unknown.nodes().iter().cloned().map(|mut cause| {
                    cause.detail =
                        format!("{}{}{address}", cause.detail, if cause.detail.is_empty() { "" } else { ", at " });
                    cause
                })),
            }
        }
        Err(Unknown::of_nodes(causes))
    }

    async fn open_at(dialer: Dialer<'_>, mastership: Option<Arc<Mastership>>) -> Result<Self, Unknown> {
        let (target, origin) = (dialer.target, Arc::new(Origin::of(mastership.as_ref())));
        let open = async {
            let mut dialled = dialer.dial(target.resp3, None, &origin).await;
            // Some proxies close the connection at HELLO. A server that shuts down closes it once.
            if target.resp3 && dialled.as_ref().is_err_and(server_info::is_closed) {
                dialled = dialer.dial(true, None, &origin).await;
            }
            match dialled {
                // Servers before Redis 6 and some proxies do not support HELLO.
                Err(error) if target.resp3 && !is_final(&error) => {
                    tracing::debug!(node = %target.name, %error, "no RESP3, trying RESP2");
                    Ok((dialer.dial(false, None, &origin).await?, false))
                }
                dialled => Ok((dialled?, target.resp3)),
            }
        };
        let opened = tokio::select! {
            biased;
            opened = tokio::time::timeout(target.limit * 2, open) => opened,
            unknown = not_tls(target) => return Err(unknown),
        };
        let (untimed, resp3) = match opened {
            Ok(Ok(dialled)) => dialled,
            Ok(Err(error)) if server_info::is_closed(&error) => {
                let refused = server_info::refuses_database(dialer, &origin).await;
                return Err(if let Some(refused) = refused { refused } else { explained(target, &error).await });
            }
            Ok(Err(error)) => return Err(explained(target, &error).await),
            Err(_) => return Err(Unknown::new(&target.name, Fault::Timeout, "")),
        };
        let (mut connection, liveness) = (untimed.clone(), Liveness::new());
        connection.set_response_timeout(target.limit);
        let learned = ServerInfo::learn(connection.clone(), dialer, resp3, &liveness, mastership.as_ref());
        let (connection, server_info) = match learned.await {
            Ok(server_info) => (connection, server_info),
            Err(unknown) if !resp3 && unknown.nodes().iter().all(|node| node.fault == Fault::Unreachable) => {
                server_info::session_of(dialer, &origin, unknown).await?
            }
            Err(unknown) => return Err(unknown),
        };
        let _ = origin.run_id.set(server_info.run_id.clone());
        let acks = AckWriter::open(dialer, &server_info, &liveness).await?;
        let [has_claimed, loss_noted, quarantine_logged, serves] = [(); 4].map(|()| AtomicBool::new(false));
        // Ends the session as soon as the sentinels name another master.
        let watch = mastership.clone().map(|mastership| {
            let (ended, push_handler) = (liveness.clone(), Arc::clone(dialer.push_handler));
            SessionTask::spawn(&liveness, async move {
                mastership.ended().await;
                ended.end();
                // All waiters poll, and so connect to the new master.
                push_handler.reset();
            })
        });
        Ok(Self {
            connection,
            combiner: Combiner::new(untimed, target.limit, ROOM),
            loss_noted,
            shards: target.cluster.is_some().then(|| ShardChannels::new(dialer, &server_info, &liveness)),
            server_info,
            acks,
            liveness,
            mastership,
            _watch: watch,
            serves,
            opened: Instant::now(),
            has_claimed,
            quarantine_logged,
        })
    }

    /// With sentinels, a reply is valid only while they name this server as the master. The server may have executed the request.
    pub(crate) async fn ensure_master(&self, node: &str) -> Result<(), Unknown> {
        let Some(mastership) = self.mastership.as_ref().filter(|mastership| !mastership.counts()) else {
            return Ok(());
        };
        mastership.ensure(node).await.map_err(|cause| {
            let why = format!("it replies, but the sentinels do not confirm that it is the master: {cause}");
            Unknown::new(node, Fault::Timeout, why)
        })
    }

    /// With sentinels, checks that the mastership of the session is current.
    pub(crate) async fn check_identity(&self, node: &str) -> Result<(), Unknown> {
        let Some(mastership) = &self.mastership else { return Ok(()) };
        let checked = match replication_id(&mut self.connection.clone(), node).await {
            Ok(id) => mastership.check(&id, node).await,
            Err(cause) => Err(cause),
        };
        // Without replies from a majority of the sentinels, it may still be the master.
        if let Err(cause) = &checked
            && cause.nodes().iter().any(|node| node.fault == Fault::ReadOnly)
        {
            self.liveness.end();
        }
        checked
    }

    pub(crate) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        if self.server_info.is_plain
            && let Some(refusal) = server_info::refusal(command)
        {
            return Err(refusal);
        }
        let (request, _message) = (self.liveness.begin_request(), self.combiner.batches.message());
        let answer = self.connection.clone().send_packed_command(command).await.and_then(Value::extract_error);
        self.on_reply(request, answer.as_ref().err());
        answer
    }

    /// Sends a common case combined with other requests; `None` if it must be sent alone.
    pub(crate) async fn send_common(&self, lock: &LockRequest<'_>, common: Common) -> RedisResult<Option<Value>> {
        let request = self.liveness.begin_request();
        let answer = lock.send(common).await;
        match &answer {
            // The request that is sent next proves whether the connection is alive.
            Ok(None) => request.proves_nothing(),
            answer => self.on_reply(request, answer.as_ref().err()),
        }
        answer
    }

    /// Sends all commands in one pipeline; each has its own error.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        let (request, _message) = (self.liveness.begin_request(), self.combiner.batches.message());
        let answers = self.connection.carry(commands).await;
        self.on_reply(request, answers.as_ref().err());
        answers.iter().flatten().for_each(|answer| self.note(answer.as_ref().err()));
        answers
    }

    /// The channel that wakes waiters of a lock; `None` if they poll.
    pub(crate) fn channel(&self, redis_key: &str) -> Option<Cow<'_, str>> {
        match &self.shards {
            None => self.server_info.channel.as_deref().map(Cow::Borrowed),
            Some(shards) => shards.channel(redis_key).map(Cow::Owned),
        }
    }

    fn on_reply(&self, request: PendingRequest<'_>, error: Option<&RedisError>) {
        match error.map(fault_of) {
            Some(Fault::Timeout) => request.timed_out(),
            Some(Fault::Unreachable) => self.liveness.end(),
            // Any reply proves that the connection is alive.
            Some(_) | None => request.answered(),
        }
        self.note(error);
    }

    fn note(&self, error: Option<&RedisError>) {
        if error.map(fault_of) == Some(Fault::ReadOnly) && self.opened.elapsed() >= READ_ONLY_AT_LEAST {
            self.liveness.end();
        }
    }
}

impl PipelineSender for Session {
    async fn carry(&self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        self.send_all(commands).await
    }
}

/// Whether another protocol version would have the same error.
fn is_final(error: &RedisError) -> bool {
    use Fault::{Denied, Loading, Timeout, Unreachable, Unsupported};
    let is_closed = server_info::is_closed(error);
    error.kind() == ErrorKind::Parse
        || !is_closed && matches!(fault_of(error), Denied | Timeout | Unreachable | Loading | Unsupported)
}

async fn explained(target: &Target, error: &RedisError) -> Unknown {
    // A silent server would cost two more timeouts.
    let may_explain = fault_of(error) != Fault::Timeout && protocol::may_explain(error);
    let mismatch = if may_explain { protocol::mismatch(target).await } else { None };
    mismatch.unwrap_or_else(|| unknown(&target.name, error))
}

/// A server without TLS may wait for a line end, and never reply to a handshake. So the protocol of a slow server is checked in
/// parallel. This returns only if the check has a result.
async fn not_tls(target: &Target) -> Unknown {
    if target.tcp().is_some_and(|(.., tls)| tls) {
        tokio::time::sleep(target.limit / 4).await;
        if let Some(unknown) = protocol::mismatch(target).await {
            return unknown;
        }
    }
    std::future::pending().await
}
