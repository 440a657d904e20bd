//! One client: what it asks, what waits for an answer, and what it holds.

use super::Server;
use super::holds::{HOLDS, Hold, Holds, KEYS, Rest, Wanted, Watch, already};
use super::message::{
    Cancel, ErrorReply, Hello, Id, LINE, Lines, List, Message, NOT_A_REQUEST, Read, Release, Remaining, Status, Unread,
    seconds,
};
use super::visible::Visible;
use crate::commands::claim::Claimed;
use crate::exit::Exit;
use crate::keeper::{Ending, Keeping, Process, Request as Ask, Shows, release, watch};
use crate::progress::Shown;
use crate::text::{label, plain};
use fencelock::{Guard, Guards, Mode};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use std::future::poll_fn;
use std::io;
use std::mem::{self, replace};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until, timeout};

/// The most of one session that are not answered yet.
const REQUESTS: usize = 1024;
/// The only one, until there is another.
const PROTOCOL: u64 = 1;
/// For the last answers of a session.
const LAST: Duration = Duration::from_secs(1);
/// The longest time between two looks at what a session holds: timers stop while the machine is suspended.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Session<W> {
    server: Arc<Server>,
    number: u64,
    visible: Arc<Visible>,
    /// Of a keeper: the progress of its requests, and what the session holds.
    shown: Option<(Shows, UnboundedReceiver<Shown>)>,
    changes: Option<Receiver<()>>,
    unread: Unread<W>,
    /// What is not answered yet. What one of them has got is in its result, until it is a hold.
    requests: FuturesUnordered<Request>,
    bell: Arc<Bell>,
    /// The hold that ends first if none is renewed, and when; `None` if it holds nothing that ends.
    first: Option<(u64, Instant)>,
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
struct Request {
    asked: Asked,
    work: Pin<Box<dyn Future<Output = Done> + Send>>,
    /// The answer, if it was ended in time.
    ended: Option<Result<Value, ErrorReply>>,
    waker: Waker,
}

/// What a request was.
#[derive(Default)]
struct Asked {
    id: Id,
    /// `None` if it asks for no lock.
    wanted: Option<Arc<Wanted>>,
    /// Who has cancelled it. They are answered with it.
    cancels: Vec<Option<Id>>,
}

impl Request {
    /// Ends it with this answer.
    fn end(&mut self, answer: Result<Value, ErrorReply>) {
        if self.ended.is_none() {
            self.ended = Some(answer);
            self.waker.wake_by_ref();
        }
    }
}

impl Future for Request {
    type Output = (Asked, Done);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.waker.clone_from(cx.waker());
        let done = match self.ended.take() {
            Some(answer) => Done::Answered(answer),
            None => ready!(self.work.as_mut().poll(cx)),
        };
        Poll::Ready((mem::take(&mut self.asked), done))
    }
}

/// The end of a request.
enum Done {
    Claimed(Box<Result<Claimed, ErrorReply>>),
    Answered(Result<Value, ErrorReply>),
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
        let (unread, requests, bell) = (Unread::new(writer), FuturesUnordered::new(), Arc::default());
        let (shown, changes) = visible.process.as_ref().map(|of| (unbounded_channel(), of.changes.subscribe())).unzip();
        Self { server, number, visible, shown, changes, unread, requests, bell, first: None, is_ending: false }
    }

    /// Serves it until its end. Then all it has is released, in the background.
    pub(crate) async fn run(mut self, reader: impl AsyncRead + Unpin, mut end: Receiver<Option<Instant>>) {
        let served = self.serve(Lines::new(reader), &mut end).await;
        // First of all: others may wait for them.
        let holds = self.visible.leave(self.number);
        // What is granted and not answered yet is in the requests.
        drop((holds, mem::take(&mut self.requests)));
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
            tokio::select! {
                biased;
                () = &mut gone => return Ok(()),
                Ok(()) = end.changed() => {
                    deadline = *end.borrow_and_update();
                    self.end(deadline)?;
                }
                () = until(deadline), if deadline.is_some() => return Ok(()),
                written = self.unread.write(), if !self.unread.is_empty() => written?,
                Some(shown) = async { self.shown.as_mut()?.1.recv().await } => self.unread.notify("shown", &json!(shown))?,
                Some(()) = async { self.changes.as_mut()?.changed().await.ok() } => self.settle(|_| true),
                () = self.bell.0.notified() => self.look()?,
                () = &mut look, if self.first.is_some() => {
                    self.look_at_first()?;
                    look.as_mut().reset(Instant::now() + LOOK);
                }
                Some((asked, done)) = self.requests.next(), if !self.requests.is_empty() => self.finish(asked, done)?,
                read = lines.next() => match read {
                    Read::Line(line) => {
                        if self.line(line)? {
                            let_others_run().await;
                        }
                    }
                    Read::TooLong => {
                        let why = format!("a line has at most {LINE} bytes");
                        return self.unread.answer(&Value::Null, &Err(ErrorReply::new(NOT_A_REQUEST, why)));
                    }
                    Read::End => return Ok(()),
                },
            }
            if let Some((_, ends)) = self.first.filter(|(_, ends)| *ends < look.deadline()) {
                look.as_mut().reset(ends);
            }
            if deadline.is_some() && self.requests.is_empty() && self.visible.holds().is_empty() {
                return Ok(());
            }
        }
    }

    /// The server will be stopped then.
    fn end(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let Some(deadline) = deadline.filter(|_| !replace(&mut self.is_ending, true)) else { return Ok(()) };
        for request in self.requests.iter_mut().filter(|request| request.asked.wanted.is_some()) {
            request.end(Err(ErrorReply::ending()));
        }
        self.unread.notify("ending", &json!({ "grace": seconds(deadline.saturating_duration_since(Instant::now())) }))
    }

    /// Looks at all holds if one may have ended.
    fn look_at_first(&mut self) -> io::Result<()> {
        let Some((number, ends)) = self.first else { return Ok(()) };
        let is_held = self.visible.holds().get(&number).is_some_and(|hold| !hold.left().is_zero());
        if is_held && Instant::now() < ends { Ok(()) } else { self.look() }
    }

    /// Tells what is lost.
    fn look(&mut self) -> io::Result<()> {
        let mut lost = Vec::new();
        self.first = None;
        let visible = Arc::clone(&self.visible);
        for (number, hold) in visible.holds().iter_mut().filter(|(_, hold)| hold.lost.is_none()) {
            let left = hold.left();
            if left.is_zero() {
                lost.extend(hold.tell_loss(*number));
            } else {
                self.ends_within(*number, left);
            }
        }
        lost.iter().try_for_each(|params| self.unread.notify("lost", params))
    }

    fn ends_within(&mut self, number: u64, left: Duration) {
        if left < Duration::MAX {
            let ends = Instant::now() + left;
            self.first = self.first.filter(|(_, first)| *first <= ends).or(Some((number, ends)));
        }
    }

    /// Whether others may have got what it has released: they are answered first.
    fn line(&mut self, line: &[u8]) -> io::Result<bool> {
        let message = match Message::parse(line) {
            Ok(message) => message,
            Err((id, refusal)) => return self.unread.answer(&id, &Err(refusal)).map(|()| false),
        };
        let is_release = message.method == "release";
        match message.id.clone() {
            None if message.method == "cancel" => match message.params().map(|Cancel { id }| id) {
                Ok(id) => self.cancel(None, &id),
                Err(_) => Ok(()),
            },
            None => Ok(()),
            Some(id) if self.requests.iter().any(|request| request.asked.id == id) => {
                let why = "a request with this id is not answered yet";
                self.unread.answer(&id, &Err(ErrorReply::new(NOT_A_REQUEST, why)))
            }
            Some(id) => match self.request(&id, message) {
                Ok(None) => Ok(()),
                Ok(Some(result)) => self.unread.answer(&id, &Ok(result)),
                Err(refusal) => self.unread.answer(&id, &Err(refusal)),
            },
        }?;
        Ok(is_release)
    }

    /// `None` if the answer comes later, or is written.
    fn request(&mut self, id: &Id, message: Message<'_>) -> Result<Option<Value>, ErrorReply> {
        let ttl = self.server.ttl;
        if message.method == "hello" {
            return self.hello(&message.params()?).map(Some);
        }
        if self.visible.process.is_some() {
            return self.request_of_keeper(id, message.typed()?);
        }
        if self.visible.client.get().is_none() {
            return Err(ErrorReply::new(NOT_A_REQUEST, "the first request of a session is hello"));
        }
        match &*message.method {
            "lock" => self.claim(id, Wanted::of_lock(message.params()?, ttl)?),
            "elect" => self.claim(id, Wanted::of_election(message.params()?, ttl)?),
            "once" => self.claim(id, Wanted::of_once(message.params()?, ttl)?),
            "release" => {
                let release: Release = message.params()?;
                let hold = take(&mut self.visible.holds(), &release)?;
                self.start(id, None, async move { Done::Answered(hold.release(release).await) })
            }
            "remaining" => {
                let Remaining { hold } = message.params()?;
                let holds = self.visible.holds();
                let left = holds.get(&hold).ok_or_else(|| unknown(hold))?.remaining()?;
                Ok(Some(json!({ "remaining": seconds(left) })))
            }
            "cancel" => {
                let Cancel { id: other } = message.params()?;
                // A client that does not read its answers is noticed with the next one.
                let _ = self.cancel(Some(id.clone()), &other);
                Ok(None)
            }
            "status" => {
                self.check_room()?;
                let (server, Status { key }) = (Arc::clone(&self.server), message.params()?);
                self.start(id, None, async move { Done::Answered(server.status(&key).await) })
            }
            "list" => {
                self.check_room()?;
                let (server, List { prefix }) = (Arc::clone(&self.server), message.params()?);
                self.start(id, None, async move { Done::Answered(server.list(&prefix).await) })
            }
            method => Err(ErrorReply::no_method(method)),
        }
    }

    fn request_of_keeper(&mut self, id: &Id, ask: Ask) -> Result<Option<Value>, ErrorReply> {
        let visible = Arc::clone(&self.visible);
        let endings = |holds: Vec<Hold>| holds.into_iter().map(|mut hold| Ending::of(&mut hold)).collect();
        let endings: Vec<_> = match ask {
            Ask::Acquire(wanted) => {
                visible.process.as_ref().map_or(Ok(()), |process| process.check_options(&wanted))?;
                return self.claim(id, *wanted);
            }
            Ask::Holds => return Ok(Some(json!(visible.kept()))),
            Ask::Keep => {
                visible.keep(self.number);
                return Ok(Some(json!({})));
            }
            Ask::GiveBack => endings(visible.leave(self.number)),
            Ask::Break { holder, by, .. } => visible.lose_to(&by, |hold| hold.has(holder)),
            Ask::Release { key, holder } => endings(visible.take(|hold| hold.is_by(&key, holder))),
            Ask::ReleaseAll { owner, tree } => endings(visible.take(|hold| {
                hold.wanted.owner.as_ref() == Some(&owner) && (tree.is_none() || hold.wanted.plan.tree == tree)
            })),
        };
        self.start(id, None, async move { Done::Answered(Ok(json!(release(endings).await))) })
    }

    fn hello(&self, hello: &Hello) -> Result<Value, ErrorReply> {
        if hello.protocol != PROTOCOL {
            let why = format!("protocol {} is not spoken here, but {PROTOCOL}", hello.protocol);
            return Err(ErrorReply::of(Exit::Usage, why).with("protocols", vec![PROTOCOL]));
        }
        let _ = self.visible.client.set(label(&plain(&hello.client)));
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
            return Ok(Some(self.keep(id, &wanted.into(), Vec::new(), (None, None))));
        }
        self.check_room()?;
        let waiting = self.requests.iter().filter(|request| request.asked.wanted.is_some()).count();
        if self.visible.holds().len() + waiting >= HOLDS {
            return Err(ErrorReply::limit("holds", HOLDS));
        }
        let (server, wanted) = (Arc::clone(&self.server), Arc::new(wanted));
        let (asked, shows) = (Arc::clone(&wanted), self.shown.as_ref().map(|(shows, _)| shows.clone()));
        let claim = async move { Done::Claimed(Box::new(asked.claim(&server.client, shows).await)) };
        self.start(id, Some(wanted), claim)
    }

    /// A release always finds room: there are at most as many as holds.
    fn check_room(&self) -> Result<(), ErrorReply> {
        if self.requests.len() < REQUESTS { Ok(()) } else { Err(ErrorReply::limit("requests", REQUESTS)) }
    }

    fn start(
        &mut self,
        id: &Id,
        wanted: Option<Arc<Wanted>>,
        work: impl Future<Output = Done> + Send + 'static,
    ) -> Result<Option<Value>, ErrorReply> {
        let mut work = Box::pin(work);
        // Without a request to the backend, it is done at once.
        if let Some(done) = work.as_mut().now_or_never() {
            return self.result(id, wanted, done).map(Some);
        }
        let asked = Asked { id: id.clone(), wanted, cancels: Vec::new() };
        self.requests.push(Request { asked, work, ended: None, waker: Waker::noop().clone() });
        Ok(None)
    }

    /// # Errors
    /// The client does not read.
    fn finish(&mut self, asked: Asked, done: Done) -> io::Result<()> {
        let Asked { id, wanted, cancels } = asked;
        let answer = self.result(&id, wanted, done);
        self.unread.answer(&id, &answer)?;
        self.answer_cancels(&cancels, &answer.unwrap_or_else(|_| json!({})))
    }

    fn result(&mut self, id: &Id, wanted: Option<Arc<Wanted>>, done: Done) -> Result<Value, ErrorReply> {
        match (done, wanted) {
            (Done::Answered(answer), _) => answer,
            (Done::Claimed(claimed), Some(wanted)) => claimed.and_then(|granted| self.hold(id, &wanted, granted)),
            (Done::Claimed(_), None) => Ok(Value::Null),
        }
    }

    /// The result of a request.
    fn hold(&mut self, id: &Id, wanted: &Arc<Wanted>, claimed: Claimed) -> Result<Value, ErrorReply> {
        let (guards, rest) = match claimed {
            Claimed::Held { guards, once, slot } => (guards, (once, slot)),
            Claimed::AlreadyDone(done) => return Ok(already(&done)),
        };
        // Another request of this owner was faster.
        if let Some(result) = self.visible.own(wanted, self.number)? {
            return Ok(result);
        }
        let granted = guards.into_guards().into_iter().map(Arc::new).collect();
        Ok(self.keep(id, wanted, granted, rest))
    }

    /// Makes a hold of what was granted, and of what its owner has.
    fn keep(&mut self, id: &Id, wanted: &Arc<Wanted>, mut granted: Vec<Arc<Guard>>, rest: Rest) -> Value {
        let mut wanted = Arc::clone(wanted);
        if !wanted.has.is_empty() {
            granted.append(&mut Arc::make_mut(&mut wanted).has);
            granted.sort_by(|one, other| one.key().cmp(other.key()));
        }
        let guards = Guards::new(granted);
        let number = self.visible.last.fetch_add(1, Ordering::Relaxed) + 1;
        let bell = Waker::from(Arc::clone(&self.bell));
        let watch = if wanted.asked.is_some() {
            let watch = tokio::spawn(watch(Arc::clone(&self.visible), number, guards.held(), wanted.plan.rules));
            Watch::Keeper(Box::new(Keeping::new(&guards, &wanted.plan, self.number, watch.abort_handle())))
        } else {
            Watch::Session(&bell)
        };
        let hold = Hold::new(Arc::clone(&wanted), id.clone(), guards, rest, watch);
        if wanted.asked.is_none() {
            self.ends_within(number, hold.left());
        }
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
            let wanted = request.asked.wanted.as_ref().filter(|wanted| is_meant(wanted));
            let overtaken = |wanted| Process::overtaken(&visible.holds(), wanted).map(Err);
            let own = |wanted| visible.own(wanted, number).transpose().or_else(|| overtaken(wanted));
            if let Some(answer) = wanted.and_then(|wanted| own(wanted)) {
                request.end(answer);
            }
        }
    }

    /// Ends a request for a lock, unless it is granted already.
    fn cancel(&mut self, by: Option<Id>, id: &Id) -> io::Result<()> {
        let mut requests = self.requests.iter_mut();
        let waiting = requests.find(|request| request.asked.wanted.is_some() && request.asked.id == *id);
        if let Some(request) = waiting {
            request.asked.cancels.push(by);
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

    fn answer_cancels(&mut self, cancels: &[Option<Id>], result: &Value) -> io::Result<()> {
        cancels.iter().flatten().try_for_each(|id| self.unread.answer(id, &Ok(result.clone())))
    }
}

fn take(holds: &mut Holds, release: &Release) -> Result<Hold, ErrorReply> {
    let hold = holds.get(&release.hold).ok_or_else(|| unknown(release.hold))?;
    if release.done.is_some() && !hold.is_run() {
        return Err(ErrorReply::of(Exit::Usage, "release: done is for a hold of once"));
    }
    holds.remove(&release.hold).ok_or_else(|| unknown(release.hold))
}

fn unknown(hold: u64) -> ErrorReply {
    ErrorReply::of(Exit::Usage, format!("{hold} is no hold of this session, or it was released"))
}

/// Once each.
async fn let_others_run() {
    let mut is_first = true;
    poll_fn(|cx| {
        if !replace(&mut is_first, false) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        sleep_until(deadline).await;
    }
}

#[cfg(test)]
mod tests;
