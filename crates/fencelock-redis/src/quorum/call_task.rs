//! Drives the calls of `fencelock-core`: sends their requests, runs their timers, and reports replies.

use super::Quorum;
use super::node::Node;
use fencelock_core::quorum::{Call, CallAction, CallTimer, NodeReply, NodeRequest};
use fencelock_core::{BoxFuture, Clock, Fault, Unknown};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

/// The deadline of the timer when no timer is set.
const FAR: Duration = Duration::from_secs(60 * 60 * 24);

/// A call in progress. It is a task of its own, because its cleanup continues when the caller has gone.
struct CallTask<C: Call, S> {
    call: C,
    /// Sends a request to a node, and returns its reply.
    send: S,
    nodes: Arc<[Arc<Node>]>,
    clock: Arc<dyn Clock>,
    seen: Arc<AtomicU64>,
    /// The request to each node, then the raise of each node, then the timer of the call.
    waits: Vec<Wait>,
    /// The response time of the reply that is being reported.
    took: Duration,
    out: Vec<CallAction<C::Output>>,
    result: Option<oneshot::Sender<C::Output>>,
    taken: Option<oneshot::Receiver<()>>,
}

/// What the call waits for.
#[derive(Default)]
struct Wait {
    request: Option<(BoxFuture<'static, NodeReply>, Instant)>,
    timer: Option<Instant>,
}

enum Happened {
    Answered(usize, NodeReply),
    Fired(usize),
    Taken,
    Dropped,
}

/// Runs a call until its result. If this future is dropped, the call is dropped: it releases what it was granted.
pub(super) async fn run_call<C, S>(quorum: &Quorum, call: C, send: S) -> Result<C::Output, Unknown>
where
    C: Call<Output: Send + 'static> + Send + 'static,
    S: Fn(&Arc<Node>, NodeRequest) -> BoxFuture<'static, NodeReply> + Send + 'static,
{
    let (result, answer) = oneshot::channel();
    let (took, taken) = oneshot::channel();
    let mut waits = Vec::new();
    waits.resize_with(2 * quorum.nodes.len() + 1, Wait::default);
    let mut task = CallTask {
        call,
        send,
        nodes: Arc::clone(&quorum.nodes),
        clock: Arc::clone(&quorum.clock),
        seen: Arc::clone(&quorum.seen),
        waits,
        took: Duration::ZERO,
        out: Vec::new(),
        result: Some(result),
        taken: Some(taken),
    };
    // Not in the task: a release of this holder may be called, and its task may run, before the task of its claim does. It waits
    // for the claims that are registered as in flight.
    task.start();
    tokio::spawn(task.run());
    let ended = |_| Unknown::new(quorum.settings.backend.clone(), Fault::Other, "the runtime has ended");
    let answer = answer.await.map_err(ended)?;
    // If the call is over, the receiver is gone.
    let _ = took.send(());
    Ok(answer)
}

impl<C: Call, S: Fn(&Arc<Node>, NodeRequest) -> BoxFuture<'static, NodeReply>> CallTask<C, S> {
    fn start(&mut self) {
        self.call.start(self.clock.now(), &mut self.out);
        self.act();
    }

    async fn run(mut self) {
        let mut sleep = pin!(sleep(FAR));
        while !self.call.is_over() {
            let happened = poll_fn(|cx| self.poll(sleep.as_mut(), cx)).await;
            self.report(happened);
            self.act();
        }
    }

    /// The next event. Replies come before timers.
    fn poll(&mut self, mut sleep: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<Happened> {
        for (number, wait) in self.waits.iter_mut().enumerate() {
            if let Some((request, sent)) = &mut wait.request
                && let Poll::Ready(reply) = request.as_mut().poll(cx)
            {
                self.took = sent.elapsed();
                wait.request = None;
                return Poll::Ready(Happened::Answered(number, reply));
            }
        }
        if let Some(taken) = &mut self.taken
            && let Poll::Ready(taken) = Pin::new(taken).poll(cx)
        {
            self.taken = None;
            return Poll::Ready(taken.map_or(Happened::Dropped, |()| Happened::Taken));
        }
        let timers = self.waits.iter().enumerate().filter_map(|(number, wait)| Some((wait.timer?, number)));
        let Some((due, number)) = timers.min() else { return Poll::Pending };
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.poll(cx).map(|()| {
            self.waits[number].timer = None;
            Happened::Fired(number)
        })
    }

    fn report(&mut self, happened: Happened) {
        let (now, nodes) = (self.clock.now(), self.nodes.len());
        match happened {
            Happened::Answered(number, reply) => self.call.on_reply(number % nodes, reply, now, &mut self.out),
            Happened::Fired(number) => {
                let timer = match number / nodes {
                    0 => CallTimer::Node(number),
                    1 => CallTimer::Raise(number - nodes),
                    _ => CallTimer::Call,
                };
                self.call.on_timer(timer, now, &mut self.out);
            }
            Happened::Taken => self.call.on_taken(),
            Happened::Dropped => self.call.on_dropped(now, &mut self.out),
        }
    }

    fn act(&mut self) {
        let mut out = std::mem::take(&mut self.out);
        for action in out.drain(..) {
            match action {
                CallAction::Send { node, request } => {
                    let raises = matches!(request, NodeRequest::Raise(_));
                    let timer = if raises { CallTimer::Raise(node) } else { CallTimer::Node(node) };
                    let sent = (self.send)(&self.nodes[node], request);
                    self.wait(timer).request = Some((sent, Instant::now()));
                }
                CallAction::Cancel(timer) => self.wait(timer).request = None,
                CallAction::SetTimer { timer, after } => {
                    self.wait(timer).timer = after.map(|after| Instant::now() + after);
                }
                CallAction::Health { node, failure } => self.nodes[node].note(self.took, failure.as_ref()),
                CallAction::Done(result) => {
                    // If the caller has gone, the dropped receiver reports it.
                    let _ = self.result.take().map(|caller| caller.send(result));
                }
            }
        }
        self.out = out;
        self.seen.fetch_max(self.call.last_fence(), Ordering::Relaxed);
    }

    fn wait(&mut self, timer: CallTimer) -> &mut Wait {
        let nodes = self.nodes.len();
        &mut self.waits[match timer {
            CallTimer::Node(node) => node,
            CallTimer::Raise(node) => nodes + node,
            CallTimer::Call => 2 * nodes,
        }]
    }
}
