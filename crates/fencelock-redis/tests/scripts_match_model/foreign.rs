//! Plain commands of other programs.

use super::expected::Expected;
use super::sent::Sent;
use super::step::Foreign;
use crate::scripts::side_key::side_key;
use fencelock_model::{Done, KeyModel, Kind, OnlyIfFree, ScriptError, Server};
use fencelock_testkit::Reply;

/// How other programs release a lock.
const COMPARE_AND_DELETE: &str =
    "if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// The writes by which a client of any version enters the queue.
const JOIN: &str = "redis.call('ZADD', KEYS[1], ARGV[1], ARGV[3]) redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3]) \
    return redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])";

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn count(done: Done) -> Expected {
    Expected::Reply(Reply::Int(i64::from(done == Done::Yes)))
}

fn success(answer: Result<(), ScriptError>) -> Expected {
    answer.map_or_else(Expected::refused, |()| Expected::Success)
}

impl Foreign {
    pub(super) fn run(&self, name: &str, server: &Server, key: &mut KeyModel) -> (Sent, Expected) {
        match self {
            Self::Set { value, ttl_ms, nx } => {
                let only_if_free = if *nx { OnlyIfFree::Yes } else { OnlyIfFree::No };
                let answer = key.foreign_set(server, value.clone(), *ttl_ms, only_if_free);
                let (text, ttl) = (value.to_string(), ttl_ms.unwrap_or_default().to_string());
                let mut words = vec!["SET", name, &text];
                words.extend(ttl_ms.iter().flat_map(|_| ["PX", &ttl]));
                words.extend(nx.then_some("NX"));
                let reply = |done| Expected::Reply(if done == Done::Yes { ok() } else { Reply::Nil });
                (Sent::plain(&words), answer.map_or_else(Expected::refused, reply))
            }
            Self::Delete => (Sent::plain(&["DEL", name]), count(key.foreign_delete(server))),
            Self::CompareAndDelete(value) => {
                let done = key.foreign_compare_and_delete(server, value);
                (Sent::plain(&["EVAL", COMPARE_AND_DELETE, "1", name, &value.to_string()]), count(done))
            }
            Self::Persist => (Sent::plain(&["PERSIST", name]), count(key.foreign_persist(server))),
            Self::Put(kind) => {
                let expected = match key.foreign_put(server, *kind) {
                    Ok(Done::Yes) => Expected::Success,
                    Ok(Done::No) => Expected::Error("WRONGTYPE"),
                    Err(refused) => Expected::refused(refused),
                };
                (Sent::plain(put(*kind, name).as_slice()), expected)
            }
            Self::PutFence { token, ttl_ms } => {
                let token = token.near(server, key);
                let answer = key.put_fence(server, token, *ttl_ms);
                let (side, token, ttl) = (side_key(name, "fence"), token.to_string(), ttl_ms.to_string());
                (Sent::plain(&["SET", &side, &token, "PX", &ttl]), success(answer))
            }
            Self::PutInQueue { ticket, name: who } => {
                let answer = key.put_in_queue(server, *ticket, who.clone());
                let words = ["ZADD", &side_key(name, "line"), &ticket.to_string(), &who.text()];
                (Sent::plain(&words), success(answer))
            }
            Self::PutEntry { name: who, entry } => {
                let words = ["HSET", &side_key(name, "waiters"), &who.text(), &entry.text()];
                let sent = Sent::plain(&words);
                (sent, success(key.put_entry(server, who.clone(), entry.clone())))
            }
            Self::Join { ticket, name: who, life_ms, entry } => {
                let alive_until_ms = server.now_us / 1000 + life_ms;
                let answer = key.put_waiter(server, *ticket, who, alive_until_ms, entry.clone());
                let [line, alive, waiters] = ["line", "alive", "waiters"].map(|what| side_key(name, what));
                let (ticket, until) = (ticket.to_string(), alive_until_ms.to_string());
                let (id, text) = (who.text(), entry.text());
                (
                    Sent::plain(&["EVAL", JOIN, "3", &line, &alive, &waiters, &ticket, &until, &id, &text]),
                    success(answer),
                )
            }
            Self::DropHolds { held } => {
                let done = key.drop_holds(server, *held);
                (Sent::plain(&["DEL", &side_key(name, if *held { "held" } else { "holds" })]), count(done))
            }
            Self::DropEntry(who) => {
                key.drop_entry(server, who);
                (Sent::plain(&["HDEL", &side_key(name, "waiters"), &who.text()]), Expected::Success)
            }
        }
    }
}

fn put(kind: Kind, name: &str) -> Vec<&str> {
    match kind {
        Kind::Hash => vec!["HSET", name, "field", "value"],
        Kind::List => vec!["RPUSH", name, "element"],
        Kind::Set => vec!["SADD", name, "member"],
        Kind::Zset => vec!["ZADD", name, "1", "member"],
        Kind::Stream => vec!["XADD", name, "*", "field", "value"],
    }
}
