//! Locks on one Redis server.
//!
//! Every decision is a Lua script, and so an atomic step on the server; the scripts are in `lua/`, one file each. The lock is the
//! user's key with the value `<32 hexadecimal digits> host:pid label` and a TTL. Other programs that lock with `SET key value NX
//! PX` and compare the value before they delete it see a normal lock. If several clients hold the key together, in another mode,
//! its value names the mode, and two side keys store the holders. Next to it are a fencing token, a queue of waiters and their
//! entries, in the same hash slot. A release hands the key to the first waiter in the same script, and publishes a message on the
//! channel of its client.
//!
//! # Files
//! | file | what |
//! |---|---|
//! | `session`, `link`, `push_handler` | connections, and the messages that the server pushes |
//! | `script`, `lua/` | one typed function for each script |
//! | `combiner`, `shared_batch`, `batch_sender`, `combined` | requests that are made at the same time, in one script |
//! | `renewing`, `acks`, `quarantine` | renewals, replicas that confirm, a server that may have lost its locks |
//! | `fault` | the errors of all versions |
//! | `diagnose`, `report`, `features`, `topology`, `trial` | what works on a server |
//! | `sentinel/` | which server the sentinels name, and until when its answers count |
//! | `cluster_view`, `cluster_map`, `shard_channels`, `subscribed`, `renewing_singly` | a node of a cluster: its slots, wake-ups, a slot that is being moved |

mod ack_writer;
mod acks;
mod batch;
mod batch_sender;
mod call;
mod claims;
mod cluster_map;
mod cluster_view;
mod combined;
mod combiner;
mod compat;
mod completions;
mod confirmation;
mod declared_keys;
mod deletion;
mod diagnose;
mod dial;
mod evict;
mod fault;
mod features;
mod health;
mod hosts;
#[cfg(test)]
mod kept;
mod link;
mod list;
mod liveness;
mod logged_keys;
mod lua;
mod message;
mod node_setup;
mod options;
mod origin;
mod peers;
mod plain_proxy;
mod product;
mod protocol;
mod push_handler;
mod quarantine;
mod quorum_node;
mod renewing;
mod renewing_singly;
mod reply;
mod report;
mod resize;
mod resolver;
mod role;
mod scan;
mod scheme;
mod script;
#[cfg(test)]
mod scripts_match_model;
mod secrets;
mod sentinel;
mod separation;
mod server;
mod server_info;
mod session;
mod session_task;
mod shard_channels;
mod shared;
mod shared_batch;
mod steps;
mod subscribed;
mod subscription;
mod target;
mod tls_cause;
mod topology;
mod trial;
mod unread;
mod wire;

pub(crate) use cluster_map::{ClusterMap, NODES_MAX, not_a_cluster};
pub(crate) use cluster_view::ClusterView;
use combined::Common;
use fault::unknown;
use fencelock_core::{
    Acquire, Answer, Backend, BackendReport, BootClock, BoxFuture, Capabilities, Claim, ClearCompletion, Clock,
    Completion, CompletionRead, ConnectError, Done, Downgrade, Eviction, Finding, HolderId, Holding, Invalid, Key,
    Listener, Release, Renew, Renewal, Resize, Unknown, WriteCompletion,
};
pub(crate) use hosts::{Address, host_and_port, listed_twice, shown};
use link::Link;
pub(crate) use list::Listed;
pub(crate) use node_setup::{members, register};
pub(crate) use options::{DEFAULT_TIMEOUT, millis};
use quarantine::{EpochCheck, Quarantine, Refusal};
use redis::{RedisError, Value};
use reply::{Remaining, StoredLock};
pub(crate) use role::Role;
pub use scheme::RedisScheme;
use script::{Call, Requested};
pub use script::{LockScripts, lock_scripts};
pub use server::Server;
use session::Session;
use std::sync::Arc;
use steps::Steps;
pub(crate) use target::Target;

/// Locks on one Redis server. See the table in [`Redis::open`] for the URL.
#[derive(Debug)]
pub struct Redis {
    link: Arc<Link>,
    clock: Arc<dyn Clock>,
    /// Whether this is for `doctor`: see [`trial`].
    in_trial: bool,
}

impl Redis {
    /// Parses `redis://[user:password@]host[:port][/db][?option=value&...]` or `rediss://` for TLS, and connects. With
    /// `redis+sentinel://[user:password@]host[:port],...,/master[/db]`, it connects to the master that the sentinels name.
    ///
    /// | option | meaning |
    /// |---|---|
    /// | `prefix=P` | a prefix of every key, to share locks with programs that use one |
    /// | `compat=LIBRARY` | the prefix that this library uses: `redlock.net`, `pottery`, `redis-semaphore`, `php-lock`, `laravel:PREFIX`, `shedlock:ENV` |
    /// | `timeout=MS` | the timeout of a connection attempt or a reply; 1000 ms by default |
    /// | `protocol=resp2` | do not use RESP3 |
    /// | `push=off` | no wake-ups: waiters only poll |
    /// | `acks=N` | a grant or a renewal counts when N replicas have confirmed it; off by default |
    /// | `acks_timeout=MS` | the timeout of the replicas; the same as `timeout=` by default |
    /// | `ca=FILE` | with `rediss://`: trust the certificates in this PEM file instead of the system's |
    /// | `cert=FILE`, `key=FILE` | with `rediss://`: the certificate of this client, and its private key, both PEM |
    /// | `password_file=FILE` | the password is the first line of this file |
    /// | `quarantine=on` | a server that may have lost its locks grants nothing for the longest TTL |
    /// | `max_ttl=MS` | with a quarantine: the longest TTL of a lock; 60000 ms by default |
    /// | `trust_empty=true` | with a quarantine: an unused server has lost nothing |
    /// | `db=N` | with `redis+unix:///path`: the database |
    /// | `sentinel_user=NAME` | the user at the sentinels |
    /// | `sentinel_password_file=FILE` | the password at the sentinels is the first line of this file |
    ///
    /// # Errors
    /// [`ConnectError::Url`] for an invalid URL, [`ConnectError::Unknown`] if the server does
    /// not answer, rejects the credentials, or belongs to another set ([`fencelock_core::Fault::Misconfigured`]).
    pub async fn open(url: &str) -> Result<Self, ConnectError> {
        let redis = Self::lazy(url)?;
        redis.greet().await?;
        Ok(redis)
    }

    /// Like [`Redis::open`], but connects with the first request.
    ///
    /// # Errors
    /// [`Invalid`] for an invalid URL.
    pub fn lazy(url: &str) -> Result<Self, Invalid> {
        Self::at(Target::parse(url)?)
    }

    pub(crate) fn at(target: Target) -> Result<Self, Invalid> {
        Ok(Self { link: Arc::new(Link::new(target)?), clock: Arc::new(BootClock), in_trial: false })
    }

    fn quarantine(&self) -> Option<&Quarantine> {
        self.link.target.quarantine.as_ref()
    }

    /// The same server with separate connections. Without wake-ups and replicas, they need fewer round trips to open.
    fn for_releases(&self) -> Option<Self> {
        let link = Link::new(self.link.target.for_releases()).ok()?;
        Some(Self { link: Arc::new(link), clock: Arc::clone(&self.clock), in_trial: false })
    }

    async fn session(&self) -> Result<Arc<Session>, Unknown> {
        // Later requests use this session.
        self.link.session(|| self.clock.now()).await.map_err(Unknown::unsent)
    }

    fn unknown(&self, error: &RedisError) -> Unknown {
        let (node, target) = (self.link.node(), &self.link.target);
        let redirected = target.cluster.as_ref().and_then(|view| view.redirected(node, target.host(), error));
        redirected.unwrap_or_else(|| unknown(node, error))
    }

    async fn call(&self, call: impl FnOnce(EpochCheck<'_>) -> Call + Send) -> Result<Value, Unknown> {
        let session = self.session().await?;
        let call = call(self.epoch_check(&session));
        self.call_over(&session, &call).await
    }

    async fn send_script(&self, session: &Session, call: &Call) -> Result<Value, RedisError> {
        if self.in_trial {
            return session.send(&call.in_trial()).await;
        }
        self.link.call(session, call).await
    }

    /// With sentinels, a reply is valid only while they name the server of this session.
    async fn call_over(&self, session: &Session, call: &Call) -> Result<Value, Unknown> {
        let answer = self.send_script(session, call).await.map_err(|error| self.unknown(&error))?;
        session.ensure_master(self.link.node()).await?;
        Ok(answer)
    }

    /// Calls the script of a lock, or sends the request together with others if it may be a common case and there are enough of them.
    pub(super) async fn call_common(
        &self,
        session: &Session,
        wire: &str,
        common: impl Fn() -> Option<Common>,
        call: impl Fn(EpochCheck<'_>) -> Call,
    ) -> Result<Value, RedisError> {
        let in_flight = session.combiner.enter(wire);
        let combines =
            in_flight.combines() && self.quarantine().is_none() && session.server_info.combines() && !self.in_trial;
        if combines && let Some(common) = common() {
            // Boxed: a claim that is sent alone would move its size.
            let answer = Box::pin(session.send_common(&in_flight, common)).await;
            self.link.check(session);
            if let Some(answer) = answer? {
                return Ok(answer);
            }
        }
        in_flight.after_others(wire).await;
        let answer = self.call_naming_keys(session, call).await;
        in_flight.note(&answer);
        answer
    }

    /// Continues a hand-off after a script that has reached its limit of waiters.
    async fn continue_hand_off(&self, key: &Key) {
        // No holder uses this id. Without a reply, polling waiters continue.
        let _ = self.give_up(key, &HolderId::from_bytes([0; 16])).await;
    }

    /// Releases a hold or leaves the queue. If there are more dead waiters than one script skips,
    /// this repeats until a waiter holds the key, or none is left. If it is cancelled before, polling waiters continue.
    async fn give_up(&self, key: &Key, holder: &HolderId) -> Result<Release, Unknown> {
        let (wire, now) = (self.link.target.wire(key), self.clock.wall_micros());
        self.follow_unanswered_claim(&wire, holder);
        // A release needs no confirmation by the sentinels: on a replaced master it makes no difference.
        let release = async || {
            let session = self.session().await?;
            let (common, release) = (
                || Some(Common::release(&wire, holder)),
                |epoch_check: EpochCheck<'_>| script::release(&wire, holder, now, epoch_check),
            );
            self.call_common(&session, &wire, common, release).await.map_err(|error| self.unknown(&error))
        };
        let released = release().await?;
        self.link.note_unread(&wire, &released);
        let (answer, mut left) = reply::read_release(self.link.node(), released)?;
        let mut steps = Steps::NEW;
        while left == Remaining::More && steps.more(self.link.target.limit) {
            // The release was executed, so a later error is not its result.
            let Ok(again) = release().await else { break };
            self.link.note_unread(&wire, &again);
            left = reply::read_release(self.link.node(), again).map_or(Remaining::None, |(_, left)| left);
        }
        Ok(answer)
    }

    /// A server that was too slow executes the claims of its last connection later, and what follows them. So a release there ends
    /// them even if this program ends before it has another connection.
    fn follow_unanswered_claim(&self, wire: &str, holder: &HolderId) {
        let Some(session) = self.link.silent() else { return };
        let release = script::release(wire, holder, self.clock.wall_micros(), self.epoch_check(&session)).in_full();
        tokio::spawn(async move { session.send(&release).await });
    }

    /// A server that may have lost data never reports that a lock is free.
    async fn inspect_checked(&self, key: &Key) -> Result<Option<StoredLock>, Unknown> {
        let wire = self.link.target.wire(key);
        let answer = self.call(|epoch_check| script::inspect(&wire, epoch_check)).await?;
        Refusal::check(self.link.node(), self.quarantine(), &answer)?;
        self.check_queue(&wire, &answer).await?;
        reply::read_inspect(self.link.node(), answer)
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.queues, capabilities.portable) = (true, true, true);
        (capabilities.cross_process, capabilities.evicts, capabilities.completions) = (true, true, true);
        capabilities.announces_waiters = self.link.is_tracking();
        (capabilities.modes.shared, capabilities.modes.permits) = (true, true);
        capabilities.longest_ttl = self.quarantine().map(|quarantine| quarantine.max_ttl.get());
        capabilities
    }

    fn name(&self) -> String {
        self.link.target.name.clone()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.link.push_handler.listeners.add(&listener);
    }

    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(async { self.session().await.map(drop) })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Acquire> {
        Box::pin(self.claim(claim, None))
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(async move {
            self.watch_key(&*self.session().await?, key).await;
            Ok(())
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(self.renew_all(renewals))
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(self.give_up(key, holder))
    }

    fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead> {
        Box::pin(self.read_stored(key))
    }

    fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion> {
        Box::pin(self.write_stored(key, Some(holder), completion))
    }

    fn confirm_completion<'a>(&'a self, key: &'a Key, done: &'a Done) -> Answer<'a, ()> {
        Box::pin(self.confirm_stored(key, done))
    }

    fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion> {
        Box::pin(self.clear_stored(key, seen))
    }

    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        Box::pin(self.share(renewal, Requested::Own(self.clock.wall_micros())))
    }

    fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        Box::pin(self.set_limit(key, limit))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async move {
            let seen = self.inspect_checked(key).await?;
            Ok(seen.map(|seen| seen.holding(key, self.clock.wall_micros())))
        })
    }

    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(self.list_all())
    }

    fn evict<'a>(&'a self, holding: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(self.end(holding))
    }

    fn reconnected(&self) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(self.for_releases()?))
    }

    fn report(&self) -> BoxFuture<'_, BackendReport> {
        Box::pin(report::report(self))
    }

    fn try_out<'a>(&'a self, key: Option<&'a Key>) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(trial::try_out(self, key))
    }

    fn diagnose(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(diagnose::diagnose(self))
    }
}
