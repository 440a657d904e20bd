//! What of a state can still matter.
//!
//! Two states with the same digest and the same budget lead to the same checks. So left out are: the names of requests, of
//! which only counts who waits for them; the order of packets and of other sets; answers that nobody waits for; when a user
//! arrived, and how its last hold ended, once it neither waits nor holds; what only coverage reads.

use crate::client::{Client, Ids};
use crate::network::{Load, Op, Packet, Reply};
use crate::scenario::Budget;
use crate::server::Server;
use crate::user::{GuardRelease, User};
use crate::world::{Act, World};
use fencelock_core::engine::Releases;
use fencelock_search::digest;
use std::hash::{Hash, Hasher};

/// The release of a guard, among what its user waits for.
const RELEASE: usize = 1;

/// A state without its budget.
pub(crate) fn relevant_digest(world: &World) -> u128 {
    let users: Vec<_> = (0..world.users.len()).map(|number| UserDigest::new(world, number)).collect();
    let clients: Vec<_> = world.clients.iter().map(ClientDigest::new).collect();
    let packets = sum(world.packets.iter().filter_map(|packet| packet_digest(world, packet)));
    let ledger = &world.ledger;
    let known = [set(&ledger.certain), set(&ledger.backends), set(&ledger.deleted), set(&ledger.last_claims)];
    let tokens = (ledger.last_fence, ledger.last_writer, &ledger.permit_tokens);
    digest(&(world.now, server_digest(&world.server), packets, clients, users, known, tokens))
}

fn server_digest(server: &Server) -> u128 {
    let Server { table, foreign_until, overtaken, announces_to, freed, .. } = server;
    digest(&(table, foreign_until, overtaken, set(announces_to), set(freed)))
}

/// A hash that does not depend on the order.
fn set<T: Hash>(items: &[T]) -> u128 {
    sum(items.iter().map(digest))
}

fn sum(hashes: impl Iterator<Item = u128>) -> u128 {
    hashes.fold(0, u128::wrapping_add)
}

/// Who waits for the answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Waiting {
    User(usize, usize),
    Renewal(usize),
    Background(usize),
}

fn waiting(world: &World, client: u8, op: Op) -> Option<Waiting> {
    let this = &world.clients[usize::from(client)];
    let mut users = (0..world.users.len()).filter(|user| world.scenario.users[*user].client == client);
    let of_user = |number: usize| {
        let ops = world.users[number].waits_for();
        ops.iter().position(|waits_for| *waits_for == Some(op)).map(|index| Waiting::User(number, index))
    };
    let renewal = || this.renewals.iter().position(|renewing| renewing.op == op).map(Waiting::Renewal);
    let background = || this.releasing.iter().position(|releasing| releasing.op == op).map(Waiting::Background);
    users.find_map(of_user).or_else(renewal).or_else(background)
}

fn packet_digest(world: &World, packet: &Packet) -> Option<u128> {
    let waiting = packet.op().and_then(|op| waiting(world, packet.client, op));
    let sent = waiting.map(|_| packet.sent);
    let is_useless = waiting.is_none() && matches!(packet.load, Load::Answer { .. });
    (!is_useless).then(|| digest(&(waiting, sent, packet.client, &packet.load)))
}

struct UserDigest<'a> {
    user: &'a User,
    /// How many tasks of its client arrived before and still wait.
    turn: usize,
}

impl<'a> UserDigest<'a> {
    fn new(world: &'a World, number: usize) -> Self {
        let (user, client) = (&world.users[number], world.client_of(number));
        let before = |other: &usize| world.users[*other].task.is_some() && world.users[*other].turn < user.turn;
        let others = (0..world.users.len()).filter(|other| world.client_of(*other) == client);
        Self { user, turn: if user.task.is_some() { others.filter(before).count() } else { 0 } }
    }
}

impl Hash for UserDigest<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let user = self.user;
        (user.asked, user.woken, user.detached, self.turn, &user.parked).hash(state);
        if let Some(task) = &user.task {
            (user.arrived, task).hash(state);
        }
        if user.asked && user.is_through() && user.downgrading.is_none() {
            // Another user may resume it.
            return user.holder.filter(|_| user.detached).hash(state);
        }
        (&user.guard, &user.releasing, &user.downgrading, user.checks).hash(state);
        (&user.holder, user.let_go, &user.lost, &user.ended).hash(state);
    }
}

struct ClientDigest<'a>(&'a Client);

impl<'a> ClientDigest<'a> {
    const fn new(client: &'a Client) -> Self {
        Self(client)
    }
}

impl Hash for ClientDigest<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let this = self.0;
        let Ids { holders, .. } = &this.ids;
        (&this.engine, holders, &this.timers, &this.renewals, &this.releasing).hash(state);
        let queue = &this.releases;
        (queue.abandoned().collect::<Vec<_>>(), set(&this.undelivered), this.stopped, this.open, this.claims)
            .hash(state);
        let is_used = queue.pending() > 0 || queue.due().is_some() || !this.releasing.is_empty();
        is_used.then_some::<&Releases>(&this.releases).hash(state);
    }
}

/// An act that every other one may follow, because it commutes with all of them: the reply to a release arrives at who only
/// wants to know that. It is not among the acts whose order matters as long as the reply may be lost, or time may pass before.
pub(crate) fn first_act(world: &World, acts: &[Act]) -> Option<usize> {
    let Budget { time, long, ends, lost, .. } = world.left;
    if (time, long, ends, lost) != (0, 0, 0, 0) {
        return None;
    }
    let may_be_first = |act: &Act| {
        let Act::Deliver(index) = *act else { return false };
        let packet = &world.packets[index];
        let waiting = packet.op().and_then(|op| waiting(world, packet.client, op));
        matches!(packet.load, Load::Answer { reply: Reply::Release(_), .. })
            && match waiting {
                Some(Waiting::Background(_)) => true,
                Some(Waiting::User(user, RELEASE)) => {
                    // It sends another release if its claim may arrive later.
                    let stray = |release: &GuardRelease| world.now < release.guard.stray_until;
                    let strays = world.users[user].releasing.as_ref().is_some_and(stray);
                    !world.scenario.users[user].gives_up_release && !strays
                }
                _ => false,
            }
    };
    acts.iter().position(may_be_first)
}
