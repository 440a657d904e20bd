//! Two servers, three sentinels and two clients. A failover promotes the other server in a new epoch; each sentinel learns of it at
//! a time of its own, and the old master continues until it is demoted.
//!
//! Times are ages and rests, so that the states are finitely many without an end of time.

use fencelock_core::{Drift, MasterLease, Moment, NamedMaster, master_by_majority, named_masters};
use std::time::Duration;

const SENTINELS: usize = 3;

/// The number of a server, and the epoch in which it is the master.
type Named = NamedMaster<u8>;

/// What the production code does, or the same without one of its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Production,
    /// The server with most votes, even without a majority.
    AnyVotes,
    /// An answer of a master counts, whenever the sentinels were queried.
    NoWindow,
    /// The window begins with the last answer of a sentinel, not with the question.
    FromTheAnswer,
    /// A quarantine lasts for the longest TTL, without the window.
    ShortQuarantine,
    /// A new master renews every lease that it knows.
    RenewsAll,
    /// The marker names the server without its replication id.
    NoReplicationId,
    /// The marker names the server without the epoch in which it is the master.
    NoEpoch,
    /// A new master grants at once.
    NoQuarantine,
}

#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) rule: Rule,
    pub(crate) ttl: u8,
    pub(crate) window: u8,
    pub(crate) failovers: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Server {
    is_master: bool,
    /// Its replication id: it changes when the server becomes a master.
    term: u8,
    /// The server, its replication id and the epoch that promised to remember, and how much longer it grants nothing.
    marker: (u8, u8, u64),
    quarantine: u8,
    /// The holder, and the rest of its lease.
    hold: Option<(u8, u8)>,
}

/// A connection to a master.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Session {
    master: Named,
    /// The replication id of the server when the connection was opened.
    term: u8,
    /// The age of the question that last confirmed the master.
    age: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Client {
    /// The age of a question, and its answers.
    querying: Option<(u8, [Option<Named>; SENTINELS])>,
    session: Option<Session>,
    /// How much longer it believes that it holds the lock.
    trusts: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct World {
    servers: [Server; 2],
    sentinels: [Named; SENTINELS],
    latest: Named,
    clients: [Client; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Tick,
    Failover,
    /// A sentinel adopts the latest configuration.
    Learn(u8),
    /// A sentinel demotes the replaced master, and closes the connections of its clients.
    Demote,
    /// The replica copies what the master has.
    Replicate,
    Query(u8),
    Receive(u8, u8),
    Claim(u8),
    Renew(u8),
}

impl World {
    pub(crate) fn new() -> Self {
        let first = NamedMaster::new(0, 0);
        let server = |is_master| Server { is_master, term: 0, marker: (0, 0, 0), quarantine: 0, hold: None };
        Self {
            servers: [server(true), server(false)],
            sentinels: [first.clone(), first.clone(), first.clone()],
            latest: first,
            clients: [Client::default(), Client::default()],
        }
    }

    /// Whether both clients believe that they hold the lock.
    pub(crate) fn is_broken(&self) -> bool {
        self.clients.iter().all(|client| client.trusts > 0)
    }

    /// The landmarks: a grant of each epoch, a grant of a replaced master, a refusal in quarantine, and a return to the first server.
    pub(crate) const GRANTED: u32 = 1;
    pub(crate) const GRANTED_LATER: u32 = 2;
    pub(crate) const GRANTED_BY_REPLACED: u32 = 4;
    pub(crate) const QUARANTINED: u32 = 8;
    pub(crate) const RETURNED: u32 = 16;
    pub(crate) const DOES_NOT_COUNT: u32 = 32;
    pub(crate) const CARRIED: u32 = 64;
    pub(crate) const NOT_CARRIED: u32 = 128;

    pub(crate) fn acts(&self, setting: &Setting, into: &mut Vec<Act>) {
        into.push(Act::Tick);
        let replaced = 1 - self.latest.address;
        if self.latest.config_epoch < u64::from(setting.failovers) && !self.servers[usize::from(replaced)].is_master {
            into.push(Act::Failover);
        }
        into.extend((0..SENTINELS).filter(|k| self.sentinels[*k] != self.latest).map(|k| Act::Learn(number(k))));
        if self.servers[usize::from(replaced)].is_master {
            into.push(Act::Demote);
        } else if self.servers[usize::from(replaced)] != self.copy_of_master() {
            into.push(Act::Replicate);
        }
        for (i, client) in self.clients.iter().enumerate() {
            let i = number(i);
            match &client.querying {
                None => into.push(Act::Query(i)),
                Some((_, replies)) => {
                    into.extend((0..SENTINELS).filter(|k| replies[*k].is_none()).map(|k| Act::Receive(i, number(k))));
                }
            }
            if client.session.is_some() {
                into.push(if client.trusts > 0 { Act::Renew(i) } else { Act::Claim(i) });
            }
        }
    }

    fn copy_of_master(&self) -> Server {
        let term = self.servers[usize::from(1 - self.latest.address)].term;
        Server { is_master: false, term, ..self.servers[usize::from(self.latest.address)] }
    }

    pub(crate) fn step(&self, act: Act, setting: &Setting) -> (Self, u32) {
        let mut after = self.clone();
        let landmarks = after.act(act, setting);
        after.sort_sentinels();
        let mut twin = after.with_clients_swapped();
        twin.sort_sentinels();
        (after.min(twin), landmarks)
    }

    /// The same with the names of the clients exchanged, which makes no difference either.
    fn with_clients_swapped(&self) -> Self {
        let mut twin = self.clone();
        twin.clients.swap(0, 1);
        for server in &mut twin.servers {
            server.hold = server.hold.map(|(holder, rest)| (1 - holder, rest));
        }
        twin
    }

    /// Sentinels have no names, so their order makes no difference.
    fn sort_sentinels(&mut self) {
        let replies = |client: &Client, k: usize| client.querying.as_ref().and_then(|(_, replies)| replies[k].clone());
        let mut rows: Vec<_> = (0..SENTINELS)
            .map(|k| (self.sentinels[k].clone(), replies(&self.clients[0], k), replies(&self.clients[1], k)))
            .collect();
        let epoch = |named: &Option<Named>| named.as_ref().map(|named| named.config_epoch);
        rows.sort_by_key(|(view, one, other)| (view.config_epoch, epoch(one), epoch(other)));
        for (k, (view, one, other)) in rows.into_iter().enumerate() {
            self.sentinels[k] = view;
            for (client, answer) in self.clients.iter_mut().zip([one, other]) {
                if let Some((_, replies)) = &mut client.querying {
                    replies[k] = answer;
                }
            }
        }
    }

    fn renew(&mut self, i: u8, setting: &Setting) -> u32 {
        let client = &mut self.clients[usize::from(i)];
        let Some(Session { master, term, age }) = &client.session else { return 0 };
        let server = &mut self.servers[usize::from(master.address)];
        if !server.is_master || !counts(*age, setting) || server.hold.is_none_or(|(holder, _)| holder != i) {
            return 0;
        }
        let in_quarantine = server.marker != promised(master, *term, setting) || server.quarantine > 0;
        if in_quarantine
            && setting.rule != Rule::RenewsAll
            && !window(setting).carries(span(client.trusts), Drift { ppm: 0, fixed: Duration::ZERO })
        {
            return Self::NOT_CARRIED;
        }
        server.hold = Some((i, setting.ttl));
        client.trusts = setting.ttl;
        if in_quarantine { Self::CARRIED } else { 0 }
    }

    fn demote(&mut self, server: usize) {
        self.servers[server].is_master = false;
        for client in &mut self.clients {
            client.session.take_if(|session| usize::from(session.master.address) == server);
        }
    }

    fn tick(&mut self, window: u8) {
        for server in &mut self.servers {
            server.quarantine = server.quarantine.saturating_sub(1);
            server.hold = server.hold.map(|(holder, rest)| (holder, rest - 1)).filter(|(_, rest)| *rest > 0);
        }
        // Beyond this age a question proves nothing.
        let older = |age: u8| (age + 1).min(window);
        for client in &mut self.clients {
            client.trusts = client.trusts.saturating_sub(1);
            if let Some(session) = &mut client.session {
                session.age = older(session.age);
            }
            client.querying = client.querying.take().map(|(age, replies)| (older(age), replies));
        }
    }

    fn act(&mut self, act: Act, setting: &Setting) -> u32 {
        let replaced = usize::from(1 - self.latest.address);
        match act {
            Act::Tick => self.tick(setting.window),
            Act::Failover => {
                (self.servers[replaced].is_master, self.servers[replaced].term) =
                    (true, self.servers[replaced].term + 1);
                let config_epoch = self.latest.config_epoch + 1;
                self.latest = NamedMaster::new(1 - self.latest.address, config_epoch);
                return if config_epoch > 1 { Self::RETURNED } else { 0 };
            }
            Act::Learn(k) => self.sentinels[usize::from(k)] = self.latest.clone(),
            Act::Demote => self.demote(replaced),
            Act::Replicate => self.servers[replaced] = self.copy_of_master(),
            Act::Query(i) => self.clients[usize::from(i)].querying = Some((0, Default::default())),
            Act::Receive(i, k) => self.receive(usize::from(i), usize::from(k), setting),
            Act::Claim(i) => return self.claim(i, setting),
            Act::Renew(i) => return self.renew(i, setting),
        }
        0
    }

    fn receive(&mut self, i: usize, k: usize, setting: &Setting) {
        let client = &mut self.clients[i];
        let Some((age, replies)) = &mut client.querying else { return };
        replies[k] = Some(self.sentinels[k].clone());
        let master = match setting.rule {
            Rule::AnyVotes => named_masters(replies).first().copied(),
            _ => master_by_majority(replies),
        };
        if let Some(master) = master {
            let age = if setting.rule == Rule::FromTheAnswer { 0 } else { *age };
            let server = self.servers[usize::from(master.address)];
            let open = client.session.as_ref().filter(|session| session.master == *master).map(|session| session.term);
            // A server that reports another role than master is not used.
            let term = open.or(server.is_master.then_some(server.term));
            client.session = term.map(|term| Session { master: master.clone(), term, age });
            client.querying = None;
        } else if replies.iter().all(Option::is_some) {
            client.querying = None;
        }
    }

    fn claim(&mut self, i: u8, setting: &Setting) -> u32 {
        let client = &mut self.clients[usize::from(i)];
        let Some(Session { master, term, age }) = &client.session else { return 0 };
        if !counts(*age, setting) {
            return Self::DOES_NOT_COUNT;
        }
        let server = &mut self.servers[usize::from(master.address)];
        if !server.is_master {
            return 0;
        }
        let promised = promised(master, *term, setting);
        if server.marker != promised {
            // Only a client that knows the present server begins a quarantine.
            if server.term != *term && setting.rule != Rule::NoReplicationId {
                client.session = None;
                return 0;
            }
            server.marker = promised;
            server.quarantine = match setting.rule {
                Rule::NoQuarantine => 0,
                Rule::ShortQuarantine => setting.ttl,
                _ => setting.ttl + setting.window,
            };
        }
        if server.quarantine > 0 {
            return Self::QUARANTINED;
        }
        if server.hold.is_some_and(|(holder, _)| holder != i) {
            return 0;
        }
        server.hold = Some((i, setting.ttl));
        client.trusts = setting.ttl;
        match *master == self.latest {
            false => Self::GRANTED_BY_REPLACED,
            true if master.config_epoch > 0 => Self::GRANTED_LATER,
            true => Self::GRANTED,
        }
    }
}

/// What the marker says in this epoch.
fn promised(master: &Named, term: u8, setting: &Setting) -> (u8, u8, u64) {
    match setting.rule {
        Rule::NoReplicationId => (master.address, 0, master.config_epoch),
        Rule::NoEpoch => (master.address, term, 0),
        _ => (master.address, term, master.config_epoch),
    }
}

fn window(setting: &Setting) -> MasterLease {
    MasterLease::new(Moment::default(), span(setting.window))
}

fn counts(age: u8, setting: &Setting) -> bool {
    setting.rule == Rule::NoWindow || window(setting).counts(Moment::default() + span(age))
}

fn number(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

fn span(ticks: u8) -> Duration {
    Duration::from_secs(u64::from(ticks))
}

/// One line, for a trace.
impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = |named: &Named| format!("{}@{}", named.address, named.config_epoch);
        for (name, server) in ["S", "R"].iter().zip(&self.servers) {
            let Server { is_master, term, marker, quarantine, hold } = server;
            write!(
                f,
                "{name}: master {is_master}, term {term}, marker {marker:?}, quarantine {quarantine}, hold {hold:?}; "
            )?;
        }
        write!(f, "sentinels {:?}; ", self.sentinels.each_ref().map(named))?;
        for (client, number) in self.clients.iter().zip(0..) {
            let session = client.session.as_ref().map(|s| (named(&s.master), s.term, s.age));
            let querying = client
                .querying
                .as_ref()
                .map(|(age, replies)| (*age, replies.each_ref().map(|h| h.as_ref().map(named))));
            write!(f, "c{number}: {session:?}, querying {querying:?}, trusts {}; ", client.trusts)?;
        }
        Ok(())
    }
}
