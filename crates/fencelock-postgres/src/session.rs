//! One connection to the server, and what was found there.

use crate::calls::{CALLS, Call, Param, params};
use crate::dial::{Encrypted, Secured, dial};
use crate::fault::{NOT_INSTALLED, has_moved, unknown};
use crate::hub::Hub;
use crate::schema::{self, INIT, LAYOUT};
use crate::url::{Host, Quarantine, Target};
use fencelock_core::{BoxFuture, Change, Fault, HolderId, NodeFault, Span, Ttl, Unknown, lock};
use futures_util::StreamExt;
use futures_util::future::{join, join3};
use futures_util::stream::FuturesUnordered;
use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Row, Statement};

/// The oldest version that the tests run on.
const OLDEST: i32 = 140_000;

/// How often each server of a URL is tried before a connection counts as failed, if they are silent. A request may end before.
const ROUNDS: usize = 4;

/// Why a server is in quarantine.
const FORGOTTEN: &str = "it may have lost its locks: promoted, or restored from a backup";

/// What an asynchronous failover means.
pub(crate) fn may_lose(span: Duration) -> String {
    let then = if span.is_zero() {
        "a second holder gets in; quarantine=on prevents that".to_owned()
    } else {
        format!("none is granted for {} then", Span(span))
    };
    format!("no commit waits for its standbys, so a failover may lose locks: {then}")
}

/// What a server says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The process id in the greeting is not that of the server process, so a pooler may use another one for each transaction.
    pub(crate) is_pooled: bool,
    /// This role may update the table: the common case is one plain statement.
    pub(crate) is_direct: bool,
    /// Identifies the database cluster, and what it has written since the last failover.
    pub(crate) run: String,
    pub(crate) commit: String,
    pub(crate) isolation: String,
    /// Its standbys may lack the last commits.
    pub(crate) is_async: bool,
    /// How long its quarantine lasts, if it has one.
    pub(crate) span: Duration,
    /// The end of the quarantine that it is in.
    grants_from: Instant,
}

pub(crate) struct Session {
    /// For messages.
    pub(crate) node: String,
    pub(crate) facts: Facts,
    client: Arc<Client>,
    texts: Arc<[String; CALLS]>,
    prepared: [OnceCell<Statement>; CALLS],
    uses: [AtomicU32; CALLS],
    /// What begins a transaction that a pooler may run on any connection.
    begin: String,
    /// On a connection of a pooler, one transaction is under way at a time.
    order: Order,
    claiming: Mutex<HashSet<HolderId>>,
    state: Arc<State>,
    driver: JoinHandle<()>,
}

/// What a session and its driver have in common.
#[derive(Debug, Default)]
struct State {
    /// The server has warned that it does not know whether something that it reports as done is replicated.
    doubt: AtomicBool,
    /// A pooler has another server now, or the server has become a standby.
    moved: AtomicBool,
    /// The warnings of a new connection are about the database.
    ready: AtomicBool,
    /// Notifications arrive, until it ends.
    listens: AtomicBool,
}

/// The settings of a transaction. READ COMMITTED is asked for, because the default of the role may be another one; and a commit that is
/// not on disk grants nothing, whatever the default is. Nor does an operator of another role in a schema that all may write.
fn settings(target: &Target, local: bool) -> String {
    let (word, limit) = (if local { "LOCAL " } else { "" }, target.limit.as_millis());
    let lazy = "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END";
    format!(
        "SET {word}statement_timeout = {limit}; SET {word}lock_timeout = {}; SET {word}client_min_messages = warning; \
         SELECT set_config('synchronous_commit', {lazy}, {local}), set_config('search_path', 'pg_catalog, pg_temp', {local})",
        limit / 2
    )
}

impl Session {
    /// Connects to the first server of the URL that takes writes, and makes the schema if the URL says so.
    pub(crate) async fn open(target: &Target, hub: &Arc<Hub>, texts: &Arc<[String; CALLS]>) -> Result<Self, Unknown> {
        first(target, target.limit, ROUNDS, |host| Box::pin(Self::open_at(target, host, hub, texts))).await
    }

    async fn open_at(
        target: &Target,
        host: &Host,
        hub: &Arc<Hub>,
        texts: &Arc<[String; CALLS]>,
    ) -> Result<Self, Unknown> {
        let node = target.name.clone();
        let (client, connection) = connect(target, host).await?;
        let client = Arc::new(client);
        let state = Arc::new(State::default());
        let driver = tokio::spawn(drive(connection, Arc::clone(hub), Arc::clone(&state)));
        let facts = match examine(&client, target).await {
            Err(error) if target.create && error.code().is_some_and(|code| NOT_INSTALLED.contains(code)) => {
                make(&client, target).await?;
                examine(&client, target).await
            }
            examined => examined,
        };
        let facts = facts.map_err(|error| unknown(&node, &error))??;
        if !facts.is_pooled {
            let session = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE";
            let all = format!("{session}; SET idle_in_transaction_session_timeout = 0; {}", settings(target, false));
            client.batch_execute(&all).await.map_err(|error| unknown(&node, &error))?;
        }
        state.ready.store(true, Ordering::Relaxed);
        let mut begin = begin(target);
        if target.quarantine != Quarantine::Off {
            begin = format!("{begin}; SELECT {}.check_1('{}'::text)", target.quoted_schema(), facts.run);
        }
        let session = Self {
            node,
            facts,
            client,
            texts: Arc::clone(texts),
            prepared: std::array::from_fn(|_| OnceCell::new()),
            uses: std::array::from_fn(|_| AtomicU32::new(0)),
            begin,
            order: Order::default(),
            claiming: Mutex::default(),
            state,
            driver,
        };
        session.warn(hub);
        Ok(session)
    }

    /// Logs what a failover may lose, once, and that nothing is granted.
    fn warn(&self, hub: &Hub) {
        let Facts { is_async, span, .. } = self.facts;
        if is_async && !hub.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("{}: {}", self.node, may_lose(span));
        }
        if let Err(cause) = self.check_quarantine() {
            tracing::warn!("{cause}");
        }
    }

    /// Whether the server may grant now what fits its quarantine.
    pub(crate) fn check_claim(&self, ttl: Ttl, longest: Option<Duration>) -> Result<(), Unknown> {
        let within = ttl.within(longest);
        within.map_err(|invalid| Unknown::new(&self.node, Fault::Misconfigured, invalid.to_string()))?;
        self.check_quarantine()
    }

    fn check_quarantine(&self) -> Result<(), Unknown> {
        let rest = self.facts.grants_from.saturating_duration_since(Instant::now());
        let fault = NodeFault::new(&self.node, Fault::Quarantined, FORGOTTEN).with_passes_in(rest);
        if rest.is_zero() { Ok(()) } else { Err(Unknown::of_nodes(vec![fault])) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        let [doubt, moved] = [&self.state.doubt, &self.state.moved].map(|flag| flag.load(Ordering::Relaxed));
        self.client.is_closed() || doubt || moved
    }

    /// The holders with a claim that it may still execute: those whose claims have no answer yet, or were cancelled before it.
    pub(crate) fn claiming(&self) -> MutexGuard<'_, HashSet<HolderId>> {
        lock(&self.claiming)
    }

    /// Runs one statement in a transaction of its own, in one round trip. Requests are executed in the order in which their futures are
    /// polled for the first time.
    pub(crate) async fn call(&self, call: Call, params: &[Param<'_>]) -> Result<Vec<Row>, Unknown> {
        let rows = if self.facts.is_pooled {
            // A pooler may have no named statements, and gives settings to other clients.
            in_transaction(&self.client, &self.order, &self.begin, &self.texts[call as usize], params).await
        } else {
            self.call_named(call, params).await
        };
        if self.state.doubt.load(Ordering::Relaxed) {
            let text = "the server stopped waiting for its replicas";
            return Err(Unknown::new(&self.node, Fault::NotReplicated { confirmed: 0, wanted: 1 }, text));
        }
        rows.map_err(|error| {
            self.state.moved.fetch_or(has_moved(&error), Ordering::Relaxed);
            unknown(&self.node, &error)
        })
    }

    /// Each use of a statement needs one round trip, and the third and later ones no parsing.
    async fn call_named(&self, call: Call, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        let (number, text) = (call as usize, &self.texts[call as usize]);
        if let Some(statement) = self.prepared[number].get() {
            let params: Vec<_> = params.iter().map(|(value, _)| *value).collect();
            return self.client.query(statement, &params).await;
        }
        let asked = self.client.query_typed(text, params);
        if self.uses[number].fetch_add(1, Ordering::Relaxed) == 0 {
            return asked.await;
        }
        // Without their types, a function of the same name with other ones may be meant.
        let types: Vec<_> = params.iter().map(|(_, kind)| kind.clone()).collect();
        join(asked, self.prepared[number].get_or_try_init(|| self.client.prepare_typed(text, &types))).await.0
    }

    /// Asks for the notifications of this client, once. Those of a pooler never arrive.
    pub(crate) async fn listen(&self, channel: &str) {
        if !self.facts.is_pooled && !self.state.listens.swap(true, Ordering::Relaxed) {
            // Without it, the waiter polls once a second.
            let _ = self.client.batch_execute(&format!("LISTEN {channel}")).await;
        }
    }

    /// For `doctor`.
    pub(crate) async fn query(&self, text: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Unknown> {
        let rows = if self.facts.is_pooled {
            in_transaction(&self.client, &self.order, &self.begin, text, params).await
        } else {
            self.client.query_typed(text, params).await
        };
        rows.map_err(|error| unknown(&self.node, &error))
    }
}

/// What begins a transaction on a connection whose settings are those of others.
fn begin(target: &Target) -> String {
    format!("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {}", settings(target, true))
}

/// Runs one statement, in one round trip, when the earlier one on this connection has ended: if a client disappears between two that were
/// sent together, `PgBouncer` 1.18 gives the reply to the second one to another client.
async fn in_transaction(
    client: &Arc<Client>,
    order: &Order,
    begin: &str,
    text: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, Error> {
    let (turn, committing) = (Arc::clone(order).lock_owned().await, Arc::clone(client));
    let commit = async move {
        let answer = committing.batch_execute("COMMIT").await;
        drop(turn);
        answer
    };
    let commit = Commit(Some(Box::pin(commit)));
    let (first, rows, last) = join3(client.batch_execute(begin), client.query_typed(text, params), commit).await;
    first?;
    let rows = rows?;
    last?;
    Ok(rows)
}

/// Whose turn it is to have a transaction on a connection.
type Order = Arc<tokio::sync::Mutex<()>>;

/// The end of a transaction, which ends the turn also if nobody waits for its answer any more.
struct Commit(Option<BoxFuture<'static, Result<(), Error>>>);

impl Future for Commit {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(commit) = &mut self.0 else { return Poll::Pending };
        let committed = ready!(commit.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(committed)
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(commit), Ok(runtime)) = (self.0.take(), runtime) {
            runtime.spawn(commit);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("node", &self.node).field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Connects to the server of a URL without a look at its schema, and makes it. Returns the rest of its quarantine.
pub(crate) async fn install(target: &Target, within: Duration, trust: bool) -> Result<(Change, Duration), Unknown> {
    let made = async |host| {
        let (client, connection) = connect(target, host).await?;
        let driver = tokio::spawn(connection);
        let made = schema::create(&client, target, trust).await.map_err(|error| unknown(&target.name, &error));
        drop(client);
        // It sends its farewell.
        let _ = driver.await;
        made
    };
    let made = first(target, within, 1, |host| Box::pin(made(host))).await?;
    made.map_err(|layout| Unknown::new(&target.name, Fault::Unsupported, other(layout)))
}

/// Makes the schema to its end, also if the request that needs it ends before: a far server takes longer for it than a reply may.
async fn make(client: &Arc<Client>, target: &Target) -> Result<(), Unknown> {
    let (client, target, node) = (Arc::clone(client), target.clone(), target.name.clone());
    let making = tokio::spawn(async move { timeout(INIT, schema::create(&client, &target, false)).await });
    let failed = |fault, text: String| Unknown::new(&node, fault, text);
    let made = making.await.map_err(|error| failed(Fault::Other, error.to_string()))?;
    made.map_err(|_| failed(Fault::Timeout, String::new()))?.map(drop).map_err(|error| unknown(&node, &error))
}

/// The result of the first server of the URL with which this succeeds, or the last error. One that is silent for its share of the time may
/// be slow, or its address may be that of another one by now: it may go on while the next one is tried, and after the last one again the
/// first.
async fn first<'a, T>(
    target: &'a Target,
    within: Duration,
    rounds: usize,
    open: impl Fn(&'a Host) -> BoxFuture<'a, Result<T, Unknown>>,
) -> Result<T, Unknown> {
    let mut result = Err(Unknown::new(&target.name, Fault::Unsupported, "the URL names no server"));
    let (count, mut attempts, mut is_silent) = (target.hosts.len(), FuturesUnordered::new(), true);
    let each = target.connect.unwrap_or(within / u32::try_from(count).unwrap_or(u32::MAX).max(1));
    for (number, host) in target.hosts.iter().cycle().take(count * rounds).enumerate() {
        if number >= count && !is_silent {
            break;
        }
        attempts.push(open(host));
        let ended = timeout(each, attempts.next()).await.ok().flatten();
        is_silent = ended.is_none();
        result = ended.unwrap_or_else(|| Err(Unknown::new(host.to_string(), Fault::Timeout, "")));
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Logs in.
async fn connect(target: &Target, host: &Host) -> Result<(Client, Connection<Encrypted, Encrypted>), Unknown> {
    let stream = dial(target, host).await?;
    let password = target.password(host).map_err(|text| Unknown::new(&target.name, Fault::Denied, text))?;
    let connected = config(target, password.as_deref()).connect_raw(stream, Secured).await;
    let refused = |error| unknown(&target.name, &error).map_fault(|fault| target.kind(fault));
    let (client, connection) = connected.map_err(refused)?;
    target.accept(password);
    Ok((client, connection))
}

/// The server process that is named in the greeting, as a request to cancel a statement of this connection would name it: its length, its
/// code, the process and a secret. It goes nowhere.
async fn named_process(client: &Client) -> i32 {
    let (cancel, mut request) = tokio::io::duplex(64);
    let cancel = Encrypted { stream: Box::new(cancel), end_point: None };
    let _ = client.cancel_token().cancel_query_raw(cancel, Secured).await;
    let mut words = [0; 3];
    for word in &mut words {
        *word = request.read_i32().await.unwrap_or_default();
    }
    words[2]
}

/// The stream is encrypted already, if it has to be.
fn config(target: &Target, password: Option<&str>) -> Config {
    let mut config = Config::new();
    config.application_name(&target.application_name).channel_binding(target.channel_binding);
    config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    if let Some(user) = &target.user {
        config.user(user);
    }
    if let Some(database) = &target.database {
        config.dbname(database);
    }
    if let Some(password) = password {
        config.password(password);
    }
    config
}

/// What the server is; refused if its tables are those of another version, or its quarantine has another length.
async fn examine(client: &Arc<Client>, target: &Target) -> Result<Result<Facts, Unknown>, Error> {
    let schema = target.quoted_schema();
    let text = format!(
        "SELECT o_layout, current_setting('server_version_num')::int, pg_backend_pid(), o_run, o_span, o_rest, o_async, \
         (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), current_setting('default_transaction_isolation'), \
         has_table_privilege($1 || '.locks', 'SELECT') AND has_table_privilege($1 || '.locks', 'UPDATE') \
         FROM {schema}.hello_1({}::bigint, {})",
        target.span().as_micros(),
        target.longest_ttl().is_some()
    );
    let mut begin = begin(target);
    if target.create {
        // As before it is made. Without this function, nobody's is called.
        let hello = schema::literal(&format!("{schema}.hello_1(bigint, boolean)"));
        begin = format!("{begin}; {} SELECT {hello}::regprocedure", schema::check_owners(target));
    }
    let rows = in_transaction(client, &Order::default(), &begin, &text, &params![TEXT schema]).await?;
    let refused = |fault, text: String| Ok(Err(Unknown::new(&target.name, fault, text)));
    let Some(row) = rows.first() else { return refused(Fault::Other, "an empty reply".to_owned()) };
    let (layout, version): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
    if version < OLDEST {
        return refused(Fault::Unsupported, format!("PostgreSQL {} is older than 14", version / 10_000));
    }
    if layout != LAYOUT {
        return refused(Fault::Unsupported, other(layout));
    }
    let process: i32 = row.try_get(2)?;
    let [span, rest] =
        [row.try_get::<_, i64>(4)?, row.try_get(5)?].map(|micros| Duration::from_micros(micros.unsigned_abs()));
    if target.quarantine == Quarantine::On && span != target.span() {
        let [theirs, ours] = [Span(span), Span(target.span())];
        let text = format!("its quarantine lasts {theirs}, and with the max_ttl= of this URL it would be {ours}");
        return refused(Fault::Misconfigured, text);
    }
    let [span, rest] = if target.quarantine == Quarantine::Off { [Duration::ZERO; 2] } else { [span, rest] };
    Ok(Ok(Facts {
        is_pooled: process != named_process(client).await,
        run: row.try_get(3)?,
        is_async: row.try_get(6)?,
        commit: row.try_get(7)?,
        isolation: row.try_get(8)?,
        is_direct: row.try_get(9)?,
        span,
        grants_from: Instant::now() + rest,
    }))
}

fn other(layout: i32) -> String {
    let remedy = if layout > LAYOUT {
        "use a later one"
    } else {
        "while no lock is held, drop the schema and run `fencelock init`"
    };
    format!("its tables have layout {layout}, and this version of fencelock knows {LAYOUT}: {remedy}")
}

/// A commit that was cancelled while it waited for replicas is reported as done, with a warning whose text depends on the language of
/// the server. The functions send none.
fn is_doubtful(notice: &DbError) -> bool {
    let codes = [SqlState::WARNING, SqlState::ADMIN_SHUTDOWN];
    notice.parsed_severity() == Some(Severity::Warning) && codes.contains(notice.code())
}

/// Moves the messages of a connection until it ends. Notifications come between replies.
async fn drive(mut connection: Connection<Encrypted, Encrypted>, hub: Arc<Hub>, state: Arc<State>) {
    while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            Ok(AsyncMessage::Notification(sent)) => hub.notified(sent.payload()),
            Ok(AsyncMessage::Notice(notice)) if is_doubtful(&notice) && state.ready.load(Ordering::Relaxed) => {
                state.doubt.store(true, Ordering::Relaxed);
            }
            Ok(AsyncMessage::Notice(notice)) => tracing::debug!(%notice, "the server has sent a notice"),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "the connection has ended");
                break;
            }
        }
    }
    hub.lost_connection(state.listens.load(Ordering::Relaxed));
}
