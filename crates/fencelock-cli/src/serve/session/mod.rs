//! One client: what it asks, what waits for an answer, and what it holds.

use super::Server;
use super::holds::{HOLDS, Hold, Holds, KEYS, Rest, Wanted, already, plan};
use super::message::{Ask, ErrorReply, Id, LINE, Message, NOT_A_REQUEST, Unread, seconds};
use super::visible::Visible;
use crate::child_socket::{Lines, Read};
use crate::commands::claim::Claimed;
use crate::exit::Exit;
use crate::keeper::{Ending, Keeping, Process, Request, Shows, release, watch};
use crate::plan::Plan;
use crate::progress::Shown;
use crate::text::{label, plain};
use fencelock::backends::BootClock;
use fencelock::{Clock, Guard, Guards, Mode, Moment};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use std::io;
use std::mem::{self, replace};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch::Receiver;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

/// The most of one session that are not answered yet.
const REQUESTS: usize = 1024;
/// The only one, until there is another.
const PROTOCOL: u64 = 1;
/// For the last answers of a session.
const LAST: Duration = Duration::from_secs(1);
/// The longest sleep of a session that holds something. Its locks ring a bell when they end, also after the machine was suspended.
const LOOK: Duration = Duration::from_secs(3600);

pub(crate) struct Session<W> {
    server: Arc<Server>,
    number: u64,
    visible: Arc<Visible>,
    /// Of a keeper: the progress of its requests, and what the session holds.
    shown: Option<(Shows, UnboundedReceiver<Shown>)>,
    changes: Option<Receiver<()>>,
    unread: Unread<W>,
    /// What is not answered yet, and its work. What one of them has got is in its result, until it is a hold.
    requests: Vec<Asked>,
    works: FuturesUnordered<BoxFuture<'static, (Id, Result<Done, ErrorReply>)>>,
    bell: Arc<Bell>,
    /// When the first of what it holds ends, unless it is renewed.
    ends: Moment,
    /// When to see whether it has.
    due: Instant,
    /// The server is being stopped.
    is_ending: bool,
}

/// Rung when a hold of a session may be lost.
#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// A request that is not answered yet.
struct Asked {
    id: Id,
    /// `None` if it asks for no lock.
    wanted: Option<Arc<Wanted>>,
    /// Who has cancelled it. They are answered with it.
    cancels: Vec<Id>,
    /// Ends it with this answer, once.
    end: Option<oneshot::Sender<Answer>>,
}

impl Asked {
    fn end(&mut self, answer: Answer) {
        // It may be done by now.
        self.end.take().map(|end| end.send(answer));
    }
}

type Answer = Result<Value, ErrorReply>;

/// The end of a request.
enum Done {
    Claimed(Arc<Wanted>, Box<Claimed>),
    Answered(Value),
}

/// Also after a panic: what it has is released with the last reference.
impl<W> Drop for Session<W> {
    fn drop(&mut self) {
        drop(self.visible.leave(self.number));
        self.server.sessions().remove(&self.number);
    }
}

impl<W: AsyncWrite + Unpin> Session<W> {
    pub(crate) fn new(server: Arc<Server>, number: u64, visible: Arc<Visible>, writer: W) -> Self {
        server.sessions().insert(number, Arc::clone(&visible));
        let (shown, changes) = visible.process.as_ref().map(|of| (unbounded_channel(), of.changes.subscribe())).unzip();
        Self {
            server,
            number,
            visible,
            shown,
            changes,
            unread: Unread::new(writer),
            requests: Vec::new(),
            works: FuturesUnordered::new(),
            bell: Arc::default(),
            ends: Moment::NEVER,
            due: Instant::now(),
            is_ending: false,
        }
    }

    /// Serves it until its end. Then all it has is released, in the background.
    pub(crate) async fn run(mut self, reader: impl AsyncRead + Unpin, mut end: Receiver<Option<Instant>>) {
        let served = self.serve(Lines::new(reader, LINE), &mut end).await;
        // First of all: others may wait for them.
        let holds = self.visible.leave(self.number);
        // What is granted and not answered yet is in the work.
        drop((holds, mem::take(&mut self.works)));
        match served {
            Ok(()) => drop(timeout(LAST, self.unread.flush()).await),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => {
                let client = self.visible.client.get().map(String::as_str).unwrap_or_default();
                tracing::warn!(pid = self.visible.peer.pid, client, "cut off a session: {error}");
            }
        }
    }

    /// # Errors
    /// The client does not read, or a bug.
    async fn serve(
        &mut self,
        mut lines: Lines<impl AsyncRead + Unpin>,
        end: &mut Receiver<Option<Instant>>,
    ) -> io::Result<()> {
        let visible = Arc::clone(&self.visible);
        let (mut gone, mut look) = (pin!(visible.peer.ended()), pin!(sleep_until(Instant::now())));
        let mut deadline = None;
        loop {
            let holds = !self.visible.holds().is_empty();
            // A loss that was told needs no release. Many of them cost nothing before the end.
            let ends = deadline.is_some() && self.works.is_empty();
            if ends && self.visible.holds().values().all(|hold| hold.lost.is_some()) {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = &mut gone => return Ok(()),
                Ok(()) = end.changed() => {
                    deadline = *end.borrow_and_update();
                    self.end(deadline)?;
                }
                () = sleep_until(deadline.unwrap_or(self.due)), if deadline.is_some() => return Ok(()),
                written = self.unread.write(), if !self.unread.is_empty() => written?,
                Some(shown) = async { self.shown.as_mut()?.1.recv().await } => self.unread.notify("shown", &json!(shown))?,
                Some(()) = async { self.changes.as_mut()?.changed().await.ok() } => self.settle(|_| true),
                () = self.bell.0.notified() => self.look()?,
                // A keeper watches its holds itself.
                () = &mut look, if holds && self.visible.process.is_none() => {
                    if BootClock.now() >= self.ends {
                        self.look()?;
                    }
                    self.due = Instant::now() + self.ends.since(BootClock.now()).min(LOOK);
                }
                Some((id, done)) = self.works.next() => self.finish(&id, done)?,
                read = lines.next() => match read {
                    Read::Line(line) => {
                        if self.line(line)? {
                            yield_now().await;
                        }
                    }
                    Read::TooLong => {
                        let why = format!("a line has at most {LINE} bytes");
                        return self.unread.answer(&Value::Null, &Err(ErrorReply::new(NOT_A_REQUEST, why)));
                    }
                    Read::End => return Ok(()),
                },
            }
            if self.due != look.deadline() {
                look.as_mut().reset(self.due);
            }
        }
    }

    /// The server will be stopped then.
    fn end(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let Some(deadline) = deadline.filter(|_| !replace(&mut self.is_ending, true)) else { return Ok(()) };
        for request in self.requests.iter_mut().filter(|request| request.wanted.is_some()) {
            request.end(Err(ErrorReply::ending()));
        }
        self.unread.notify("ending", &json!({ "grace": seconds(deadline.saturating_duration_since(Instant::now())) }))
    }

    /// Tells what is lost.
    fn look(&mut self) -> io::Result<()> {
        let mut lost = Vec::new();
        self.ends = Moment::NEVER;
        for (number, hold) in self.visible.holds().iter_mut().filter(|(_, hold)| hold.lost.is_none()) {
            let left = hold.left();
            if left.is_zero() {
                lost.extend(hold.tell_loss(*number));
            } else {
                self.ends = self.ends.min(BootClock.now() + left);
            }
        }
        lost.iter().try_for_each(|params| self.unread.notify("lost", params))
    }

    /// Whether others may have got what it has released: they are answered first.
    fn line(&mut self, line: &[u8]) -> io::Result<bool> {
        let message = match Message::parse(line) {
            Ok(message) => message,
            Err((id, refusal)) => return self.unread.answer(&id, &Err(refusal)).map(|()| false),
        };
        let Some(id) = message.id.clone() else {
            if let (true, Ok(Ask::Cancel { id })) = (message.method == "cancel", message.ask()) {
                self.cancel(None, &id)?;
            }
            return Ok(false);
        };
        let answer = if self.requests.iter().any(|request| request.id == id) {
            Err(ErrorReply::new(NOT_A_REQUEST, "a request with this id is not answered yet"))
        } else {
            self.request(&id, &message)
        };
        answer.transpose().map_or(Ok(()), |answer| self.unread.answer(&id, &answer))?;
        Ok(message.method == "release")
    }

    /// `None` if the answer comes later, or is written.
    fn request(&mut self, id: &Id, message: &Message<'_>) -> Result<Option<Value>, ErrorReply> {
        if message.method != "hello" {
            if self.visible.process.is_some() {
                return self.request_of_keeper(id, message.to_keeper()?);
            }
            if self.visible.client.get().is_none() {
                return Err(ErrorReply::new(NOT_A_REQUEST, "the first request of a session is hello"));
            }
        }
        let (server, default) = (Arc::clone(&self.server), self.server.ttl);
        match message.ask()? {
            Ask::Hello { protocol, client } => self.hello(protocol, &client).map(Some),
            Ask::Lock(lock) => self.claim(id, Wanted::of_lock(*lock, default)?),
            Ask::Elect { key, wait, ttl, label } => {
                let plan = plan(vec![key], (wait, ttl, default), label)?;
                self.claim(id, Wanted::of(Plan { campaigns: true, ..plan }))
            }
            Ask::Once { key, window, wait, ttl, label } => {
                let once = Some(window.rule()?);
                let plan = plan(vec![key], (wait, ttl, default), label)?;
                self.claim(id, Wanted::of(Plan { once, ..plan }))
            }
            Ask::Release { hold, done } => {
                let hold = take(&mut self.visible.holds(), hold, done.is_some())?;
                self.start(id, None, async move { hold.release(done == Some(true)).await.map(Done::Answered) })
            }
            Ask::Remaining { hold } => {
                let holds = self.visible.holds();
                let left = holds.get(&hold).ok_or_else(|| unknown(hold))?.remaining()?;
                Ok(Some(json!({ "remaining": seconds(left) })))
            }
            Ask::Cancel { id: other } => {
                // A client that does not read its answers is noticed with the next one.
                let _ = self.cancel(Some(id.clone()), &other);
                Ok(None)
            }
            Ask::Status { key } => {
                self.check_room()?;
                self.start(id, None, async move { server.status(&key).await.map(Done::Answered) })
            }
            Ask::List { prefix } => {
                self.check_room()?;
                self.start(id, None, async move { server.list(&prefix).await.map(Done::Answered) })
            }
        }
    }

    fn request_of_keeper(&mut self, id: &Id, ask: Request) -> Result<Option<Value>, ErrorReply> {
        let visible = Arc::clone(&self.visible);
        let endings = |holds: Vec<Hold>| holds.into_iter().map(|mut hold| Ending::of(&mut hold)).collect();
        let endings: Vec<_> = match ask {
            Request::Acquire(wanted) => {
                visible.process.as_ref().map_or(Ok(()), |process| process.check_options(&wanted))?;
                return self.claim(id, *wanted);
            }
            Request::Holds => return Ok(Some(json!(visible.kept()))),
            Request::Keep => {
                visible.keep(self.number);
                return Ok(Some(json!({})));
            }
            Request::GiveBack => endings(visible.leave(self.number)),
            Request::Break { holder, by, .. } => visible.lose_to(&by, |hold| hold.has(holder)),
            Request::Release { key, holder } => endings(visible.take(|hold| hold.is_by(&key, holder))),
            Request::ReleaseAll { owner, tree } => endings(visible.take(|hold| {
                hold.wanted.owner.as_ref() == Some(&owner) && (tree.is_none() || hold.wanted.plan.tree == tree)
            })),
        };
        self.start(id, None, async move { Ok(Done::Answered(json!(release(endings).await))) })
    }

    fn hello(&self, protocol: u64, client: &str) -> Result<Value, ErrorReply> {
        if protocol != PROTOCOL {
            let why = format!("protocol {protocol} is not spoken here, but {PROTOCOL}");
            return Err(ErrorReply::of(Exit::Usage, why).with("protocols", vec![PROTOCOL]));
        }
        let _ = self.visible.client.set(label(&plain(client)));
        let capabilities = self.server.client.capabilities();
        let semaphores = Mode::permits(1, 1).is_ok_and(|mode| capabilities.modes.has(mode));
        Ok(json!({
            "protocol": PROTOCOL,
            "version": env!("CARGO_PKG_VERSION"),
            "backend": self.server.scheme,
            "shared": capabilities.modes.has(Mode::Shared),
            "permits": semaphores,
            "limits": { "line": LINE, "requests": REQUESTS, "holds": HOLDS, "keys": KEYS },
        }))
    }

    fn claim(&mut self, id: &Id, mut wanted: Wanted) -> Result<Option<Value>, ErrorReply> {
        if self.is_ending {
            return Err(ErrorReply::ending());
        }
        if let Some(result) = self.visible.own(&wanted, self.number)? {
            return Ok(Some(result));
        }
        wanted.has = Process::has(&self.visible.holds(), &wanted)?;
        wanted.plan.has = wanted.has.iter().map(|guard| guard.key().to_string()).collect();
        if wanted.has.iter().any(|guard| guard.mode() == Mode::Exclusive) {
            return Ok(Some(self.keep(id, wanted.into(), Vec::new(), (None, None))));
        }
        self.check_room()?;
        let waiting = self.requests.iter().filter(|request| request.wanted.is_some()).count();
        if self.visible.holds().len() + waiting >= HOLDS {
            return Err(ErrorReply::limit("holds", HOLDS));
        }
        let (server, wanted) = (Arc::clone(&self.server), Arc::new(wanted));
        let (asked, shows) = (Arc::clone(&wanted), self.shown.as_ref().map(|(shows, _)| shows.clone()));
        self.start(id, Some(wanted), async move {
            let claimed = asked.claim(&server.client, shows).await?;
            Ok(Done::Claimed(asked, Box::new(claimed)))
        })
    }

    /// A release always finds room: there are at most as many as holds.
    fn check_room(&self) -> Result<(), ErrorReply> {
        if self.requests.len() < REQUESTS { Ok(()) } else { Err(ErrorReply::limit("requests", REQUESTS)) }
    }

    fn start(
        &mut self,
        id: &Id,
        wanted: Option<Arc<Wanted>>,
        work: impl Future<Output = Result<Done, ErrorReply>> + Send + 'static,
    ) -> Result<Option<Value>, ErrorReply> {
        let mut work = Box::pin(work);
        // Without a request to the backend, it is done at once.
        if let Some(done) = work.as_mut().now_or_never() {
            return self.result(id, done).map(Some);
        }
        let (end, ended) = oneshot::channel();
        self.requests.push(Asked { id: id.clone(), wanted, cancels: Vec::new(), end: Some(end) });
        let id = id.clone();
        self.works.push(Box::pin(async move {
            tokio::select! {
                biased;
                Ok(answer) = ended => (id, answer.map(Done::Answered)),
                done = work => (id, done),
            }
        }));
        Ok(None)
    }

    /// # Errors
    /// The client does not read.
    fn finish(&mut self, id: &Id, done: Result<Done, ErrorReply>) -> io::Result<()> {
        let place = self.requests.iter().position(|request| request.id == *id);
        let cancels = place.map(|place| self.requests.swap_remove(place).cancels).unwrap_or_default();
        let answer = self.result(id, done);
        self.unread.answer(id, &answer)?;
        let result = Ok(answer.unwrap_or_else(|_| json!({})));
        cancels.iter().try_for_each(|id| self.unread.answer(id, &result))
    }

    fn result(&mut self, id: &Id, done: Result<Done, ErrorReply>) -> Answer {
        let (wanted, claimed) = match done? {
            Done::Answered(result) => return Ok(result),
            Done::Claimed(wanted, claimed) => (wanted, *claimed),
        };
        let (guards, rest) = match claimed {
            Claimed::Held { guards, once, slot } => (guards, (once, slot)),
            Claimed::AlreadyDone(done) => return Ok(already(&done)),
        };
        // Another request of this owner was faster.
        if let Some(result) = self.visible.own(&wanted, self.number)? {
            return Ok(result);
        }
        let granted = guards.into_guards().into_iter().map(Arc::new).collect();
        Ok(self.keep(id, wanted, granted, rest))
    }

    /// Makes a hold of what was granted, and of what its owner has.
    fn keep(&mut self, id: &Id, mut wanted: Arc<Wanted>, mut granted: Vec<Arc<Guard>>, rest: Rest) -> Value {
        if !wanted.has.is_empty() {
            granted.append(&mut Arc::make_mut(&mut wanted).has);
            granted.sort_by(|one, other| one.key().cmp(other.key()));
        }
        let (guards, (once, slot)) = (Guards::new(granted), rest);
        let number = self.visible.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (bell, kept) = if wanted.asked.is_some() {
            let watch = tokio::spawn(watch(Arc::clone(&self.visible), number, guards.held(), wanted.plan.rules));
            (None, Some(Keeping::new(&guards, &wanted.plan, self.number, watch.abort_handle())))
        } else {
            self.ends = self.ends.min(BootClock.now() + guards.remaining());
            self.due = self.due.min(Instant::now() + guards.remaining().min(LOOK));
            (Some(guards.wake_at_end(&Waker::from(Arc::clone(&self.bell)))), None)
        };
        let (once, kept, guards) = (once.map(Box::new), kept.map(Box::new), Some(guards));
        let hold = Hold { wanted: Arc::clone(&wanted), id: id.clone(), guards, once, slot, bell, lost: None, kept };
        let result = hold.result(number, &wanted);
        self.visible.holds().insert(number, hold);
        self.settle(|other| other.is_same(&wanted));
        self.visible.change();
        result
    }

    /// Ends the requests for what their owner has by now, and those that would wait in vain.
    fn settle(&mut self, is_meant: impl Fn(&Wanted) -> bool) {
        let (visible, number) = (&self.visible, self.number);
        for request in &mut self.requests {
            let Some(wanted) = request.wanted.clone().filter(|wanted| is_meant(wanted)) else { continue };
            let own = visible.own(&wanted, number).transpose();
            if let Some(answer) = own.or_else(|| Process::overtaken(&visible.holds(), &wanted).map(Err)) {
                request.end(answer);
            }
        }
    }

    /// Ends a request for a lock, unless it is granted already.
    fn cancel(&mut self, by: Option<Id>, id: &Id) -> io::Result<()> {
        let mut requests = self.requests.iter_mut();
        if let Some(request) = requests.find(|request| request.wanted.is_some() && request.id == *id) {
            request.cancels.extend(by);
            request.end(Err(ErrorReply::cancelled()));
            return Ok(());
        }
        let Some(by) = by else { return Ok(()) };
        let held = self
            .visible
            .holds()
            .iter()
            .rev()
            .find(|(_, hold)| hold.id == *id)
            .map(|(number, hold)| hold.result(*number, &hold.wanted));
        self.unread.answer(&by, &Ok(held.unwrap_or_else(|| json!({}))))
    }
}

fn take(holds: &mut Holds, number: u64, is_of_once: bool) -> Result<Hold, ErrorReply> {
    if is_of_once && holds.get(&number).is_some_and(|hold| hold.once.is_none()) {
        return Err(ErrorReply::of(Exit::Usage, "release: done is for a hold of once"));
    }
    holds.remove(&number).ok_or_else(|| unknown(number))
}

fn unknown(hold: u64) -> ErrorReply {
    ErrorReply::of(Exit::Usage, format!("{hold} is no hold of this session, or it was released"))
}

#[cfg(test)]
mod tests;
