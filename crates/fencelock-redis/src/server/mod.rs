//! Locks on one Redis server.
//!
//! The lock is the user's key with the value `<32 hexadecimal digits> host:pid label` and a TTL. Other programs that lock with `SET
//! key value NX PX` and compare the value before they delete it see a normal lock. If several clients hold the key together, in another
//! mode, its value names the mode, and two side keys store the holders. Next to it are a fencing token, a queue of waiters and their
//! entries, in the same hash slot. A release hands the key to the first waiter in the same script, and publishes a message on the
//! channel of its client.
//!
//! # Files
//! `claims` acquire, downgrade and resize, `renewals` renew; `completions` and `list` do what they say. `node_setup` registers
//! servers, and `doctor` reports what works.

mod claims;
mod completions;
mod doctor;
pub(crate) mod list;
pub(crate) mod node_setup;
mod renewals;

use crate::connection::fault::unknown;
use crate::connection::link::Link;
use crate::connection::server_info::ServerInfo;
use crate::connection::session::Session;
use crate::scripts::combined::Common;
use crate::scripts::quarantine::{EpochCheck, NOT_BEGUN, Quarantine, needs_handshake};
use crate::scripts::reply::Unread;
use crate::scripts::script::{Call, Requested};
use crate::scripts::{reply, script};
use crate::url::identity::identity;
use crate::url::password;
use crate::url::target::Target;
use fencelock_core::{
    Backend, BootClock, BoxFuture, Capabilities, Clock, ConnectError, Connecting, Fault, HolderId, Holding, Invalid,
    Key, Listener, Registering, Release, Reply, Request, Scheme, Ttl, Unknown, UrlForm,
};
use futures_util::FutureExt;
use list::list_served;
use node_setup::register;
use redis::{RedisError, Value};
pub(crate) use renewals::RenewReplies;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// Part of the error of a server that lets a script use only the keys that its call declares.
const UNDECLARED: &str = "undeclared key";

/// Locks on one Redis server. See the table in [`Redis::open`] for the URL.
#[derive(Debug)]
pub struct Redis {
    pub(crate) link: Arc<Link>,
    /// Whether this is for `doctor`: see [`doctor::trial`].
    pub(crate) in_trial: bool,
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
        Ok(Self { link: Arc::new(Link::new(target)?), in_trial: false })
    }

    pub(crate) fn quarantine(&self) -> Option<&Quarantine> {
        self.link.target.quarantine.as_ref()
    }

    /// Checks a lease before it is requested: a server that loses a longer one would be admitted too early.
    fn check_ttl(&self, ttl: Ttl) -> Result<(), Unknown> {
        let checked = ttl.within(self.quarantine().map(|quarantine| quarantine.max_ttl.get()));
        checked.map_err(|invalid| Unknown::new(self.link.node(), Fault::Misconfigured, invalid.to_string()))
    }

    pub(crate) fn unknown(&self, error: &RedisError) -> Unknown {
        let (node, target) = (self.link.node(), &self.link.target);
        let redirected = target.cluster.as_ref().and_then(|view| view.redirected(node, target.host(), error));
        redirected.unwrap_or_else(|| unknown(node, error))
    }

    async fn send(&self, call: impl FnOnce(EpochCheck<'_>) -> Call + Send) -> Result<Value, Unknown> {
        let session = self.link.session().await?;
        self.call_over(&session, call(self.epoch_check(&session))).await
    }

    /// With sentinels, a reply is valid only while they name the server of this session. A server that may have lost data refuses.
    async fn call_over(&self, session: &Session, call: Call) -> Result<Value, Unknown> {
        let answer =
            self.link.call(session, &call.of_trial(self.in_trial)).await.map_err(|error| self.unknown(&error))?;
        session.ensure_master(self.link.node()).await?;
        let is_marked = !needs_handshake(self.link.node(), self.quarantine(), &answer)?;
        if is_marked { Ok(answer) } else { Err(Unknown::new(self.link.node(), Fault::Quarantined, NOT_BEGUN)) }
    }

    /// Calls the script of a lock, or sends the request together with others if it may be a common case and there are enough of them.
    ///
    /// The call may declare only some of its keys. If the server rejects undeclared keys, this call is repeated, which is harmless, and
    /// from then on all calls of this session declare all keys.
    pub(crate) async fn call_lock(
        &self,
        session: &Session,
        redis_key: &str,
        common: impl Fn() -> Option<Common>,
        call: impl Fn(EpochCheck<'_>) -> Call,
    ) -> Result<Value, Unknown> {
        let lock = session.combiner.enter(redis_key);
        let combines =
            lock.combines() && self.quarantine().is_none() && session.server_info.combines() && !self.in_trial;
        if combines && let Some(common) = common() {
            // Boxed: a claim that is sent alone would move its size.
            let answer = Box::pin(session.send_common(&lock, common)).await;
            self.link.check(session);
            if let Some(answer) = answer.map_err(|error| self.unknown(&error))? {
                return Ok(answer);
            }
        }
        lock.after_others(redis_key);
        let call = || call(self.epoch_check(session)).of_trial(self.in_trial);
        // Boxed: a request that is sent together with others would allocate and move its size.
        let mut answer = Box::pin(self.link.call(session, &call())).await;
        if let Err(error) = &answer
            && error.detail().is_some_and(|detail| detail.contains(UNDECLARED))
            && session.server_info.derives_keys.swap(false, Ordering::Relaxed)
        {
            tracing::debug!(node = self.link.node(), %error, "the server rejects undeclared keys in scripts");
            answer = Box::pin(self.link.call(session, &call())).await;
        }
        lock.note(&answer);
        answer.map_err(|error| self.unknown(&error))
    }

    /// Continues a hand-off after a script that has reached its limit of waiters.
    async fn continue_hand_off(&self, key: &Key) {
        // No holder uses this id. Without a reply, polling waiters continue.
        let _ = self.give_up(key, &HolderId::from_bytes([0; 16])).await;
    }

    /// Releases a hold or leaves the queue. If there are more dead waiters than one script skips,
    /// this repeats until a waiter holds the key, or none is left. If it is cancelled before, polling waiters continue.
    async fn give_up(&self, key: &Key, holder: &HolderId) -> Result<Release, Unknown> {
        let redis_key = self.link.target.redis_key(key);
        let is_sent_twice = self.follow_unanswered_claim(&redis_key, holder);
        // A release needs no confirmation by the sentinels: on a replaced master it makes no difference.
        let release = async || {
            let session = self.link.session().await?;
            let (common, release) = (
                || Some(Common::release(&redis_key, holder)),
                |epoch_check: EpochCheck<'_>| script::release(&redis_key, holder, BootClock.wall_micros(), epoch_check),
            );
            self.call_lock(&session, &redis_key, common, release).await
        };
        let released = release().await?;
        self.link.note_unread(&redis_key, &released);
        let (answer, mut left) = reply::read_release(self.link.node(), released)?;
        let until = Instant::now() + self.link.target.limit;
        while left && Instant::now() < until {
            // The release was executed, so a later error is not its result.
            let Ok(again) = release().await else { break };
            self.link.note_unread(&redis_key, &again);
            left = reply::read_release(self.link.node(), again).is_ok_and(|(_, left)| left);
        }
        if is_sent_twice && answer != Release::Released {
            let text = "it was sent before on a connection that did not answer, and may have been executed there";
            return Err(Unknown::new(self.link.node(), Fault::Timeout, text));
        }
        Ok(answer)
    }

    /// A server that was too slow executes the claims of its last connection later, and what follows them. So a release there ends
    /// them even if this program ends before it has another connection. Says whether one was sent.
    fn follow_unanswered_claim(&self, redis_key: &str, holder: &HolderId) -> bool {
        let Some(session) = self.link.silent() else { return false };
        let release = script::release(redis_key, holder, BootClock.wall_micros(), self.epoch_check(&session)).in_full();
        tokio::spawn(async move { session.send(&release).await });
        true
    }

    /// A server that may have lost data never reports that a lock is free.
    async fn look(&self, key: &Key) -> Result<Option<Holding>, Unknown> {
        let redis_key = self.link.target.redis_key(key);
        let answer = self.send(|epoch_check| script::inspect(&redis_key, Holding::NAMED, epoch_check)).await?;
        self.check_queue(&redis_key, &answer).await?;
        let seen = reply::read_inspect(self.link.node(), answer)?;
        Ok(seen.map(|seen| seen.holding(key, BootClock.wall_micros())))
    }

    /// Refuses the `answer` to an inspection that the key is free, if no claim passes its queue.
    pub(crate) async fn check_queue(&self, redis_key: &str, answer: &Value) -> Result<(), Unknown> {
        let is_long =
            |number: Option<&Value>| matches!(number, Some(Value::Int(waiters)) if *waiters >= reply::EXAMINED);
        if !is_long(Some(answer)) {
            return Ok(());
        }
        let unread = self.send(|_| script::unread(redis_key)).await?;
        match &unread {
            Value::Array(words) if is_long(words.get(3)) => {
                Err(reply::stuck(self.link.node(), redis_key, Unread::of(&unread).as_ref()))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn epoch_check<'a>(&'a self, session: &'a Session) -> EpochCheck<'a> {
        let ServerInfo { run_id, derives_keys, .. } = &session.server_info;
        let (mark, guards_slot) = (self.quarantine(), self.link.target.cluster.is_some());
        let derives_keys = derives_keys.load(Ordering::Relaxed) && !self.in_trial;
        EpochCheck { derives_keys, guards_slot, mark, ..EpochCheck::without_marker(run_id) }
    }

    /// Connects, and checks that the server belongs to this set. A server in quarantine and one without a marker belong to it.
    /// Returns its run id, which does not depend on its address; empty if it is unknown.
    pub(crate) async fn greet(&self) -> Result<String, Unknown> {
        let session = self.link.session().await?;
        if let Some(quarantine) = self.quarantine() {
            let state = self.link.inspect_marker(&session, quarantine).await?;
            self.link.warn_of(&session, &state);
        }
        Ok(session.server_info.run_id.clone())
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = capabilities();
        capabilities.node = true;
        capabilities.longest_ttl = self.quarantine().map(|quarantine| quarantine.max_ttl.get());
        capabilities
    }

    fn name(&self) -> String {
        self.link.target.name.clone()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.link.push_handler.listeners.add(&listener);
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        match request {
            // These three are frequent: nothing but the future itself is allocated.
            Request::Claim(claim, proposal) => Box::pin(self.claim(claim, proposal).map(Into::into)),
            Request::Renew(renewals) => Box::pin(self.renew_all(renewals).map(Into::into)),
            Request::Release(key, holder) => Box::pin(self.give_up(key, holder).map(Into::into)),
            Request::Inspect(key) => Reply::of(|| self.look(key)),
            Request::Watch(key) => Reply::of(async || {
                self.watch_key(&*self.link.session().await?, key).await;
                Ok(())
            }),
            Request::Downgrade(hold, proposal) => {
                let token = proposal.map_or_else(|| Requested::Own(BootClock.wall_micros()), Requested::Proposed);
                Reply::of(move || self.share(hold, token))
            }
            Request::Resize(key, limit) => Reply::of(move || self.set_limit(key, limit)),
            Request::Raise(key, holder, to) => Reply::of(async move || {
                let redis_key = self.link.target.redis_key(key);
                let answer = self.send(|epoch_check| script::raise(&redis_key, holder, to, epoch_check)).await?;
                reply::read_raise(self.link.node(), answer)
            }),
            Request::List => Reply::of(async || Ok(list_served(self).await?.held.into_values().collect::<Vec<_>>())),
            Request::Evict(seen) => Reply::of(|| claims::evict(self, seen)),
            Request::TryOut(key) => Reply::of(move || doctor::trial::try_out(self, key)),
            Request::Diagnose => Reply::of(|| doctor::diagnose(self)),
            Request::ReadCompletion(key) => Reply::of(|| completions::read_stored(self, key)),
            Request::WriteCompletion(key, holder, done) => {
                Reply::of(|| completions::write_stored(self, key, Some(holder), done))
            }
            Request::ConfirmCompletion(key, done) => Reply::of(|| completions::confirm_stored(self, key, done)),
            Request::ClearCompletion(key, seen) => Reply::of(|| completions::clear_stored(self, key, seen)),
            Request::RestoreCompletion(key, seen) => {
                Reply::of(async || completions::write_stored(self, key, None, seen).await.map(drop))
            }
            _ => Box::pin(ready(request.unsupported(self.name()))),
        }
    }

    fn announces_waiters(&self, _: &Key) -> bool {
        self.link.is_tracking()
    }

    fn reconnected(&self) -> Option<Arc<dyn Backend>> {
        // Without wake-ups and replicas, they need fewer round trips to open.
        Some(Arc::new(Self::at(self.link.target.for_releases()).ok()?))
    }
}

/// What a server and a cluster can do.
pub(crate) fn capabilities() -> Capabilities {
    let mut capabilities = Capabilities::default();
    (capabilities.expires, capabilities.queues, capabilities.portable) = (true, true, true);
    (capabilities.cross_process, capabilities.evicts, capabilities.lists) = (true, true, true);
    (capabilities.completions, capabilities.mode_changes) = (true, true);
    (capabilities.modes.shared, capabilities.modes.permits) = (true, true);
    capabilities
}

/// `redis://` and `redis+sentinel://`, each also over TLS, and `redis+unix://`.
#[derive(Debug)]
pub struct RedisScheme;

impl Scheme for RedisScheme {
    fn forms(&self) -> &[UrlForm] {
        const {
            &[
                UrlForm::new("redis://HOST[:PORT][/DB]", "machines that share one Redis; leases expire"),
                UrlForm::new("rediss://HOST[:PORT][/DB]", "the same over TLS"),
                UrlForm::new("redis+unix:///PATH", "a Redis on this machine, over its Unix socket"),
                UrlForm::new("redis+sentinel://S1,S2/NAME", "machines that share the master of the sentinels"),
                UrlForm::new("rediss+sentinel://S1,S2/NAME", "the same over TLS"),
            ]
        }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Redis::open(url).await?) as _) })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Redis::lazy(url)?) as _) })
    }

    fn identity(&self, url: &str, name: &str) -> String {
        identity(url, name)
    }

    fn init<'a>(&'a self, url: &'a str, trust_empty: bool) -> Registering<'a> {
        Box::pin(async move {
            let target = Target::parse(url)?;
            if target.quarantine.is_none() {
                return Err(Invalid::new(
                    "this Redis has no quarantine, so there is nothing to set up: add quarantine=on to its URL to use one",
                )
                .into());
            }
            register(vec![target], trust_empty).await
        })
    }

    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        Ok(password::for_all(url, password))
    }
}
