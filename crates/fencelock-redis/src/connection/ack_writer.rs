//! The second connection of a session with `acks=N`, which waits for replicas.
//!
//! `WAIT` blocks its whole connection on the server, so it uses a separate one: claims, releases and inspections never wait
//! for it. It covers only writes of its own connection, so writes to be confirmed are sent there too. That is only
//! the renewal script: a granted claim is renewed here before it counts.
//!
//! Requests that arrive during a `WAIT` share the next one. However many there are, none waits for more than two.

use super::batch::send_batch;
use super::dial::{Dialer, ROOM};
use super::fault::{fault_of, unknown};
use super::liveness::{Liveness, SessionTask};
use super::server_info::{ServerInfo, track};
use crate::scripts::script::{self, Call};
use crate::url::acks::Acks;
use fencelock_core::{Fault, HolderId, Unknown};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The number of replicas that have confirmed all writes of the connection so far.
pub(crate) type Acked = RedisResult<u32>;

type AckedReplies = RedisResult<(Vec<RedisResult<Value>>, Acked)>;

/// The maximum number of requests that share one `WAIT`.
const SHARE: usize = 256;

/// The connection for writes that replicas confirm. It ends with its session, and ends its session.
#[derive(Debug)]
pub(crate) struct AckWriter {
    requests: mpsc::Sender<AckRequest>,
    _task: SessionTask,
}

type AckRequest = (Vec<Call>, oneshot::Sender<AckedReplies>);

impl AckWriter {
    /// Opens no connection if no replica is required.
    pub(crate) async fn open(
        dialer: Dialer<'_>,
        server_info: &ServerInfo,
        liveness: &Liveness,
    ) -> Result<Option<Self>, Unknown> {
        let target = dialer.target;
        let Some(acks) = target.acks else { return Ok(None) };
        let patience = target.limit + acks.limit;
        let open = async {
            let mut connection = dialer.dial(server_info.resp3, Some(patience), &Arc::default()).await?;
            if server_info.tracking {
                // The server does not report changes to the connection that made them, so the renewing connection must
                // listen too.
                track(&mut connection).await?;
            }
            // Otherwise the first claim would wait twice. If the server refuses this, the claim reports it.
            let unused = script::renew(
                &format!("{}fencelock-acks", target.prefix),
                &HolderId::from_bytes([0; 16]),
                Duration::from_millis(1),
                Duration::ZERO,
            );
            let _ = unused.in_full().exec_async(&mut connection).await;
            let known = redis::cmd("WAIT").arg(0).arg(1).exec_async(&mut connection).await;
            RedisResult::Ok((connection, known))
        };
        let (connection, known) = match tokio::time::timeout(patience, open).await {
            Ok(opened) => opened.map_err(|error| unknown(&target.name, &error))?,
            Err(_) => return Err(Unknown::new(&target.name, Fault::Timeout, "")),
        };
        known.map_err(|error| refused(&target.name, acks, &error))?;
        let (requests, incoming) = mpsc::channel(ROOM);
        let task = SessionTask::spawn(liveness, work(connection, acks.wait(), incoming));
        Ok(Some(Self { requests, _task: task }))
    }

    /// Sends the calls, and returns the number of replicas that have their writes.
    pub(crate) async fn send(&self, calls: Vec<Call>) -> AckedReplies {
        let (answer, answered) = oneshot::channel();
        let gone = || RedisError::from((redis::ErrorKind::Io, "the connection for confirmed writes was lost"));
        self.requests.send((calls, answer)).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn refused(node: &str, acks: Acks, error: &RedisError) -> Unknown {
    let cause = unknown(node, error);
    // Retrying does not help: the server lacks the command.
    let fault = Some(fault_of(error)).filter(|fault| *fault != Fault::Other).unwrap_or(Fault::Unsupported);
    let words = cause.nodes().first().map_or("", |node| node.detail.as_str());
    Unknown::new(node, fault, format!("acks={} needs WAIT, which is refused: {words}", acks.replicas))
}

async fn work(connection: MultiplexedConnection, wait: Cmd, mut requests: mpsc::Receiver<AckRequest>) {
    let mut share = Vec::new();
    while requests.recv_many(&mut share, SHARE).await > 0 {
        // A cancelled request releases its lock, so renewing it would be useless.
        share.retain(|(_, answer): &AckRequest| !answer.is_closed());
        let (calls, callers): (Vec<_>, Vec<_>) = share.drain(..).unzip();
        let counts: Vec<usize> = calls.iter().map(Vec::len).collect();
        let calls: Vec<Call> = calls.into_iter().flatten().collect();
        let mut answers = send_batch(&connection, calls, Some(&wait)).await;
        let acked: Acked = match answers.as_mut().map(Vec::pop) {
            Ok(Some(Ok(Value::Int(confirmed)))) => Ok(u32::try_from(confirmed).unwrap_or(0)),
            Ok(Some(Err(error))) => Err(error),
            _ => Ok(0),
        };
        let mut answers = answers.map(Vec::into_iter);
        for (caller, count) in callers.into_iter().zip(counts) {
            let own = answers.as_mut().map(|answers| (answers.by_ref().take(count).collect(), acked.clone()));
            // A closed receiver belongs to a cancelled request.
            let _ = caller.send(own.map_err(|error| error.clone()));
        }
        if answers.is_err_and(|error| matches!(fault_of(&error), Fault::Timeout | Fault::Unreachable)) {
            // The session ends with this task.
            return;
        }
    }
}
