//! The backend.

use crate::calls::{Call, params};
use crate::doctor::{diagnose, try_out};
use crate::fault::LOCKED;
use crate::link::{Lane, Link};
use crate::schema::INIT;
use crate::session::Session;
use crate::url::Target;
use crate::{calls, session};
use fencelock_core::{
    Acquire, Backend, BootClock, BoxFuture, Capabilities, Claim, ClaimReply, ClearCompletion, Clock, Completion,
    CompletionRead, ConnectError, Connecting, Downgrade, Event, Eviction, Expiry, Fault, Foreign, HolderId, HolderInfo,
    Holding, Intent, Invalid, Key, Listener, Mode, Occupant, Occupied, RegisteredNode, Registering, Release, Renew,
    Renewal, Reply, Request, Resize, Scheme, Sent, Unknown, UrlForm, WriteCompletion,
};
use futures_util::future::join;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;

/// More holders and waiters than a table can show; see `list_1`.
const LISTED: usize = 100_000;

/// Locks in a PostgreSQL database. See the table in [`Postgres::open`] for the URL.
#[derive(Debug)]
pub struct Postgres {
    pub(crate) link: Arc<Link>,
}

impl Postgres {
    /// Parses `postgres://[user[:password]@][host[:port]]/database[?option=value&...]`, and connects. Without a host, it is the socket of
    /// this machine.
    ///
    /// | option | meaning |
    /// |---|---|
    /// | `schema=NAME` | the schema of the tables and functions; `fencelock` by default |
    /// | `create=true` | make them if they are missing |
    /// | `timeout=MS` | the timeout of a connection attempt or a reply; 1000 ms by default |
    /// | `connections=N` | use up to this many connections, and one for renewals; 1 by default |
    /// | `quarantine=on\|off` | whether a server that may have lost locks grants none for a while; by default if its standbys may lack the last commits |
    /// | `max_ttl=MS` | with a quarantine: the longest TTL, and so about its length; 60000 ms by default |
    /// | `poll=MS` | behind a pooler, how often all waiters of this process ask for their hand-offs while a queue moves; 100 ms by default |
    /// | `sslmode=MODE` | `disable`, `prefer`, `require`, `verify-ca` or `verify-full`, as for all programs that use libpq; `prefer` by default |
    /// | `sslrootcert=FILE` | trust the certificates in this PEM file instead of the system's |
    /// | `sslcert=FILE`, `sslkey=FILE` | the certificate of this client, and its key |
    /// | `channel_binding=MODE` | `disable`, `prefer` (the default) or `require` |
    /// | `password_file=FILE` | the password is the first line of this file; without one, it is in `PGPASSWORD` or `~/.pgpass` |
    /// | `connect_timeout=S` | how long each server may take for a connection, if that is longer than `timeout=` |
    /// | `application_name=NAME` | as `pg_stat_activity` shows it; `fencelock` by default |
    /// | `host=DIR`, `port=N`, `user=NAME` | as in the authority of the URL |
    ///
    /// # Errors
    /// [`ConnectError::Url`] for an invalid URL, [`ConnectError::Unknown`] if the server does not answer, rejects the credentials, is a
    /// standby, or has no schema of this version.
    pub async fn open(url: &str) -> Result<Self, ConnectError> {
        let postgres = Self::lazy(url)?;
        postgres.link.session(Lane::Any).await?;
        Ok(postgres)
    }

    /// Like [`Postgres::open`], but connects with the first request.
    ///
    /// # Errors
    /// [`Invalid`] for an invalid URL.
    pub fn lazy(url: &str) -> Result<Self, Invalid> {
        Self::at(Target::parse(url)?)
    }

    fn at(target: Target) -> Result<Self, Invalid> {
        let link = Link::new(target).map_err(|error| Invalid::new(format!("no random numbers: {error}")))?;
        Ok(Self { link: Arc::new(link) })
    }

    async fn claim(&self, claim: &Claim) -> ClaimReply {
        let (session, deadline) = match self.link.session(Lane::Key(&claim.key)).await {
            Ok(opened) => opened,
            Err(cause) => return ClaimReply::not_sent(cause),
        };
        if let Err(cause) = session.check_claim(claim.ttl, self.link.target.longest_ttl()) {
            return ClaimReply::not_sent(cause);
        }
        let sent = Sent::At(BootClock.now());
        session.claiming().insert(claim.holder.id);
        let answer = match self.claim_over(&session, claim, deadline).await {
            // The row is locked without a lease. Nothing was executed, and a client that does not wait has its answer.
            Err(cause) if is_locked(&cause) => {
                let who = self.link.who_locks(&session, deadline).await;
                let foreign = Occupant::Foreign(Foreign::other(who));
                match claim.intent {
                    Intent::Try => Ok(Acquire::Busy(Occupied::new(foreign, Expiry::In(self.link.target.limit)))),
                    _ => Err(Unknown::new(self.name(), Fault::Busy, format!("{who} keeps the row of this key locked"))),
                }
            }
            answer => answer,
        };
        if answer.is_ok() {
            session.claiming().remove(&claim.holder.id);
        }
        if session.facts.is_pooled {
            self.note_waiting(claim, &answer);
        }
        ClaimReply { sent, answer }
    }

    async fn claim_over(&self, session: &Arc<Session>, claim: &Claim, deadline: Instant) -> Result<Acquire, Unknown> {
        let (link, channel) = (&self.link, self.link.channel.as_str());
        let (holder, owner) = (claim.holder.id.to_bytes(), claim.holder.owner.as_str());
        let (ttl, count) = (calls::micros(claim.ttl.get()), calls::signed(claim.block.get()));
        let first = params![TEXT claim.key.as_str(), BYTEA &holder[..], TEXT owner, INT8 ttl];
        if session.facts.is_direct && !claim.is_poll() && claim.mode == Mode::Exclusive {
            let take = [&first[..], &params![INT4 count, TEXT channel]].concat();
            let rows = link.call_over(session, Call::Take, &take, deadline).await?;
            if let Some(row) = rows.first() {
                return link.read(calls::taken(row));
            }
        }
        let intent = match claim.intent {
            Intent::Try => 0_i32,
            Intent::Enqueue => 1,
            Intent::Poll => 2,
        };
        let (permits, weight) = calls::of_mode(claim.mode);
        let rest = params![INT4 intent, INT4 count, TEXT channel, INT4 permits, INT4 weight];
        let acquire = [&first[..], &rest].concat();
        loop {
            let asked = link.call_over(session, Call::Acquire, &acquire, deadline);
            let rows = match claim.intent {
                // A hand-off that follows the claim at once is not missed.
                Intent::Enqueue | Intent::Poll => join(timeout_at(deadline, session.listen(channel)), asked).await.1?,
                Intent::Try => asked.await?,
            };
            let answer = link.read(rows.first().map(calls::claim).transpose())?;
            if let Some((answer, is_handed)) = answer.flatten() {
                if is_handed {
                    link.tell(&claim.key).await;
                }
                return Ok(answer);
            }
            // Each reply has removed some dead waiters.
            if Instant::now() >= deadline {
                return Err(link.timed_out());
            }
        }
    }

    fn note_waiting(&self, claim: &Claim, answer: &Result<Acquire, Unknown>) {
        match answer {
            Ok(Acquire::Queued { ahead, .. }) => {
                if self.link.hub.waits(claim.holder.id, &claim.key, *ahead, self.link.target.poll) {
                    self.link.poll_for_hand_offs();
                }
            }
            Err(_) => {}
            Ok(_) => self.link.hub.forget(&claim.holder.id),
        }
    }

    async fn renew_all(&self, renewals: &[Renewal]) -> Result<Vec<Renew>, Unknown> {
        let link = &self.link;
        let keys: Vec<_> = renewals.iter().map(|renewal| renewal.key.as_str()).collect();
        let holders: Vec<_> = renewals.iter().map(|renewal| renewal.holder.to_bytes().to_vec()).collect();
        let ttls: Vec<_> = renewals.iter().map(|renewal| calls::micros(renewal.ttl.get())).collect();
        let assumed: Vec<_> = renewals.iter().map(|renewal| calls::micros(renewal.assumed)).collect();
        let renew = params![TEXT_ARRAY keys, BYTEA_ARRAY holders, INT8_ARRAY ttls, INT8_ARRAY assumed];
        let rows = link.rows(Lane::Renewals, Call::Renew, &renew).await?;
        let answers: Result<Vec<_>, _> = rows.iter().map(calls::renewal).collect();
        let answers = link.read(answers)?;
        if answers.len() == renewals.len() { Ok(answers) } else { Err(link.timed_out()) }
    }

    /// The same. If somebody has locked a row, it renews the others: no lease is lost with that of another key.
    async fn renew_each(&self, renewals: &[Renewal]) -> Result<Vec<Result<Renew, Unknown>>, Unknown> {
        let locked = match self.renew_all(renewals).await {
            Err(cause) if renewals.len() > 1 && is_locked(&cause) => cause,
            answers => return Ok(answers?.into_iter().map(Ok).collect()),
        };
        let keys: Vec<_> = renewals.iter().map(|renewal| renewal.key.as_str()).collect();
        let row = self.link.call(Lane::Renewals, Call::Locked, &params![TEXT_ARRAY keys]).await?;
        let others: Vec<String> = self.link.read(calls::get(&row, 0))?;
        let is_locked = |renewal: &Renewal| others.iter().any(|key| key == renewal.key.as_str());
        let rest: Vec<_> = renewals.iter().filter(|renewal| !is_locked(renewal)).cloned().collect();
        let mut answers = self.renew_all(&rest).await?.into_iter();
        let mut answer = |renewal| if is_locked(renewal) { None } else { answers.next() };
        Ok(renewals.iter().map(|renewal| answer(renewal).ok_or_else(|| locked.clone())).collect())
    }

    async fn give_up(&self, key: &Key, holder: &HolderId) -> Result<Release, Unknown> {
        let (link, id, deadline) = (&self.link, holder.to_bytes(), self.link.deadline());
        link.hub.forget(holder);
        link.release_behind(key, holder);
        let mut first: Option<Release> = None;
        loop {
            let release = params![TEXT key.as_str(), BYTEA &id[..]];
            // If the last one has handed over, this one probably does too: then the notification does not wait for its reply.
            let is_told = link.hub.hands_over.load(Ordering::Relaxed);
            let tell = async {
                if is_told {
                    link.tell(key).await;
                }
            };
            let row = match join(link.call(Lane::Key(key), Call::Release, &release), tell).await.0 {
                Ok(row) => row,
                // The first one was executed, so a later error is not its result.
                Err(cause) => return first.ok_or(cause),
            };
            let answer = link.read(calls::release(&row))?;
            let answer = first.unwrap_or(answer);
            if !self.tell_next(key, &row, is_told).await? || Instant::now() >= deadline {
                return Ok(answer);
            }
            first = Some(answer);
        }
    }

    /// Notifies those that a request has handed the key to, if they were not told. `true` if there may be more of them.
    async fn tell_next(&self, key: &Key, row: &Row, is_told: bool) -> Result<bool, Unknown> {
        let (is_handed, is_more) = self.link.read(calls::queue(row))?;
        self.link.hub.hands_over.store(is_handed, Ordering::Relaxed);
        if is_handed && !is_told {
            self.link.tell(key).await;
        }
        Ok(is_more)
    }

    /// The same, and goes on with the others.
    async fn tell_all(&self, key: &Key, row: &Row) -> Result<(), Unknown> {
        if self.tell_next(key, row, false).await? {
            // Nobody has this id.
            let _ = self.give_up(key, &HolderId::from_bytes([0; 16])).await;
        }
        Ok(())
    }

    pub(crate) async fn list_of(&self, key: Option<&Key>) -> Result<Vec<Holding>, Unknown> {
        let (link, lane) = (&self.link, key.map_or(Lane::Any, Lane::Key));
        let rows = link.rows(lane, Call::List, &params![TEXT key.map(Key::as_str)]).await?;
        if rows.len() > LISTED {
            let text = format!("more than {LISTED} holders and waiters, so they are not listed: read the table locks");
            return Err(Unknown::new(self.name(), Fault::Other, text));
        }
        link.read(calls::holdings(&rows))
    }

    pub(crate) async fn end_holds(&self, seen: &Holding) -> Result<Eviction, Unknown> {
        let link = &self.link;
        let holders = seen.holders.iter().filter_map(HolderInfo::holder_id).map(|holder| holder.to_bytes().to_vec());
        let holders: Vec<_> = holders.collect();
        let evict = params![TEXT seen.key.as_str(), BYTEA_ARRAY holders];
        let row = link.call(Lane::Key(&seen.key), Call::Evict, &evict).await?;
        self.tell_all(&seen.key, &row).await?;
        if !link.read(calls::get::<bool>(&row, 0))? {
            return Ok(Eviction::Changed(self.look(&seen.key).await?.map(Box::new)));
        }
        link.hub.listeners.send(&Event::Changed { key: seen.key.clone() });
        Ok(Eviction::Evicted)
    }
}

fn is_locked(cause: &Unknown) -> bool {
    cause.nodes().iter().any(|node| node.fault == Fault::Busy && node.detail.ends_with(LOCKED))
}

impl Backend for Postgres {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.queues, capabilities.portable) = (true, true, true);
        (capabilities.cross_process, capabilities.evicts) = (true, true);
        (capabilities.modes.shared, capabilities.modes.permits) = (true, true);
        (capabilities.lists, capabilities.completions, capabilities.mode_changes) = (true, true, true);
        capabilities.longest_ttl = self.link.target.longest_ttl();
        capabilities
    }

    fn name(&self) -> String {
        self.link.target.name.clone()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.link.hub.listeners.add(&listener);
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        match request {
            Request::Claim(claim, _) => Reply::of(|| self.claim(claim)),
            Request::Renew(renewals) => Reply::of(|| self.renew_each(renewals)),
            Request::Release(key, holder) => Reply::of(|| self.give_up(key, holder)),
            Request::Inspect(key) => Reply::of(|| self.look(key)),
            Request::Downgrade(hold, _) => Reply::of(|| self.share(hold)),
            Request::Resize(key, limit) => Reply::of(move || self.set_limit(key, limit)),
            Request::List => Reply::of(|| self.list_of(None)),
            Request::Evict(seen) => Reply::of(|| self.end_holds(seen)),
            Request::TryOut(key) => Reply::of(move || try_out(self, &self.link, key)),
            Request::Diagnose => Reply::of(|| diagnose(&self.link, self.name())),
            Request::ReadCompletion(key) => Reply::of(|| self.read_done(key)),
            Request::WriteCompletion(key, holder, done) => Reply::of(|| self.write_done(key, holder, done)),
            Request::ConfirmCompletion(..) => Box::pin(ready(Reply::Done(()))),
            Request::ClearCompletion(key, seen) => Reply::of(|| self.clear_done(key, seen)),
            _ => Box::pin(ready(request.unsupported(self.name()))),
        }
    }

    fn reconnected(&self) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Self::at(self.link.target.clone()).ok()?))
    }
}

/// Requests of one statement each.
impl Postgres {
    async fn look(&self, key: &Key) -> Result<Option<Holding>, Unknown> {
        Ok(self.list_of(Some(key)).await?.pop())
    }

    async fn share(&self, renewal: &Renewal) -> Result<Downgrade, Unknown> {
        let (key, id) = (&renewal.key, renewal.holder.to_bytes());
        let downgrade = params![TEXT key.as_str(), BYTEA &id[..], INT8 calls::micros(renewal.ttl.get())];
        let row = self.link.call(Lane::Key(key), Call::Downgrade, &downgrade).await?;
        self.tell_all(key, &row).await?;
        Ok(match self.link.read(calls::downgraded(&row))? {
            Some(token) => Downgrade::Downgraded { token },
            None => match self.look(key).await? {
                Some(holding) => Downgrade::TakenBy(holding.holders.map(|hold| hold.occupant)),
                None => Downgrade::Absent,
            },
        })
    }

    async fn set_limit(&self, key: &Key, limit: u32) -> Result<Resize, Unknown> {
        Resize::check(&self.name(), limit)?;
        let resize = params![TEXT key.as_str(), INT4 calls::signed(limit)];
        let row = self.link.call(Lane::Key(key), Call::Resize, &resize).await?;
        self.tell_all(key, &row).await?;
        if let Some(resized) = self.link.read(calls::resized(&row, limit))? {
            return Ok(Resize::Resized(resized));
        }
        Ok(match self.look(key).await? {
            Some(holding) => {
                let mode = holding.first().mode;
                Resize::OtherMode { mode, holders: holding.holders.map(|hold| hold.occupant) }
            }
            None => Resize::Free,
        })
    }

    async fn read_done(&self, key: &Key) -> Result<CompletionRead, Unknown> {
        let row = self.link.call(Lane::Key(key), Call::ReadCompletion, &params![TEXT key.as_str()]).await?;
        self.link.read(calls::completion(&row))
    }

    async fn write_done(&self, key: &Key, holder: &HolderId, done: &Completion) -> Result<WriteCompletion, Unknown> {
        let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
        let (id, until, token) = (holder.to_bytes(), signed(done.until_micros), i64::from(done.token));
        let (granted, owner) = (signed(done.granted_micros), done.owner.as_str());
        let write = params![TEXT key.as_str(), BYTEA &id[..], INT8 until, INT8 token, INT8 granted, TEXT owner];
        let row = self.link.call(Lane::Key(key), Call::WriteCompletion, &write).await?;
        let is_written = self.link.read(calls::get(&row, 0))?;
        Ok(if is_written { WriteCompletion::Written } else { WriteCompletion::NotHeld })
    }

    async fn clear_done(&self, key: &Key, seen: &Completion) -> Result<ClearCompletion, Unknown> {
        let clear = params![TEXT key.as_str(), INT8 i64::from(seen.token)];
        let row = self.link.call(Lane::Key(key), Call::ClearCompletion, &clear).await?;
        self.link.read(calls::cleared(&row))
    }
}

/// `postgres://` and `postgresql://`.
#[derive(Debug)]
pub struct PostgresScheme;

impl Scheme for PostgresScheme {
    fn forms(&self) -> &[UrlForm] {
        const {
            &[
                UrlForm::new("postgres://HOST[:PORT]/DB", "machines that share a PostgreSQL database"),
                UrlForm::new("postgresql://HOST[:PORT]/DB", "the same"),
            ]
        }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Postgres::open(url).await?) as _) })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Postgres::lazy(url)?) as _) })
    }

    /// Makes the schema, or brings its functions and its quarantine up to date.
    fn init<'a>(&'a self, url: &'a str, trust_empty: bool) -> Registering<'a> {
        Box::pin(async move {
            let target = Target::parse(url)?;
            let (change, rest) = session::install(&target, INIT, trust_empty).await?;
            Ok(vec![RegisteredNode::new(&target.name, change, rest)])
        })
    }

    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        Target::with_password(url, password)
    }
}
