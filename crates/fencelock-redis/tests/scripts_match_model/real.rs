//! The real server, with a clock that is stopped between steps.

use super::sent::{Sent, write};
use super::step::Around;
use fencelock_testkit::{RedisServer, Reply, RespClient, ServerVersion, WallClock, redis_or_skip, say_skipped};

/// Reads a key and its side keys. The read deletes expired keys.
const READ_STATE: &str = "\
local kind = redis.call('TYPE', KEYS[1]).ok
return {kind, kind == 'string' and redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]),
  redis.call('GET', KEYS[2]) or '', redis.call('PTTL', KEYS[2]),
  redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), redis.call('PTTL', KEYS[3]),
  redis.call('HGETALL', KEYS[4]), redis.call('PTTL', KEYS[4]),
  redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES'), redis.call('PTTL', KEYS[5]),
  redis.call('ZRANGE', KEYS[6], 0, -1, 'WITHSCORES'), redis.call('PTTL', KEYS[6]),
  redis.call('HGETALL', KEYS[7]), redis.call('PTTL', KEYS[7]),
  redis.call('HGETALL', KEYS[8]), redis.call('PTTL', KEYS[8])}";

/// A channel that shows whether the subscriber has received everything.
const ALWAYS: &str = "always";

#[derive(Debug)]
pub(super) struct Real {
    server: RedisServer,
    clock: WallClock,
    _dir: tempfile::TempDir,
    client: RespClient,
    /// Reads the channels, as a separate user whose rights do not change.
    subscriber: RespClient,
    read_state: String,
    around: Around,
}

/// The result of a round of commands.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) replies: Vec<Reply>,
    pub(super) states: Vec<Reply>,
    /// What was published, in order: channel and message.
    pub(super) messages: Vec<(String, String)>,
    pub(super) sent_in_full: usize,
}

impl Real {
    /// `None`, after a printed line, if there is no `redis-server`, or none whose clock can be stopped.
    pub(super) fn start(now_us: u64) -> Option<Self> {
        drop(redis_or_skip()?);
        let version = ServerVersion::of_tests()?;
        if !version.uses_only_the_wall_clock() {
            say_skipped(&format!("the clock of {version} cannot be stopped"));
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let clock = WallClock::new(dir.path(), "clock").unwrap();
        clock.stop_at(now_us).unwrap();
        let subscriber = ["--user", "subscriber", "on", "nopass", "~*", "&*", "+@all"];
        // A thread that waits for a time of a stopped clock would never sleep.
        let threads = ["--jemalloc-bg-thread", "no"];
        let server = RedisServer::options()
            .wall_clock(&clock)
            .args(subscriber)
            .args(threads)
            .args(version.debug_arguments().iter().copied())
            .start()
            .unwrap();
        let (client, subscriber, read_state) = Self::connect(&server);
        let around = Around { readers: [false; 2], ..Around::CALM };
        Some(Self { server, clock, _dir: dir, client, subscriber, read_state, around })
    }

    fn connect(server: &RedisServer) -> (RespClient, RespClient, String) {
        let (mut client, mut subscriber) = (server.connect().unwrap(), server.connect().unwrap());
        assert_eq!(subscriber.command(&["AUTH", "subscriber", "x"]).text(), Some("OK"));
        subscriber.command(&["SUBSCRIBE", ALWAYS]);
        // Keys expire when they are read, not when the server runs its active expiry.
        assert_eq!(client.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).text(), Some("OK"));
        let read_state = load(&mut client);
        (client, subscriber, read_state)
    }

    /// An empty and healthy server.
    pub(super) fn begin(&mut self, now_us: u64) {
        self.become_so(&Around::CALM, now_us);
        self.must(&["FLUSHALL"]);
    }

    pub(super) fn become_so(&mut self, around: &Around, now_us: u64) {
        self.clock.stop_at(now_us).unwrap();
        if around.restarts {
            self.server.restart_empty().unwrap();
            (self.client, self.subscriber, self.read_state) = Self::connect(&self.server);
            self.around = Around { readers: [false; 2], ..Around::CALM };
        }
        if around.full != self.around.full {
            self.must(&["CONFIG", "SET", "maxmemory", if around.full { "1" } else { "0" }]);
        }
        if around.time_refused != self.around.time_refused {
            self.must(&["ACL", "SETUSER", "default", if around.time_refused { "-time" } else { "+time" }]);
        }
        if around.publish_refused != self.around.publish_refused {
            let channels = if around.publish_refused { "resetchannels" } else { "allchannels" };
            self.must(&["ACL", "SETUSER", "default", channels]);
        }
        for (number, (wanted, present)) in around.readers.into_iter().zip(self.around.readers).enumerate() {
            if wanted != present {
                let verb = if wanted { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
                let reply = self.subscriber.command(&[verb, &format!("c{number}")]);
                assert!(matches!(reply, Reply::Array(_)), "{reply:?}");
            }
        }
        if around.forgets_scripts {
            self.must(&["SCRIPT", "FLUSH"]);
            self.read_state = load(&mut self.client);
        }
        if around.flushed {
            self.must(&["FLUSHALL"]);
        }
        self.around = around.clone();
    }

    /// A command of another program, or of an operator.
    pub(super) fn command(&mut self, words: &[&str]) -> Reply {
        self.client.command(words)
    }

    fn must(&mut self, words: &[&str]) {
        assert_eq!(self.client.command(words), Reply::Simple("OK".to_owned()), "{words:?}");
    }

    /// Sends all commands at once, then reads every key. `names` has each key and its side keys.
    pub(super) fn play(&mut self, calls: &[Sent], names: &[[String; 8]]) -> Outcome {
        self.client.send_written(&calls.iter().map(Sent::first).collect::<Vec<_>>().concat()).unwrap();
        let mut replies: Vec<Reply> = calls.iter().map(|_| self.client.receive()).collect();
        let no_script = |reply: &Reply| matches!(reply, Reply::Error(why) if why.starts_with("NOSCRIPT"));
        let again: Vec<usize> = (0..calls.len()).filter(|i| no_script(&replies[*i])).collect();
        for i in &again {
            self.client.send_written(&calls[*i].in_full()).unwrap();
            replies[*i] = self.client.receive();
        }
        let mut reads = Vec::new();
        for name in names {
            let words: Vec<_> =
                ["EVALSHA", &self.read_state, "8"].into_iter().chain(name.iter().map(String::as_str)).collect();
            write(&mut reads, words.iter().map(|word| word.as_bytes()));
        }
        self.client.send_written(&reads).unwrap();
        let states = names.iter().map(|_| self.client.receive()).collect();
        Outcome { replies, states, messages: self.messages(), sent_in_full: again.len() }
    }

    /// The messages published so far: the server sends them before it replies to this command.
    fn messages(&mut self) -> Vec<(String, String)> {
        self.subscriber.send(&["PING", "enough"]).unwrap();
        let mut messages = Vec::new();
        loop {
            let Reply::Array(parts) = self.subscriber.receive() else { panic!("the subscriber received no array") };
            match parts.iter().map(|part| part.text().unwrap_or_default()).collect::<Vec<_>>()[..] {
                ["message", channel, text] => messages.push((channel.to_owned(), text.to_owned())),
                ["pong", "enough"] => return messages,
                ref other => panic!("the subscriber received {other:?}"),
            }
        }
    }
}

fn load(client: &mut RespClient) -> String {
    client.command(&["SCRIPT", "LOAD", READ_STATE]).text().unwrap().to_owned()
}
