//! Locks on one Redis server.
//!
//! How it works: every decision is a Lua script, so it is one atomic step on the server; the scripts are in `lua/`, one
//! file each. The lock is the user's key with the value `<32 hexadecimal digits> host:pid label` and a TTL. To every
//! other program that takes locks with `SET key value NX PX` and frees them by comparing the value first, it is just
//! such a lock. Beside it live a fencing token, a line of waiters and what is known of each waiter, in the same hash slot.
//!
//! A release hands the key to the first waiter in the same script, and tells it on the channel of its client.

mod doctor;
mod fault;
mod feed;
mod link;
mod script;
mod session;
mod target;

use crate::clock::BootClock;
use fault::unknown;
use fencelock_core::{
    Acquire, Answer, Backend, BoxFuture, Capabilities, Claim, Clock, Eviction, FencingToken, Finding, HolderId,
    Holding, Intent, Invalid, Key, Occupant, Raise, Release, Renew, Renewal, Sink, Unknown, key_of_side_key,
};
use link::Link;
use redis::{Cmd, RedisError, RedisResult, Value};
use script::{Call, Evicted, Seen};
use session::Session;
use std::sync::Arc;
use target::Target;

/// Keys asked for at one time when locks are listed.
const SCAN_COUNT: u32 = 500;

/// Locks on one Redis server. See the table in [`Redis::open`] for the URL.
#[derive(Debug)]
pub struct Redis {
    link: Link,
    clock: Arc<dyn Clock>,
}

impl Redis {
    /// Reads `redis://[user:password@]host[:port][/db][?option=value&...]` or `rediss://` for TLS, and connects.
    ///
    /// | option | meaning |
    /// |---|---|
    /// | `prefix=P` | put before every key, to share locks with programs that do so |
    /// | `timeout=MS` | longest wait for a connection or an answer, 1000 ms unless set |
    /// | `protocol=resp2` | do without RESP3 |
    /// | `push=off` | do without wake-ups: waiters only poll |
    /// | `ca=FILE` | with `rediss://`: trust the certificates in this PEM file instead of the system's |
    ///
    /// # Errors
    /// [`crate::ConnectError::Url`] for a URL that cannot be used, [`crate::ConnectError::Unknown`] if the server does
    /// not answer or refuses the credentials.
    pub async fn open(url: &str) -> Result<Self, crate::ConnectError> {
        let redis = Self::lazy(url)?;
        redis.session().await?;
        Ok(redis)
    }

    /// As [`Redis::open`], but connects with the first request.
    ///
    /// # Errors
    /// [`Invalid`] for a URL that cannot be used.
    pub fn lazy(url: &str) -> Result<Self, Invalid> {
        Ok(Self { link: Link::new(Target::parse(url)?)?, clock: Arc::new(BootClock) })
    }

    async fn session(&self) -> Result<Arc<Session>, Unknown> {
        self.link.session(|| self.clock.now()).await
    }

    fn unknown(&self, error: &RedisError) -> Unknown {
        unknown(self.link.node(), error)
    }

    async fn call(&self, call: Call) -> Result<Value, Unknown> {
        let session = self.session().await?;
        self.link.call(&session, &call).await.map_err(|error| self.unknown(&error))
    }

    async fn claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let session = self.session().await?;
        if let Some(answer) = self.ask(&session, claim).await? {
            self.watch_foreign(&session, &claim.key, &answer).await;
            return Ok(answer);
        }
        // Between the two the lease may have ended.
        Ok(self.ask(&session, &claim.with_intent(Intent::Poll)).await?.unwrap_or(Acquire::Gone))
    }

    /// `None` if the key is the holder's already and a poll must confirm it.
    async fn ask(&self, session: &Session, claim: &Claim) -> Result<Option<Acquire>, Unknown> {
        let wire = self.link.target.wire(&claim.key);
        let call = script::acquire(&wire, claim, self.clock.wall_micros(), &session.facts.channel);
        let answer = self.link.call(session, &call).await.map_err(|error| self.unknown(&error))?;
        script::read_acquire(self.link.node(), answer, self.clock.wall_micros())
    }

    /// A foreign holder wakes nobody when it is done. For the first waiter, the server is asked to tell of the change.
    async fn watch_foreign(&self, session: &Session, key: &Key, answer: &Acquire) {
        let Acquire::Queued { ahead: 0, occupied, .. } = answer else { return };
        if matches!(occupied.by, Occupant::Foreign(_)) {
            self.watch_key(session, key).await;
        }
    }

    async fn watch_key(&self, session: &Session, key: &Key) {
        if !session.facts.tracking {
            return;
        }
        let mut watch = redis::pipe();
        watch.cmd("CLIENT").arg("CACHING").arg("YES").cmd("EXISTS").arg(&*self.link.target.wire(key));
        let answers = session.send_all(&watch).await.unwrap_or_default();
        if matches!(answers.get(1), Some(Ok(Value::Int(0)))) {
            self.link.feed.changed(key);
        }
    }

    async fn renew_all(&self, renewals: &[Renewal]) -> Vec<Result<Renew, Unknown>> {
        let session = match self.session().await {
            Ok(session) => session,
            Err(unknown) => return vec![Err(unknown); renewals.len()],
        };
        let calls: Vec<Call> = renewals
            .iter()
            .map(|renewal| script::renew(&self.link.target.wire(&renewal.key), &renewal.holder, renewal.ttl.get()))
            .collect();
        let answers = send_batch(&session, &calls, session.facts.tracking).await;
        self.link.check(&session);
        match answers {
            Ok(answers) => answers
                .into_iter()
                .map(|answer| match answer {
                    Ok(value) => script::read_renew(self.link.node(), value),
                    Err(error) => Err(self.unknown(&error)),
                })
                .collect(),
            Err(error) => vec![Err(self.unknown(&error)); renewals.len()],
        }
    }

    async fn look(&self, key: &Key) -> Result<Option<Seen>, Unknown> {
        let answer = self.call(script::inspect(&self.link.target.wire(key))).await?;
        script::read_inspect(self.link.node(), answer)
    }

    /// Every lock of ours has had a fence, which lives on for a day. `SCAN` finds them without stopping the server.
    async fn keys(&self) -> Result<Vec<Key>, Unknown> {
        let session = self.session().await?;
        let (mut keys, mut cursor) = (Vec::new(), 0u64);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg("fencelock:{*").arg("COUNT").arg(SCAN_COUNT);
            let answer = session.send(&scan).await;
            self.link.check(&session);
            let page = answer.and_then(|value| Ok(redis::from_redis_value::<(u64, Vec<Vec<u8>>)>(value)?));
            let (next, names) = page.map_err(|error| self.unknown(&error))?;
            keys.extend(names.iter().filter_map(|name| self.key_of(name)));
            if next == 0 {
                keys.sort_unstable();
                keys.dedup();
                return Ok(keys);
            }
            cursor = next;
        }
    }

    fn key_of(&self, fence: &[u8]) -> Option<Key> {
        let wire = key_of_side_key(std::str::from_utf8(fence).ok()?, "fence")?;
        Key::new(wire.strip_prefix(&self.link.target.prefix)?).ok()
    }
}

/// Sends a batch by digest; if the server does not know the script, one call in full, and by digest again.
///
/// With `track`, each call also asks to be told if another program touches its key from then on.
async fn send_batch(session: &Session, calls: &[Call], track: bool) -> RedisResult<Vec<RedisResult<Value>>> {
    let mut answers = send_each(session, calls.iter().map(Call::by_digest), track).await?;
    let unknown: Vec<usize> =
        (0..calls.len()).filter(|i| matches!(&answers[*i], Err(error) if link::is_no_script(error))).collect();
    let Some((first, rest)) = unknown.split_first() else { return Ok(answers) };
    let in_full = calls[*first].in_full();
    let again = std::iter::once(&in_full).chain(rest.iter().map(|i| calls[*i].by_digest()));
    for (i, again) in unknown.iter().zip(send_each(session, again, track).await?) {
        answers[*i] = again;
    }
    Ok(answers)
}

async fn send_each<'a>(
    session: &Session,
    calls: impl Iterator<Item = &'a Cmd>,
    track: bool,
) -> RedisResult<Vec<RedisResult<Value>>> {
    let mut commands = redis::pipe();
    for call in calls {
        if track {
            commands.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        commands.add_command(call.clone());
    }
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    let answers = session.send_all(&commands).await?;
    let step = if track { 2 } else { 1 };
    Ok(answers.into_iter().skip(step - 1).step_by(step).collect())
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities { expires: true, queues: true, portable: true, shared: true, evicts: true, fresh_holders: false }
    }

    fn name(&self) -> String {
        self.link.target.name.clone()
    }

    fn listen(&self, sink: Arc<dyn Sink>) {
        self.link.feed.sinks.add(&sink);
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Acquire> {
        Box::pin(self.claim(claim))
    }

    fn raise<'a>(&'a self, key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Answer<'a, Raise> {
        Box::pin(async move {
            let call = script::raise(&self.link.target.wire(key), holder, to);
            script::read_raise(self.link.node(), self.call(call).await?)
        })
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
        Box::pin(async move {
            let call = script::release(&self.link.target.wire(key), holder, self.clock.wall_micros());
            script::read_release(self.link.node(), self.call(call).await?)
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async move {
            let seen = self.look(key).await?;
            Ok(seen.map(|seen| seen.holding(key, self.clock.wall_micros())))
        })
    }

    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(async move {
            let keys = self.keys().await?;
            let session = self.session().await?;
            let calls: Vec<_> = keys.iter().map(|key| script::inspect(&self.link.target.wire(key))).collect();
            let mut held = Vec::new();
            for (keys, calls) in keys.chunks(SCAN_COUNT as usize).zip(calls.chunks(SCAN_COUNT as usize)) {
                let answers = send_batch(&session, calls, false).await.map_err(|error| self.unknown(&error))?;
                for (key, answer) in keys.iter().zip(answers) {
                    let answer = answer.map_err(|error| self.unknown(&error))?;
                    let seen = script::read_inspect(self.link.node(), answer)?;
                    held.extend(seen.map(|seen| seen.holding(key, self.clock.wall_micros())));
                }
            }
            Ok(held)
        })
    }

    fn evict<'a>(&'a self, holding: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(async move {
            let key = &holding.key;
            let Some(seen) = self.look(key).await? else { return Ok(Eviction::Changed(None)) };
            if seen.occupant() == holding.occupant {
                let wire = self.link.target.wire(key);
                let answer = self.call(script::evict(&wire, &seen, self.clock.wall_micros())).await?;
                if script::read_evict(self.link.node(), answer)? == Evicted::Yes {
                    // The server does not tell the connection that made a change of its own change.
                    self.link.feed.changed(key);
                    return Ok(Eviction::Evicted);
                }
            }
            let now = self.look(key).await?;
            Ok(Eviction::Changed(now.map(|seen| Box::new(seen.holding(key, self.clock.wall_micros())))))
        })
    }

    fn identity(&self) -> Answer<'_, Option<String>> {
        Box::pin(async move {
            let session = self.session().await?;
            Ok(Some(session.facts.run_id.clone()).filter(|run_id| !run_id.is_empty()))
        })
    }

    fn examine(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async move {
            match self.session().await {
                Ok(session) => doctor::examine(self, &session).await,
                Err(unknown) => vec![doctor::away(&unknown)],
            }
        })
    }
}
