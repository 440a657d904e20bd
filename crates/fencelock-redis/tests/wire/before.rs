//! The first client of this version: its scripts, called as it calls them.

use fencelock_testkit::{RedisServer, Reply, RespClient};

/// The key that all clients of these tests lock.
pub(crate) const KEY: &str = "k";
pub(crate) const LINE: &str = "fencelock:{k}:line";
pub(crate) const WAITERS: &str = "fencelock:{k}:waiters";
pub(crate) const ALIVE: &str = "fencelock:{k}:alive";
pub(crate) const HOLDS: &str = "fencelock:{k}:holds";
pub(crate) const HELD: &str = "fencelock:{k}:held";
pub(crate) const ONCE: &str = "fencelock:{k}:once";
pub(crate) const MARKER: &str = "fencelock:node";
const FENCE: &str = "fencelock:{k}:fence";
/// The set of nodes and the longest TTL of a single server, as it writes it.
pub(crate) const ALONE: &str = "60000 single";

const KEYS: [&str; 7] = [KEY, FENCE, LINE, WAITERS, ALIVE, HOLDS, HELD];

fn script(name: &str) -> String {
    let read = |name: &str| {
        let path = format!("{}/tests/wire/v1/{name}.lua", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let script = read(name);
    if script.contains("--@granting\n") { script.replace("--@granting\n", &read("granting")) } else { script }
}

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

impl Handed {
    /// `1 <run id> <holder id> <last token> <how many> <lease, ms>`, a tab and the key.
    fn read(text: &str) -> Option<Self> {
        let words: Vec<_> = text.splitn(6, [' ', '\t']).collect();
        let ["1", _, id, token, _, rest] = words[..] else { return None };
        let is_id = id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_ours = is_id && rest.ends_with("\tk") && !rest.contains(' ');
        Some(Self { id: id.to_owned(), token: token.parse().ok()? }).filter(|_| is_ours)
    }
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

    fn eval_with(&mut self, name: &str, keys: &[&str], arguments: &[&str]) -> Reply {
        let (script, count) = (script(name), keys.len().to_string());
        let words: Vec<&str> = ["EVAL", &script, &count].iter().chain(keys).chain(arguments).copied().collect();
        self.client.command(&words)
    }

    fn eval(&mut self, name: &str, arguments: &[&str]) -> Reply {
        let marker: &[&str] = if self.guarded { &[MARKER] } else { &[] };
        let keys = [&KEYS[..], marker].concat();
        self.eval_with(name, &keys, arguments)
    }

    /// Appends the run id and, with a quarantine, the set of nodes: a script that may grant takes both as its last arguments.
    fn pass(&mut self, name: &str, arguments: &[&str]) -> Reply {
        let run_id = self.run_id.clone();
        let more: &[&str] = if self.guarded { &[&run_id, ALONE] } else { &[&run_id] };
        self.eval(name, &[arguments, more].concat())
    }

    /// The first word of the reply, and the whole reply.
    pub(crate) fn acquire(&mut self, intent: &str) -> (String, Reply) {
        let time = self.micros();
        if intent == "poll" {
            return self.claim(intent, "own", &time);
        }
        // As it sends a claim that can be a common case.
        let (value, channel) = (format!("{} before:1", self.id), channel(&self.id));
        let packed = format!("{}\t{intent}\t{time}\t3000\t3000\t{channel}", self.packed_check());
        match self.eval("acquire", &[&value, "30000", "1", &packed]) {
            granted @ Reply::Int(_) => ("granted".to_owned(), granted),
            reply => words(reply),
        }
    }

    /// The run id and the set of nodes in one argument, as it sends them.
    fn packed_check(&self) -> String {
        format!("{}\t{}", self.run_id, if self.guarded { ALONE } else { "" })
    }

    /// A claim in another mode, or with the token that a quorum proposes.
    pub(crate) fn claim(&mut self, intent: &str, mode: &str, time: &str) -> (String, Reply) {
        let id = self.id.clone();
        let (value, channel) = (format!("{id} before:1"), channel(&id));
        let arguments = [intent, &id, &value, "30000", time, "3000", "3000", &channel, "1", mode];
        words(self.pass("acquire", &arguments))
    }

    /// The token of a claim that must be granted.
    pub(crate) fn granted(&mut self, intent: &str) -> u64 {
        token(&self.acquire(intent))
    }

    /// The same in another mode.
    pub(crate) fn granted_in(&mut self, intent: &str, mode: &str) -> u64 {
        let time = self.micros();
        self.granted_with(intent, mode, &time)
    }

    /// The same with a token that a quorum proposes.
    pub(crate) fn granted_with(&mut self, intent: &str, mode: &str, time: &str) -> u64 {
        token(&self.claim(intent, mode, time))
    }

    pub(crate) fn release(&mut self) -> String {
        let (id, time) = (self.id.clone(), self.micros());
        let packed = format!("{}\t{time}\t3000", self.packed_check());
        match self.eval("release", &[&format!("{id} "), &packed]) {
            Reply::Int(1) => "released".to_owned(),
            reply => words(reply).0,
        }
    }

    pub(crate) fn renew(&mut self) -> String {
        let id = self.id.clone();
        words(self.eval("renew", &[&id, "30000", "0"])).0
    }

    pub(crate) fn raise(&mut self, to: u64) -> Reply {
        let id = self.id.clone();
        self.pass("raise", &[&id, &to.to_string()])
    }

    /// The token of the shared hold that it has then.
    pub(crate) fn downgrade(&mut self) -> u64 {
        let (id, time) = (self.id.clone(), self.micros());
        let (word, Reply::Array(words)) = words(self.pass("downgrade", &[&id, "30000", &time, "3000", "own"])) else {
            panic!("not an array")
        };
        assert_eq!(word, "downgraded", "{words:?}");
        words[1].text().unwrap().parse().unwrap()
    }

    pub(crate) fn resize(&mut self, limit: u32) -> String {
        let time = self.micros();
        words(self.pass("resize", &[&limit.to_string(), "-", "0", &time, "3000"])).0
    }

    pub(crate) fn evict(&mut self, seen: &str) -> Reply {
        self.evict_as(seen, "ours")
    }

    pub(crate) fn evict_as(&mut self, seen: &str, kind: &str) -> Reply {
        let time = self.micros();
        self.pass("evict", &[seen, kind, &time, "3000"])
    }

    pub(crate) fn inspect(&mut self) -> Reply {
        self.pass("inspect", &[])
    }

    pub(crate) fn handshake(&mut self) -> Reply {
        let run_id = self.run_id.clone();
        self.eval_with("handshake", &[MARKER], &[&run_id, "62000", ALONE, "single", "trust"])
    }

    /// The first word of the reply.
    pub(crate) fn init(&mut self) -> String {
        let run_id = self.run_id.clone();
        words(self.eval_with("init", &[MARKER], &[&run_id, "62000", ALONE, "single", "trust", "stay"])).0
    }

    /// The completion, or "" if there is none.
    pub(crate) fn read_completion(&mut self) -> String {
        let run_id = self.run_id.clone();
        words(self.eval_with("read_completion", &[KEY, ONCE], &[&run_id])).0
    }

    pub(crate) fn write_completion(&mut self, until: u64, token: u64) -> String {
        let (id, until, token) = (self.id.clone(), until.to_string(), token.to_string());
        let text = format!("1 {until} {token} before:1");
        words(self.eval_with("write_completion", &[KEY, ONCE], &[&id, &text, &until, &token, "3600000"])).0
    }

    /// The messages on its channel so far, as it reads them: `None` for each message that it cannot read.
    pub(crate) fn received(&mut self) -> Vec<Option<Handed>> {
        self.subscriber.send(&["PING", "enough"]).unwrap();
        let mut received = Vec::new();
        loop {
            let Reply::Array(parts) = self.subscriber.receive() else { panic!("no reply on a channel") };
            match parts.iter().map(|part| part.text().unwrap_or_default()).collect::<Vec<_>>()[..] {
                ["message", _, text] => received.push(Handed::read(text)),
                ["pong", "enough"] => return received,
                ref other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn micros(&mut self) -> String {
        let Reply::Array(time) = self.client.command(&["TIME"]) else { panic!("no time") };
        let [seconds, micros] = [0, 1].map(|part| time[part].text().unwrap().parse::<u64>().unwrap());
        (seconds * 1_000_000 + micros).to_string()
    }
}

pub(crate) fn channel(id: &str) -> String {
    format!("fencelock:wake:{}", &id[16..])
}

fn token((word, reply): &(String, Reply)) -> u64 {
    assert_eq!(word, "granted", "{reply:?}");
    match reply {
        Reply::Int(last) => u64::try_from(*last).unwrap(),
        Reply::Array(words) => words[1].text().unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn words(reply: Reply) -> (String, Reply) {
    let Reply::Array(words) = &reply else { panic!("{reply:?}") };
    (words[0].text().unwrap_or_default().to_owned(), reply)
}
