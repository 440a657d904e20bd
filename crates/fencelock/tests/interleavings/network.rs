//! A network between the client and locks in memory on which nothing moves until the explorer moves it.

use crate::scenarios::Mutant;
use crate::user::TTL;
use fencelock::backends::{Memory, TokioClock};
use fencelock::{Backend, Capabilities, Clock, Drift, Fault, HolderId, Holding, Key, Moment, Unknown};
use fencelock_core::{Acquire, BoxFuture, ClaimReply, Event, FencingToken, Listener, Release, Renew, Reply, Request};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::{Notify, oneshot};

/// What lies on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Claim(HolderId),
    Renewal(HolderId),
    Release(HolderId),
    ClaimAnswer(HolderId),
    RenewalAnswer(HolderId),
    ReleaseAnswer(HolderId),
    Message,
}

impl What {
    /// Requests are carried out within the time that the client allows for stragglers; answers may take forever.
    pub(crate) fn is_request(self) -> bool {
        matches!(self, Self::Claim(_) | Self::Renewal(_) | Self::Release(_))
    }
}

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) memory: Arc<Memory>,
    pub(crate) clock: TokioClock,
    /// Rings when something new can be seen.
    pub(crate) activity: Notify,
    mutant: Option<Mutant>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    packets: Vec<Packet>,
    listeners: Vec<Weak<dyn Listener>>,
    relay: Option<Arc<dyn Listener>>,
    /// Until when a holder may rely on its lock, from the answers that it received.
    pub(crate) certain: HashMap<HolderId, Moment>,
    /// Whose holds a release ended at the server.
    pub(crate) freed: HashSet<HolderId>,
}

#[derive(Debug)]
struct Packet {
    what: What,
    sent: Moment,
    load: Load,
}

enum Load {
    /// A request of these holders, which is carried out when it is polled.
    Request(BoxFuture<'static, Reply>, Vec<HolderId>, oneshot::Sender<Reply>),
    /// The answer to a request that was sent at this moment.
    Answer(Reply, Moment, Vec<HolderId>, oneshot::Sender<Reply>),
    Message(Event),
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("load")
    }
}

impl Network {
    pub(crate) fn new(mutant: Option<Mutant>) -> Arc<Self> {
        let clock = TokioClock::starting_now();
        let memory = Arc::new(Memory::with_leases(Arc::new(clock)));
        let network = Arc::new(Self { memory, clock, activity: Notify::new(), mutant, state: Mutex::default() });
        let relay: Arc<dyn Listener> = Arc::new(Relay(Arc::downgrade(&network)));
        network.memory.listen(Arc::clone(&relay));
        network.state().relay = Some(relay);
        network
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// What lies on the network, oldest first.
    pub(crate) fn packets(&self) -> Vec<What> {
        self.state().packets.iter().map(|packet| packet.what).collect()
    }

    /// When the oldest request was sent.
    pub(crate) fn oldest_request(&self) -> Option<Moment> {
        self.state().packets.iter().filter(|packet| packet.what.is_request()).map(|packet| packet.sent).min()
    }

    /// Who has the key at the server.
    pub(crate) fn holding(&self) -> Option<Holding> {
        at_once(self.memory.inspect(&key())).unwrap()
    }

    /// Carries a request out, or delivers an answer or a message.
    pub(crate) fn deliver(&self, index: usize) {
        let Packet { what, sent, load } = self.state().packets.remove(index);
        match load {
            Load::Request(served, holders, to) => {
                let ignored = self.mutant == Some(Mutant::IgnoresReleases) && matches!(what, What::Release(_));
                let answer = if ignored { Release::Released.into() } else { self.lies(at_once(served)) };
                let what = match what {
                    What::Claim(holder) => What::ClaimAnswer(holder),
                    What::Renewal(holder) => What::RenewalAnswer(holder),
                    _ => {
                        if !ignored && matches!(answer, Reply::Release(Release::Released)) {
                            self.state().freed.extend(&holders);
                        }
                        What::ReleaseAnswer(holders[0])
                    }
                };
                self.push(what, Load::Answer(answer, sent, holders, to));
            }
            Load::Answer(answer, sent, holders, to) => {
                let said = answer.clone();
                if to.send(answer).is_ok() {
                    self.learn(&said, sent, &holders);
                }
            }
            Load::Message(event) => {
                let listeners: Vec<_> = self.state().listeners.iter().filter_map(Weak::upgrade).collect();
                for listener in listeners {
                    listener.event(&event);
                }
            }
        }
    }

    fn lies(&self, answer: Reply) -> Reply {
        match &answer {
            Reply::Claim(ClaimReply { answer: Ok(Acquire::Queued { hand_off, .. }), .. })
                if self.mutant == Some(Mutant::GrantsTwice) =>
            {
                Acquire::Granted { tokens: FencingToken::new(hand_off.last_fence + 1).unwrap().into() }.into()
            }
            _ => answer,
        }
    }

    /// A claim was granted, or renewals were confirmed, in time or too late to count. Nothing is known of a hold that began with a
    /// hand-off message.
    fn learn(&self, answer: &Reply, sent: Moment, holders: &[HolderId]) {
        let (now, until) = (self.now(), sent + TTL.saturating_sub(Drift::default().of(TTL)));
        let mut state = self.state();
        let certain = &mut state.certain;
        match answer {
            Reply::Claim(ClaimReply { answer: Ok(Acquire::Granted { .. }), .. }) => {
                certain.entry(holders[0]).or_insert(until);
            }
            Reply::Renew(answers) => {
                for (holder, answer) in holders.iter().zip(answers) {
                    if matches!(answer, Ok(Renew::Renewed { .. }))
                        && let Some(known) = certain.get_mut(holder).filter(|known| now < **known)
                    {
                        *known = until.max(*known);
                    }
                }
            }
            _ => {}
        }
    }

    /// Loses a packet. A lost message leaves no trace; a lost request or answer gives an unknown result.
    pub(crate) fn lose(&self, index: usize) {
        let Packet { load, .. } = self.state().packets.remove(index);
        if let Load::Request(_, _, to) | Load::Answer(_, _, _, to) = load {
            drop(to.send(Unknown::new("network", Fault::Timeout, "lost").into()));
        }
    }

    fn push(&self, what: What, load: Load) {
        let packet = Packet { what, sent: self.now(), load };
        self.state().packets.push(packet);
        self.activity.notify_one();
    }
}

pub(crate) fn key() -> Key {
    Key::new("k").unwrap()
}

/// The locks in memory answer at the first poll.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("locks in memory do not wait"),
    }
}

/// Puts the server's messages on the network.
#[derive(Debug)]
struct Relay(Weak<Network>);

impl Listener for Relay {
    fn event(&self, event: &Event) {
        if let Some(network) = self.0.upgrade() {
            network.push(What::Message, Load::Message(event.clone()));
        }
    }
}

/// Claims, renewals and releases travel. No scenario makes the other calls: they reach the server immediately.
impl Backend for Network {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn name(&self) -> String {
        self.memory.name()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.state().listeners.push(Arc::downgrade(&listener));
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        let (what, holders) = match request {
            Request::Claim(claim, _) => (What::Claim(claim.holder.id), vec![claim.holder.id]),
            Request::Renew(renewals) => {
                (What::Renewal(renewals[0].holder), renewals.iter().map(|renewal| renewal.holder).collect())
            }
            Request::Release(_, holder) => (What::Release(*holder), vec![*holder]),
            _ => return self.memory.call(request),
        };
        Box::pin(async move {
            let (to, answer) = oneshot::channel();
            let served = request.send_copy(Arc::clone(&self.memory) as Arc<dyn Backend>);
            self.push(what, Load::Request(served, holders, to));
            match answer.await {
                Ok(answer) => answer,
                // The schedule is over.
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn announces_waiters(&self, key: &Key) -> bool {
        self.memory.announces_waiters(key)
    }
}
