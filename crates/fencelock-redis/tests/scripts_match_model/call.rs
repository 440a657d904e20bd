//! A command, as production sends it to the server and as the model executes it.

use super::RUN_ID;
use super::expected::Expected;
use super::quarantined_client::{QuarantinedClient, Visit, rest};
use super::replies::{
    acked, claimed, downgraded, ended, evicted, evicting, inspected, int, renewed, resized, text, version,
};
use super::sent::{Changes, Mutant, Sent};
use super::step::{Command, Token};
use crate::scripts::quarantine::{EpochCheck, Quarantine};
use crate::scripts::reply::Evicting;
use crate::scripts::script::{self, Call, Path, Requested};
use fencelock_core::{Claim, FencingToken, Holder, HolderId, Intent, Key, Mode, Owner, Ttl};
use fencelock_model::{
    self as model, Continued, Delivery, Gate, HandOff, Handshake, InitResult, KeyModel, Marker, Server, Value,
};
use fencelock_testkit::Reply;
use std::num::NonZeroU32;
use std::time::Duration;

/// The number of waiters that an inspection names: fewer than there are at times.
const NAMED: usize = 2;

impl Command {
    /// The claim that a command makes.
    fn claim(&self, proposal: u64) -> model::Claim {
        let Self::Acquire { intent, holder, owner, ttl_ms, proposed, channel, wanted, mode, .. } = self else {
            unreachable!("only this command claims")
        };
        model::Claim {
            intent: *intent,
            owner: Some((*owner).into()),
            channel: *channel,
            wanted: (*wanted).into(),
            // A quorum has no permits.
            proposed: *proposed && matches!(mode, Mode::Exclusive | Mode::Shared),
            mode: *mode,
            ..model::Claim::try_for(*holder, *ttl_ms, proposal)
        }
    }
}

impl Token {
    pub(super) fn near(self, server: &Server, key: &KeyModel) -> u64 {
        let number = match self {
            Self::NearNow(by) => server.now_us.saturating_add_signed(by),
            Self::NearFence(by) => key.fence.map_or(0, |fence| fence.token).saturating_add_signed(by),
            Self::Exactly(number) => number,
        };
        // Above 2^53, doubles cannot represent every integer.
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
    /// The client that requires a quarantine, if any.
    pub(super) quarantined_client: Option<QuarantinedClient>,
    pub(super) mutant: Option<Mutant>,
}

/// For half of the keys, clients declare all keys of the lock.
fn derives_keys(name: &str) -> bool {
    name.ends_with(['0', '3', '4', '7', '8'])
}

fn epoch_check(required: Option<&(QuarantinedClient, Quarantine)>) -> EpochCheck<'_> {
    required.map_or(EpochCheck::without_marker(RUN_ID), |(client, quarantine)| quarantine.epoch_check(client.epoch()))
}

impl Both<'_> {
    pub(super) fn run(self, command: &Command, publish: &mut impl FnMut(HandOff) -> Delivery) -> (Sent, Expected) {
        if let (Command::Visit(visit), Some(quarantined_client)) = (command, self.quarantined_client) {
            return self.visit(&quarantined_client, *visit);
        }
        let Self { name, server, key, marker, quarantined_client, mutant } = self;
        let changes = Changes { mutant, cap: server.cap };
        let required = &quarantined_client.map(|client| (client, client.quarantine(name)));
        let epoch_check = epoch_check(required.as_ref()).deriving_keys(derives_keys(name));
        let gate = required.as_ref().map_or(Gate::Open, |(client, quarantine)| client.gate(quarantine, marker, server));
        key.expire(server);
        let hand_off_ms = u64::try_from(fencelock_core::KeyTable::CLAIM_TTL.as_millis()).unwrap();
        match command {
            Command::Acquire { proposal, .. } => {
                let claim = model::Claim { hand_off_ms, ..command.claim(proposal.near(server, key)) };
                let answer = key.acquire(server, &claim, &gate, publish);
                (Sent::script(acquire(name, &claim, epoch_check), changes), claimed(answer, claim.wanted))
            }
            Command::Raise { holder, to } => {
                let to = FencingToken::new(to.near(server, key).clamp(1, FencingToken::MAX)).unwrap();
                let answer = key.raise(server, *holder, to.get(), &gate);
                let call = script::raise(name, &id(*holder), to, epoch_check);
                (Sent::script(call, changes), Expected::or_refused(answer, acked))
            }
            Command::Renew { holder, ttl_ms, assumed_ms } => {
                let answer = key.renew(server, *holder, *ttl_ms, *assumed_ms);
                let [ttl, assumed] = [*ttl_ms, *assumed_ms].map(Duration::from_millis);
                let call = script::renew(name, &id(*holder), ttl, assumed);
                (Sent::script(call, changes), Expected::or_refused(answer, renewed))
            }
            Command::Release { holder, proposal } => {
                let proposal = proposal.near(server, key);
                let answer = key.release(server, *holder, proposal, hand_off_ms, &gate, publish);
                let call = script::release(name, &id(*holder), proposal, epoch_check);
                (Sent::script(call, changes), ended(answer))
            }
            Command::Inspect => {
                let answer = Expected::or_refused(key.checked_inspect(server, NAMED, &gate), inspected);
                (Sent::script(script::inspect(name, NAMED, epoch_check), changes), answer)
            }
            Command::Evict { seen, kind, proposal } => {
                let (seen, proposal) = (value(key, seen.as_ref()), proposal.near(server, key));
                let answer = key.evict(server, (&seen, *kind), proposal, hand_off_ms, &gate, publish);
                let call = script::evict(name, seen.to_string().as_bytes(), evicting(*kind), proposal, epoch_check);
                (Sent::script(call, changes), Expected::or_refused(answer, evicted))
            }
            Command::EvictHolds { other, proposal } => {
                let (seen, proposal) = (held(key, *other), proposal.near(server, key));
                let answer = key.evict_holds(server, &seen, proposal, hand_off_ms, &gate, publish);
                let call = evict_holds(name, &seen, proposal, epoch_check);
                (Sent::script(call, changes), Expected::or_refused(answer, evicted))
            }
            Command::Downgrade { holder, ttl_ms, proposal, proposed } => {
                let claim = model::Claim::try_for(*holder, *ttl_ms, proposal.near(server, key));
                let claim = model::Claim { hand_off_ms, proposed: *proposed, ..claim };
                let answer = key.downgrade(server, &claim, &gate, publish);
                let call = downgrade(name, &claim, epoch_check);
                (Sent::script(call, changes), Expected::or_refused(answer, downgraded))
            }
            Command::Resize { limit, continued, proposal } => {
                let proposal = proposal.near(server, key);
                let answer = key.resize(server, *limit, *continued, proposal, hand_off_ms, &gate, publish);
                let call = resize(name, *limit, *continued, proposal, epoch_check);
                (Sent::script(call, changes), Expected::or_refused(answer, resized))
            }
            Command::DeleteMarker => delete_marker(name, marker),
            Command::MarkerVersion(version) => marker_version(name, marker, version),
            Command::Visit(_) => unreachable!("only quarantined clients visit"),
            Command::Foreign(foreign) => foreign.run(name, server, key),
        }
    }

    fn visit(self, quarantined_client: &QuarantinedClient, visit: Visit) -> (Sent, Expected) {
        let Both { name, server, marker, mutant, .. } = self;
        let changes = Changes { mutant, cap: server.cap };
        let quarantine = quarantined_client.quarantine(name);
        let visitor = quarantined_client.visitor(&quarantine);
        match visit {
            Visit::Handshake => {
                let answer = marker.handshake(server, &visitor);
                (
                    Sent::script(script::handshake(&quarantine, quarantined_client.epoch()), changes),
                    Expected::or_refused(answer, |answer| match answer {
                        Ok(Handshake { rest_ms, quorum, nodes }) => {
                            Reply::Array(vec![rest(rest_ms), text(&quorum), text(&nodes)])
                        }
                        Err(later) => version(&later),
                    }),
                )
            }
            Visit::Init { joins } => {
                let answer = marker.init(server, &visitor, joins);
                let word = |found| match found {
                    InitResult::New => "new",
                    InitResult::Changed => "changed",
                    InitResult::Unchanged => "unchanged",
                };
                (
                    Sent::script(
                        script::init(&quarantine, quarantined_client.epoch(), quarantined_client.trust(), joins),
                        changes,
                    ),
                    Expected::or_refused(answer, |answer| match answer {
                        Ok((found, rest_ms)) => Reply::Array(vec![text(word(found)), rest(rest_ms)]),
                        Err(later) => version(&later),
                    }),
                )
            }
        }
    }
}

/// What an eviction expects: this value, or the stored one.
fn value(key: &KeyModel, seen: Option<&Value>) -> Value {
    let there = key.lock.as_ref().map(|lock| &lock.value);
    seen.or(there).cloned().unwrap_or(Value::Foreign("".into()))
}

/// Two of the existing holds, or the same with another token.
fn held(key: &KeyModel, other: bool) -> Vec<(u128, u64)> {
    key.held.entries.iter().take(2).map(|(id, entry)| (*id, entry.token + u64::from(other))).collect()
}

fn evict_holds(name: &str, seen: &[(u128, u64)], proposal: u64, epoch_check: EpochCheck<'_>) -> Call {
    let words: Vec<_> = seen.iter().map(|(id, token)| format!("{id:032x} {token}")).collect();
    script::evict(name, words.join(" ").as_bytes(), Evicting::Holds, proposal, epoch_check)
}

fn resize(name: &str, limit: u32, done: Option<Continued>, proposal: u64, epoch_check: EpochCheck<'_>) -> Call {
    let done = done.map(|Continued { before, ticket }| (before, ticket.to_string()));
    let done = done.as_ref().map(|(before, ticket)| (*before, ticket.as_str()));
    script::resize(name, limit, done, proposal, epoch_check)
}

fn delete_marker(name: &str, marker: &mut Marker) -> (Sent, Expected) {
    let there = marker.written.take().is_some();
    let words = ["DEL", &Quarantine::alone(name, Ttl::default(), false).marker];
    (Sent::plain(&words), Expected::Reply(int(u64::from(there))))
}

/// A client of another version has written the marker, if there is one.
fn marker_version(name: &str, marker: &mut Marker, version: &str) -> (Sent, Expected) {
    // HDEL may write when the memory is full, and then HSET may too.
    const SET: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end redis.call('HDEL', KEYS[1], 'version') \
        redis.call('HSET', KEYS[1], 'version', ARGV[1]) return 1";
    let done = marker.foreign_version(version);
    let key = Quarantine::alone(name, Ttl::default(), false).marker;
    let words = ["EVAL", SET, "1", &key, version];
    (Sent::plain(&words), Expected::Reply(int(u64::from(done == model::Done::Yes))))
}

fn acquire(name: &str, claim: &model::Claim, epoch_check: EpochCheck<'_>) -> Call {
    let holder = Holder { id: id(claim.holder), owner: Owner::from_text(claim.owner.as_deref().unwrap_or_default()) };
    let intent = match claim.intent {
        model::Intent::Try => Intent::Try,
        model::Intent::Enqueue => Intent::Enqueue,
        model::Intent::Poll => Intent::Poll,
    };
    let ttl = Ttl::new(Duration::from_millis(claim.ttl_ms)).unwrap();
    let channel = claim.channel.map(|channel| format!("c{}", channel.0));
    let wanted = u32::try_from(claim.wanted).ok().and_then(NonZeroU32::new).unwrap();
    let request = Claim::new(Key::new(name).unwrap(), holder, ttl, intent).with_block(wanted);
    let request = request.with_mode(claim.mode);
    script::acquire(name, &request, Path::Fast, requested(claim), channel.as_deref(), epoch_check)
}

fn downgrade(name: &str, claim: &model::Claim, epoch_check: EpochCheck<'_>) -> Call {
    let ttl = Duration::from_millis(claim.ttl_ms);
    script::downgrade(name, &id(claim.holder), ttl, requested(claim), epoch_check)
}

const fn requested(claim: &model::Claim) -> Requested {
    if claim.proposed { Requested::Proposed(claim.proposal) } else { Requested::Own(claim.proposal) }
}
