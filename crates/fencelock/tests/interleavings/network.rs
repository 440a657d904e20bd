//! A network between the client and locks in memory on which nothing moves until the explorer moves it.

use crate::scenarios::Mutant;
use fencelock::backends::{Memory, TokioClock};
use fencelock::{Backend, Capabilities, Clock, Drift, Fault, HolderId, Holding, Key, Moment, Unknown};
use fencelock_core::{
    Acquire, BoxFuture, Claim, Event, FencingToken, Listener, Release, Renew, Renewal, Reply as BackendReply, Request,
};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
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

#[derive(Debug)]
enum Load {
    Claim(Claim, Reply<Result<Acquire, Unknown>>),
    Renewal(Vec<Renewal>, Reply<Vec<Result<Renew, Unknown>>>),
    Release(Key, HolderId, Reply<Result<Release, Unknown>>),
    ClaimAnswer(Claim, Moment, Result<Acquire, Unknown>, Reply<Result<Acquire, Unknown>>),
    RenewalAnswer(Vec<Renewal>, Moment, Vec<Result<Renew, Unknown>>, Reply<Vec<Result<Renew, Unknown>>>),
    ReleaseAnswer(Result<Release, Unknown>, Reply<Result<Release, Unknown>>),
    Message(Event),
}

type Reply<T> = oneshot::Sender<T>;

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
        let Packet { sent, load, .. } = self.state().packets.remove(index);
        match load {
            Load::Claim(claim, reply) => {
                let answer = self.lies(at_once(self.memory.acquire(&claim)).answer);
                let what = What::ClaimAnswer(claim.holder.id);
                self.push(what, Load::ClaimAnswer(claim, sent, answer, reply));
            }
            Load::Renewal(renewals, reply) => {
                let answers = at_once(self.memory.renew(&renewals));
                let what = What::RenewalAnswer(renewals[0].holder);
                self.push(what, Load::RenewalAnswer(renewals, sent, answers, reply));
            }
            Load::Release(key, holder, reply) => {
                let lies = self.mutant == Some(Mutant::IgnoresReleases);
                let answer = if lies { Ok(Release::Released) } else { at_once(self.memory.release(&key, &holder)) };
                if !lies && answer == Ok(Release::Released) {
                    self.state().freed.insert(holder);
                }
                self.push(What::ReleaseAnswer(holder), Load::ReleaseAnswer(answer, reply));
            }
            Load::ClaimAnswer(claim, sent, answer, reply) => {
                let granted = matches!(answer, Ok(Acquire::Granted { .. }));
                if reply.send(answer).is_ok() && granted {
                    let certain = until(sent, claim.ttl.get());
                    self.state().certain.entry(claim.holder.id).or_insert(certain);
                }
            }
            Load::RenewalAnswer(renewals, sent, answers, reply) => {
                let renewed: Vec<_> =
                    answers.iter().map(|answer| matches!(answer, Ok(Renew::Renewed { .. }))).collect();
                if reply.send(answers).is_ok() {
                    for (renewal, _) in renewals.iter().zip(renewed).filter(|(_, renewed)| *renewed) {
                        self.confirm(renewal.holder, sent, renewal.ttl.get());
                    }
                }
            }
            Load::ReleaseAnswer(answer, reply) => drop(reply.send(answer)),
            Load::Message(event) => {
                let listeners: Vec<_> = self.state().listeners.iter().filter_map(Weak::upgrade).collect();
                for listener in listeners {
                    listener.event(&event);
                }
            }
        }
    }

    fn lies(&self, answer: Result<Acquire, Unknown>) -> Result<Acquire, Unknown> {
        match answer {
            Ok(Acquire::Queued { hand_off, .. }) if self.mutant == Some(Mutant::GrantsTwice) => {
                Ok(Acquire::Granted { tokens: FencingToken::new(hand_off.last_fence + 1).unwrap().into() })
            }
            answer => answer,
        }
    }

    /// Loses a packet. A lost message leaves no trace; a lost request or answer gives an unknown result.
    pub(crate) fn lose(&self, index: usize) {
        let Packet { load, .. } = self.state().packets.remove(index);
        let lost = || Unknown::new("network", Fault::Timeout, "lost");
        match load {
            Load::Claim(_, reply) | Load::ClaimAnswer(_, _, _, reply) => drop(reply.send(Err(lost()))),
            Load::Renewal(renewals, reply) | Load::RenewalAnswer(renewals, _, _, reply) => {
                let _ = reply.send(renewals.iter().map(|_| Err(lost())).collect());
            }
            Load::Release(_, _, reply) | Load::ReleaseAnswer(_, reply) => drop(reply.send(Err(lost()))),
            Load::Message(_) => {}
        }
    }

    /// A renewal was confirmed to its holder, in time or too late to count. Nothing is known of a hold that began with a
    /// hand-off message.
    fn confirm(&self, holder: HolderId, sent: Moment, ttl: Duration) {
        let now = self.now();
        if let Some(known) = self.state().certain.get_mut(&holder).filter(|known| now < **known) {
            *known = until(sent, ttl).max(*known);
        }
    }

    fn push(&self, what: What, load: Load) {
        let packet = Packet { what, sent: self.now(), load };
        self.state().packets.push(packet);
        self.activity.notify_one();
    }

    /// Sends a request and waits for its answer. Dropping the future does not cancel the request.
    async fn send<T>(&self, what: What, load: impl FnOnce(Reply<T>) -> Load) -> T {
        let (reply, answer) = oneshot::channel();
        self.push(what, load(reply));
        match answer.await {
            Ok(answer) => answer,
            // The schedule is over.
            Err(_) => std::future::pending().await,
        }
    }
}

/// When a lease that was requested at `sent` ends for its holder.
fn until(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.saturating_sub(Drift::default().of(ttl))
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

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, BackendReply> {
        match request {
            Request::Claim(claim, _) => {
                BackendReply::of(|| self.send(What::Claim(claim.holder.id), |reply| Load::Claim(claim.clone(), reply)))
            }
            Request::Renew(renewals) => {
                let what = What::Renewal(renewals[0].holder);
                BackendReply::of(move || self.send(what, |reply| Load::Renewal(renewals.to_vec(), reply)))
            }
            Request::Release(key, holder) => BackendReply::of(|| {
                self.send(What::Release(*holder), |reply| Load::Release(key.clone(), *holder, reply))
            }),
            _ => self.memory.call(request),
        }
    }

    fn announces_waiters(&self, key: &Key) -> bool {
        self.memory.announces_waiters(key)
    }
}
