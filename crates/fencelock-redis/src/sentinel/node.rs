//! One sentinel.

use super::Named;
use crate::connection::fault::{fault_of, is_unknown_command, words};
use crate::connection::names::Resolver;
use crate::url::hosts::{Address, shown};
use crate::url::secrets::SecretFiles;
use crate::url::sentinel::SentinelUrl;
use fencelock_core::{
    Fault, NamedMaster, NodeFault, Unknown, eligible_masters, master_by_majority, named_masters, votes_for,
};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisResult, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc};

/// The channel on which a sentinel publishes a change of master.
const SWITCHED: &str = "+switch-master";

/// The connection to a sentinel. It is opened by the first request, and reopened after an error.
#[derive(Debug)]
pub(crate) struct SentinelNode {
    name: String,
    info: ConnectionInfo,
    files: Arc<SecretFiles>,
    connection: Mutex<Option<MultiplexedConnection>>,
    /// A request has timed out: the peer of the connection may have failed.
    is_silent: AtomicBool,
}

impl SentinelNode {
    fn new(name: String, info: ConnectionInfo, files: &Arc<SecretFiles>) -> Arc<Self> {
        let (connection, is_silent) = Default::default();
        Arc::new(Self { name, info, files: Arc::clone(files), connection, is_silent })
    }

    fn client(&self, protocol: ProtocolVersion) -> RedisResult<redis::Client> {
        let settings = self.info.redis_settings().clone().set_protocol(protocol);
        self.files.client(self.info.clone().set_redis_settings(settings))
    }

    /// The master that this sentinel names. `switched` is notified when it publishes another one.
    pub(crate) async fn query(
        &self,
        master: &str,
        limit: Duration,
        switched: &Arc<Notify>,
    ) -> Result<Named, NodeFault> {
        let fault = |fault, detail: String| NodeFault::new(format!("sentinel {}", self.name), fault, detail);
        match tokio::time::timeout(limit, self.answer(master, limit, switched)).await {
            Ok(Ok(Some(named))) => {
                self.files.accept();
                Ok(named)
            }
            Ok(Ok(None)) => Err(fault(
                Fault::Misconfigured,
                format!("it does not monitor a master {master:?}: check the name in the URL"),
            )),
            Ok(Err(error)) if is_unknown_command(&error) => Err(fault(Fault::Unsupported, NO_SENTINEL.to_owned())),
            Ok(Err(error)) if fault_of(&error) == Fault::Denied => Err(fault(
                self.files.kind(Fault::Denied),
                format!("{}: {LOGIN}", error.code().unwrap_or("the login is refused")),
            )),
            Ok(Err(error)) => Err(fault(fault_of(&error), words(&error))),
            Err(_) => {
                self.is_silent.store(true, Ordering::Relaxed);
                Err(fault(Fault::Timeout, String::new()))
            }
        }
    }

    async fn answer(&self, master: &str, limit: Duration, switched: &Arc<Notify>) -> RedisResult<Option<Named>> {
        let mut live = self.connection.lock().await;
        if self.is_silent.swap(false, Ordering::Relaxed) {
            *live = None;
        }
        if let Some(connection) = &mut *live {
            match named(connection, master).await {
                // The sentinel may have been restarted since the last request.
                Err(error) if matches!(fault_of(&error), Fault::Unreachable | Fault::Timeout) => *live = None,
                answer => return answer,
            }
        }
        let mut connection = self.connect(limit, switched).await?;
        let answer = named(&mut connection, master).await?;
        *live = Some(connection);
        Ok(answer)
    }

    /// With RESP3, the connection also receives changes of the master. Otherwise the next query detects them.
    async fn connect(&self, limit: Duration, switched: &Arc<Notify>) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit))
            .set_dns_resolver(Resolver);
        let notify = Arc::clone(switched);
        let pushed = config.clone().set_push_sender(move |info: PushInfo| {
            if info.kind == PushKind::Message {
                notify.notify_one();
            }
            Ok::<(), redis::aio::SendError>(())
        });
        match self.client(ProtocolVersion::RESP3)?.get_multiplexed_async_connection_with_config(&pushed).await {
            Ok(mut connection) => {
                if let Err(error) = connection.subscribe(SWITCHED).await {
                    tracing::debug!(sentinel = %self.name, %error, "no SUBSCRIBE");
                }
                Ok(connection)
            }
            // A sentinel before Redis 6 does not support HELLO.
            Err(error) if matches!(fault_of(&error), Fault::Unsupported | Fault::Other) => {
                self.client(ProtocolVersion::RESP2)?.get_multiplexed_async_connection_with_config(&config).await
            }
            Err(error) => Err(error),
        }
    }
}

const LOGIN: &str = "sentinel_password_file= in the URL names the file with its password, and sentinel_user= its user";
const NO_SENTINEL: &str = "this is a Redis server, not a sentinel: sentinels use port 26379 by default; use redis:// for a server without sentinels";

/// Reads the address first: during a failover it changes before the other fields that the second command reports.
async fn named(connection: &mut MultiplexedConnection, master: &str) -> RedisResult<Option<Named>> {
    let mut question = redis::pipe();
    question.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master).cmd("SENTINEL").arg("MASTER").arg(master);
    let mut answers = connection.send_packed_commands(&question, 0, question.len()).await?.into_iter();
    let mut next = || answers.next().unwrap_or(Value::Nil).extract_error();
    // A sentinel that does not monitor the master answers the second command with an error.
    let Some(address) = redis::from_redis_value::<Option<Address>>(next()?)? else { return Ok(None) };
    let mut fields: HashMap<String, String> = redis::from_redis_value(next()?)?;
    let epoch = fields.remove("config-epoch").and_then(|epoch| epoch.parse().ok());
    let config_epoch =
        epoch.ok_or((redis::ErrorKind::Client, "it does not report config-epoch, as a sentinel would"))?;
    Ok(Some(NamedMaster::new(address, config_epoch)))
}

/// The sentinels of a URL.
#[derive(Debug)]
pub(crate) struct Sentinels {
    master: String,
    nodes: Vec<Arc<SentinelNode>>,
    limit: Duration,
    /// Only the master that a majority names is used. A deployment with a quarantine needs this. Without a quarantine, a failover
    /// can lose grants anyway, so a minority is enough.
    needs_majority: bool,
    /// Notified when a sentinel publishes another master.
    pub(crate) switched: Arc<Notify>,
}

/// The replies of the sentinels, in the order of the URL.
#[derive(Debug)]
pub(crate) struct SentinelReplies {
    pub(crate) named: Vec<Option<Named>>,
    pub(crate) faults: Vec<NodeFault>,
}

impl Sentinels {
    /// `info` has the settings of a connection to a sentinel.
    pub(crate) fn new(
        url: &SentinelUrl,
        limit: Duration,
        needs_majority: bool,
        files: &Arc<SecretFiles>,
        info: impl Fn(&Address) -> ConnectionInfo,
    ) -> Self {
        let nodes = url.hosts.iter().map(|host| SentinelNode::new(shown(host), info(host), files)).collect();
        Self { master: url.master.clone(), nodes, limit, needs_majority, switched: Arc::default() }
    }

    /// The same sentinels with separate connections.
    pub(crate) fn fresh(&self) -> Self {
        let fresh = |node: &Arc<SentinelNode>| SentinelNode::new(node.name.clone(), node.info.clone(), &node.files);
        let nodes = self.nodes.iter().map(fresh).collect();
        Self { master: self.master.clone(), nodes, switched: Arc::default(), ..*self }
    }

    /// Queries all sentinels at the same time. `until` ends the wait before all have replied. The other requests continue in the
    /// background, because otherwise a slow sentinel would never be connected.
    pub(crate) async fn query(&self, until: impl Fn(&[Option<Named>]) -> bool) -> SentinelReplies {
        let (answer, mut answered) = mpsc::channel(self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            let (node, master, switched) = (Arc::clone(node), self.master.clone(), Arc::clone(&self.switched));
            let (limit, answer) = (self.limit, answer.clone());
            tokio::spawn(async move {
                // Without a receiver, the reply is too late.
                let _ = answer.send((number, node.query(&master, limit, &switched).await)).await;
            });
        }
        drop(answer);
        let mut answers = SentinelReplies { named: vec![None; self.nodes.len()], faults: Vec::new() };
        while let Some((number, answer)) = answered.recv().await {
            match answer {
                Ok(named) => answers.named[number] = Some(named),
                Err(fault) => answers.faults.push(fault),
            }
            if until(&answers.named) {
                break;
            }
        }
        answers
    }

    /// The servers to try, those with most votes first.
    pub(crate) async fn candidates(&self, node: &str) -> Result<Vec<Named>, Unknown> {
        let answers = self.query(|named| master_by_majority(named).is_some()).await;
        if let Some(master) = master_by_majority(&answers.named) {
            return Ok(vec![master.clone()]);
        }
        if answers.named.iter().all(Option::is_none) {
            return Err(Unknown::of_nodes(answers.faults));
        }
        let eligible: Vec<Named> = eligible_masters(&answers.named).into_iter().cloned().collect();
        if self.needs_majority || eligible.is_empty() {
            return Err(no_majority(node, &answers));
        }
        Ok(eligible)
    }

    /// Whether these replies name a master other than `present`.
    pub(crate) fn has_another(&self, answers: &SentinelReplies, present: &Named) -> bool {
        match master_by_majority(&answers.named) {
            Some(master) => master != present,
            None if self.needs_majority => false,
            // An earlier epoch is an outdated reply.
            None => named_masters(&answers.named).iter().any(|named| named.config_epoch > present.config_epoch),
        }
    }
}

/// Why a master that some sentinels name is not used.
pub(crate) fn no_majority(node: &str, answers: &SentinelReplies) -> Unknown {
    let votes: Vec<_> = named_masters(&answers.named)
        .iter()
        .map(|master| format!("{} by {}", shown(&master.address), votes_for(&answers.named, master)))
        .collect();
    let (votes, all) = (votes.join(" and "), answers.named.len());
    let why = if votes.is_empty() {
        format!("none of its {all} sentinels names a master")
    } else {
        format!("no majority of its {all} sentinels names one master: {votes}; a failover may be in progress")
    };
    let mut faults = vec![NodeFault::new(node, Fault::Busy, why)];
    faults.extend(answers.faults.iter().cloned());
    Unknown::of_nodes(faults)
}
