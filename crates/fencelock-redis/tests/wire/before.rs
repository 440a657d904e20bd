//! A client of version 0: its scripts, called as it calls them.

use fencelock_testkit::{RedisServer, Reply, RespClient};

/// The key that all clients of these tests lock.
pub(crate) const KEY: &str = "k";
pub(crate) const LINE: &str = "fencelock:{k}:line";
pub(crate) const WAITERS: &str = "fencelock:{k}:waiters";
pub(crate) const ALIVE: &str = "fencelock:{k}:alive";
pub(crate) const MARKER: &str = "fencelock:node";
const FENCE: &str = "fencelock:{k}:fence";
/// The set of nodes and the longest TTL of a single server, as this version and the next write it.
pub(crate) const ALONE: &str = "60000 single";

/// One waiter or holder, with a channel of its own.
pub(crate) struct Before {
    client: RespClient,
    subscriber: RespClient,
    pub(crate) id: String,
    run_id: String,
    guarded: bool,
}

/// The content of a message for this client: the new holder and the token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) id: String,
    pub(crate) token: u64,
}

impl Before {
    pub(crate) fn new(server: &RedisServer, number: u128) -> Self {
        let id = format!("{number:032x}");
        let (mut client, mut subscriber) = (server.connect().unwrap(), server.connect().unwrap());
        let info = client.command(&["INFO", "server"]);
        let run_id = info.text().unwrap().lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned();
        assert!(matches!(subscriber.command(&["SUBSCRIBE", &channel(&id)]), Reply::Array(_)));
        Self { client, subscriber, id, run_id, guarded: false }
    }

    /// A client that requires a quarantine.
    pub(crate) fn guarded(server: &RedisServer, number: u128) -> Self {
        Self { guarded: true, ..Self::new(server, number) }
    }

    fn eval(&mut self, script: &str, arguments: &[&str]) -> Reply {
        let keys = [KEY, FENCE, LINE, WAITERS, ALIVE, MARKER];
        let keys = if self.guarded { &keys[..] } else { &keys[..5] };
        let count = keys.len().to_string();
        let words: Vec<&str> = ["EVAL", script, &count].iter().chain(keys).chain(arguments).copied().collect();
        self.client.command(&words)
    }

    /// Appends the run id and, with a quarantine, the set of nodes: a script that may grant takes both as its last arguments.
    fn pass(&mut self, script: &str, arguments: &[&str]) -> Reply {
        let run_id = self.run_id.clone();
        let more: &[&str] = if self.guarded { &[&run_id, ALONE] } else { &[&run_id] };
        self.eval(script, &[arguments, more].concat())
    }

    /// The first word of the reply, and the whole reply.
    pub(crate) fn acquire(&mut self, intent: &str) -> (String, Reply) {
        let (id, time) = (self.id.clone(), self.micros());
        let (value, channel) = (format!("{id} before:1"), channel(&id));
        let arguments = [intent, &id, &value, "30000", &time, "3000", "3000", &channel, "1", "own"];
        words(self.pass(include_str!("v0/acquire.lua"), &arguments))
    }

    /// The token of a claim that must be granted.
    pub(crate) fn granted(&mut self, intent: &str) -> u64 {
        let (word, reply) = self.acquire(intent);
        let Reply::Array(words) = reply else { panic!("{reply:?}") };
        assert_eq!(word, "granted", "{words:?}");
        words[1].text().unwrap().parse().unwrap()
    }

    pub(crate) fn release(&mut self) -> String {
        let (id, time) = (self.id.clone(), self.micros());
        words(self.pass(include_str!("v0/release.lua"), &[&id, &time, "3000"])).0
    }

    pub(crate) fn renew(&mut self) -> String {
        let id = self.id.clone();
        words(self.eval(include_str!("v0/renew.lua"), &[&id, "30000", "0"])).0
    }

    pub(crate) fn raise(&mut self, to: u64) -> Reply {
        let id = self.id.clone();
        self.pass(include_str!("v0/raise.lua"), &[&id, &to.to_string()])
    }

    pub(crate) fn evict(&mut self, seen: &str) -> Reply {
        let time = self.micros();
        self.pass(include_str!("v0/evict.lua"), &[seen, "ours", &time, "3000"])
    }

    pub(crate) fn inspect(&mut self) -> Reply {
        self.pass(include_str!("v0/inspect.lua"), &[])
    }

    pub(crate) fn handshake(&mut self) -> Reply {
        let run_id = self.run_id.clone();
        let script = include_str!("v0/handshake.lua");
        self.client.command(&["EVAL", script, "1", MARKER, &run_id, "62000", ALONE, "single", "trust"])
    }

    /// The messages on its channel so far, as this version reads them: `None` for each message that it cannot read.
    pub(crate) fn received(&mut self) -> Vec<Option<Handed>> {
        self.subscriber.send(&["PING", "enough"]).unwrap();
        let mut received = Vec::new();
        loop {
            let Reply::Array(parts) = self.subscriber.receive() else { panic!("no reply on a channel") };
            match parts.iter().map(|part| part.text().unwrap_or_default()).collect::<Vec<_>>()[..] {
                ["message", _, text] => received.push(read(text)),
                ["pong", "enough"] => return received,
                ref other => panic!("{other:?}"),
            }
        }
    }

    fn micros(&mut self) -> String {
        let Reply::Array(time) = self.client.command(&["TIME"]) else { panic!("no time") };
        let [seconds, micros] = [0, 1].map(|part| time[part].text().unwrap().parse::<u64>().unwrap());
        (seconds * 1_000_000 + micros).to_string()
    }
}

pub(crate) fn channel(id: &str) -> String {
    format!("fencelock:wake:{}", &id[16..])
}

fn words(reply: Reply) -> (String, Reply) {
    let Reply::Array(words) = &reply else { panic!("{reply:?}") };
    (words[0].text().unwrap().to_owned(), reply)
}

/// `<holder id> <last token> <how many> <lease, ms> <run id> <key>`.
fn read(text: &str) -> Option<Handed> {
    let words: Vec<_> = text.splitn(6, ' ').collect();
    let [id, token, _, _, _, KEY] = words[..] else { return None };
    let is_id = id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    Some(Handed { id: id.to_owned(), token: token.parse().ok()? }).filter(|_| is_id)
}
