//! A command as production sends it to the server, and as the model carries it out.

use super::RUN_ID;
use super::guest::{self, Guest};
use super::real::write;
use super::step::{Command, Token};
use crate::redis::guard::{Guard, Pass};
use crate::redis::reply::Seen;
use crate::redis::script::{self, Call};
use fencelock_conformance::Reply;
use fencelock_conformance::model::{self, Acquire, Gate, HandOff, Heard, KeyModel, Marker, Server, Value};
use fencelock_core::{Claim, FencingToken, Holder, HolderId, Intent, Key, Owner, Ttl};
use redis::Arg;
use std::num::NonZeroU32;
use std::time::Duration;

/// A change of the scripts that must be noticed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mutant {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

/// What goes to the server.
#[derive(Debug)]
pub(super) struct Sent {
    first: Vec<u8>,
    script: Option<Call>,
}

impl Sent {
    pub(super) fn script(call: Call, mutant: Option<Mutant>) -> Self {
        let mut first = Vec::with_capacity(512);
        match mutant {
            None => write(&mut first, words(call.by_digest()).into_iter()),
            Some(Mutant { from, to }) => {
                let in_full = call.in_full();
                let mut words = words(&in_full);
                let source = String::from_utf8(words[1].to_vec()).unwrap().replace(from, to);
                words[1] = source.as_bytes();
                write(&mut first, words.into_iter());
            }
        }
        Self { first, script: Some(call) }
    }

    pub(super) fn plain(words: &[&str]) -> Self {
        let mut first = Vec::new();
        write(&mut first, words.iter().map(|word| word.as_bytes()));
        Self { first, script: None }
    }

    pub(super) fn first(&self) -> &Vec<u8> {
        &self.first
    }

    /// After the server said that it does not know the script.
    pub(super) fn in_full(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, words(&self.script.as_ref().expect("only scripts are unknown").in_full()).into_iter());
        out
    }
}

/// All scripts in full.
pub(super) fn sources() -> Vec<String> {
    use script::{ACQUIRE, EVICT, HANDSHAKE, INIT, INSPECT, RAISE, RELEASE, RENEW};
    let all = [&ACQUIRE, &RAISE, &RENEW, &RELEASE, &INSPECT, &EVICT, &HANDSHAKE, &INIT];
    all.iter().map(|lua| lua.source().to_owned()).collect()
}

fn words(command: &redis::Cmd) -> Vec<&[u8]> {
    let word = |arg| if let Arg::Simple(word) = arg { word } else { unreachable!("no script has a cursor") };
    command.args_iter().map(word).collect()
}

/// What the server must say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Reply(Reply),
    /// An error that has this word.
    Error(&'static str),
    /// Anything but an error.
    Success,
}

impl Expected {
    pub(super) fn allows(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Self::Error(word), Reply::Error(why)) => why.contains(word),
            (Self::Reply(expected), reply) => expected == reply,
            (Self::Success, reply) => !matches!(reply, Reply::Error(_) | Reply::NoAnswer(_)),
            (Self::Error(_), _) => false,
        }
    }

    pub(super) fn or_refused<T>(answer: Result<T, model::Refused>, reply: impl FnOnce(T) -> Reply) -> Self {
        match answer {
            Ok(answer) => Self::Reply(reply(answer)),
            Err(refused) => Self::refused(refused),
        }
    }

    pub(super) fn refused(refused: model::Refused) -> Self {
        match refused {
            model::Refused::NoMoreFences => Self::Error("the fencing token of this key has reached 2^53"),
            model::Refused::Full => Self::Error("OOM"),
            model::Refused::Time => Self::Error("can't run this command"),
        }
    }
}

fn text(text: &(impl ToString + ?Sized)) -> Reply {
    Reply::Text(text.to_string())
}

fn pttl(ttl_ms: Option<u64>) -> Reply {
    Reply::Int(ttl_ms.map_or(-1, |ttl| i64::try_from(ttl).unwrap()))
}

fn int(number: u64) -> Reply {
    Reply::Int(i64::try_from(number).unwrap())
}

fn occupied(occupied: &model::Occupied) -> [Reply; 4] {
    [text(&occupied.last_fence), pttl(occupied.ttl_ms), text(&occupied.by), text(occupied.by.kind())]
}

fn acquired(answer: Acquire) -> Reply {
    Reply::Array(match answer {
        Acquire::Granted { fence, count } => vec![text("granted"), text(&fence), int(count)],
        Acquire::Yours => vec![text("yours")],
        Acquire::Queued { ahead, occupied: by } => {
            [text("queued"), int(ahead)].into_iter().chain(occupied(&by)).collect()
        }
        Acquire::Busy(by) => [text("busy")].into_iter().chain(occupied(&by)).collect(),
        Acquire::Gone => vec![text("gone")],
        Acquire::Refused(refusal) => guest::refused(&refusal),
    })
}

fn taken(by: &Value) -> Reply {
    Reply::Array(vec![text("taken"), text(by), text(by.kind())])
}

fn released(answer: model::Release) -> Reply {
    match answer {
        model::Release::Released => Reply::Array(vec![text("released")]),
        model::Release::Absent => Reply::Array(vec![text("absent")]),
        model::Release::Taken(by) => taken(&by),
    }
}

fn renewed(answer: model::Renew) -> Reply {
    match answer {
        model::Renew::Renewed { waiters } => Reply::Array(vec![text("renewed"), int(waiters)]),
        model::Renew::Absent => Reply::Array(vec![text("absent")]),
        model::Renew::Taken(by) => taken(&by),
    }
}

fn inspected(answer: Option<model::Inspect>) -> Reply {
    let Some(seen) = answer else { return Reply::Nil };
    let fence = seen.fence.map(|fence| fence.to_string()).unwrap_or_default();
    Reply::Array(vec![text(&seen.by), text(seen.by.kind()), pttl(seen.ttl_ms), text(&fence), int(seen.waiters)])
}

impl Token {
    pub(super) fn near(self, server: &Server, key: &KeyModel) -> u64 {
        let number = match self {
            Self::NearNow(by) => server.now_us.saturating_add_signed(by),
            Self::NearFence(by) => key.fence.map_or(0, |fence| fence.token).saturating_add_signed(by),
            Self::Exactly(number) => number,
        };
        // Beyond, doubles have gaps.
        number.min(model::FENCE_MAX + 1)
    }
}

fn id(holder: u128) -> HolderId {
    HolderId::from_bytes(holder.to_be_bytes())
}

/// A key on both sides.
#[derive(Debug)]
pub(super) struct Both<'a> {
    pub(super) name: &'a str,
    pub(super) server: &'a Server,
    pub(super) key: &'a mut KeyModel,
    pub(super) marker: &'a mut Marker,
    /// Who asks for a quarantine, if anybody.
    pub(super) guest: Option<Guest>,
    pub(super) mutant: Option<Mutant>,
}

impl Both<'_> {
    pub(super) fn run(self, command: &Command, publish: &mut impl FnMut(HandOff) -> Heard) -> (Sent, Expected) {
        if let (Command::Visit(visit), Some(guest)) = (command, self.guest) {
            return guest.visit(self, *visit);
        }
        let Self { name, server, key, marker, guest, mutant } = self;
        let guard = guest.map(|guest| (guest, guest.guard(name)));
        let pass = guard.as_ref().map_or(Pass::free(RUN_ID), |(guest, guard)| guard.pass(guest.epoch()));
        let gate = guard.as_ref().map_or(Gate::Open, |(guest, guard)| guest.gate(guard, marker, server));
        key.expire(server);
        let hand_off_ms = u64::try_from(script::CLAIM_TTL.as_millis()).unwrap();
        match command {
            Command::Acquire { intent, holder, owner, ttl_ms, proposal, channel, wanted } => {
                let claim = model::Claim {
                    intent: *intent,
                    owner: Some((*owner).into()),
                    hand_off_ms,
                    channel: *channel,
                    wanted: (*wanted).into(),
                    ..model::Claim::try_for(*holder, *ttl_ms, proposal.near(server, key))
                };
                let answer = key.acquire(server, &claim, &gate, publish);
                (Sent::script(acquire(name, &claim, pass), mutant), Expected::or_refused(answer, acquired))
            }
            Command::Raise { holder, to } => {
                let to = FencingToken::new(to.near(server, key).clamp(1, FencingToken::MAX)).unwrap();
                let answer = key.raise(server, *holder, to.get(), &gate);
                let number = |answer| int(u64::from(answer == model::Raise::Acked));
                (
                    Sent::script(script::raise(name, &id(*holder), to, pass), mutant),
                    Expected::or_refused(answer, number),
                )
            }
            Command::Renew { holder, ttl_ms } => {
                let answer = key.renew(server, *holder, *ttl_ms);
                let call = script::renew(name, &id(*holder), Duration::from_millis(*ttl_ms));
                (Sent::script(call, mutant), Expected::Reply(renewed(answer)))
            }
            Command::Release { holder, proposal } => {
                let proposal = proposal.near(server, key);
                let answer = key.release(server, *holder, proposal, hand_off_ms, &gate, publish);
                let call = script::release(name, &id(*holder), proposal, pass);
                (Sent::script(call, mutant), Expected::or_refused(answer, released))
            }
            Command::Inspect => {
                let answer = key.inspect(server);
                (Sent::script(script::inspect(name), mutant), Expected::Reply(inspected(answer)))
            }
            Command::Evict { seen, proposal } => {
                let there = key.lock.as_ref().map(|lock| lock.value.clone());
                let seen = seen.clone().or(there).unwrap_or(Value::Foreign("".into()));
                let proposal = proposal.near(server, key);
                let answer = key.evict(server, &seen, proposal, hand_off_ms, &gate, publish);
                let call = script::evict(name, &Seen::of(&seen.to_string(), seen.kind()), proposal, pass);
                let number = |answer| int(u64::from(answer == model::Evict::Evicted));
                (Sent::script(call, mutant), Expected::or_refused(answer, number))
            }
            Command::DeleteMarker => {
                let there = marker.written.take().is_some();
                let words = ["DEL", &Guard::alone(name, Ttl::default(), false).marker];
                (Sent::plain(&words), Expected::Reply(int(u64::from(there))))
            }
            Command::Visit(_) => unreachable!("only guests visit"),
            Command::Foreign(foreign) => foreign.run(name, server, key),
        }
    }
}

fn acquire(name: &str, claim: &model::Claim, pass: Pass<'_>) -> Call {
    let holder = Holder { id: id(claim.holder), owner: Owner::from_text(claim.owner.as_deref().unwrap_or_default()) };
    let intent = match claim.intent {
        model::Intent::Try => Intent::Try,
        model::Intent::Enqueue => Intent::Enqueue,
        model::Intent::Poll => Intent::Poll,
    };
    let ttl = Ttl::new(Duration::from_millis(claim.ttl_ms)).unwrap();
    let channel = claim.channel.map_or("-".to_owned(), |channel| format!("c{}", channel.0));
    let wanted = u32::try_from(claim.wanted).ok().and_then(NonZeroU32::new).unwrap();
    let claim =
        Claim::new(Key::new(name).unwrap(), holder, ttl, intent).with_proposal(claim.proposal).with_block(wanted);
    script::acquire(name, &claim, 0, &channel, pass)
}
