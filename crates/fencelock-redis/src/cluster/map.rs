//! Queries a node of a cluster for the slot map: which node serves which hash slot.

use crate::cluster::view::SlotMap;
use crate::connection::fault::{unknown, words};
use crate::hash_slot::HASH_SLOTS;
use crate::server::Redis;
use crate::url::hosts::Address;
use fencelock_core::{Fault, Unknown};
use redis::{ErrorKind, RedisError, RedisResult, Value};
use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;

/// The largest cluster, according to the Redis Cluster specification.
pub(crate) const NODES_MAX: usize = 1000;
/// Each slot is a range of its own, whose first and last slot, master and nine replicas are listed.
const WORDS_MAX: usize = 12 * HASH_SLOTS as usize;

/// The reply of one node.
#[derive(Debug)]
pub(crate) struct ClusterMap {
    pub(crate) map: SlotMap,
    /// All nodes that it lists, including those that serve no slot.
    pub(crate) nodes: BTreeSet<Address>,
    /// Whether it is connected to a majority of the masters.
    pub(crate) is_ok: bool,
}

impl ClusterMap {
    /// The number of slots that are served.
    pub(crate) fn slots(&self) -> usize {
        usize::from(HASH_SLOTS) - self.map.unassigned()
    }
}

pub(crate) async fn query(redis: &Redis) -> Result<ClusterMap, Unknown> {
    let session = redis.link.session().await?;
    let mut pipe = redis::pipe();
    pipe.cmd("CLUSTER").arg("SLOTS").cmd("CLUSTER").arg("INFO");
    let answers = session.send_all(&pipe).await;
    redis.link.check(&session);
    let mut answers = answers.map_err(|error| redis.unknown(&error))?.into_iter();
    let slots = answers.next().unwrap_or(Ok(Value::Nil)).map_err(|error| no_cluster(redis, &error))?;
    let (map, nodes) = read(slots, redis.link.target.host()).map_err(|error| unknown(redis.link.node(), &error))?;
    // A user may have the right to CLUSTER SLOTS without the right to CLUSTER INFO.
    let info: Option<String> = answers.next().and_then(Result::ok).and_then(|info| redis::from_redis_value(info).ok());
    let is_ok = info.is_none_or(|info| info.contains("cluster_state:ok"));
    Ok(ClusterMap { map, nodes, is_ok })
}

fn no_cluster(redis: &Redis, error: &RedisError) -> Unknown {
    if error.detail().is_some_and(|detail| detail.contains("cluster support disabled")) {
        let (scheme, address) = redis.link.node().split_once("://").unwrap_or(("redis", redis.link.node()));
        let why = format!("this is not a node of a Redis Cluster: use {scheme}://{address}");
        return Unknown::new(redis.link.node(), Fault::Unsupported, why);
    }
    let mut unknown = unknown(redis.link.node(), error);
    if unknown.nodes().iter().any(|node| node.fault == Fault::Denied) {
        let why = format!("{}: allow this user CLUSTER SLOTS", words(error));
        unknown = Unknown::new(redis.link.node(), Fault::Denied, why);
    }
    unknown
}

type Ranges = Vec<(RangeInclusive<u16>, Vec<Address>)>;

/// The masters and all nodes in a reply of `CLUSTER SLOTS` of the node at `host`.
fn read(answer: Value, host: &str) -> RedisResult<(SlotMap, BTreeSet<Address>)> {
    let ranges = ranges(answer, host)?;
    let nodes = ranges.iter().flat_map(|(_, nodes)| nodes.iter().cloned()).collect();
    let masters = ranges.into_iter().filter_map(|(slots, nodes)| Some((slots, nodes.into_iter().next()?)));
    Ok((SlotMap::new(masters), nodes))
}

/// The reply of `CLUSTER SLOTS`: ranges with their nodes, the master first. A node that does not know the hostname of another
/// node leaves it empty; then the host of the connection is used.
fn ranges(answer: Value, host: &str) -> RedisResult<Ranges> {
    let ranges = match answer {
        Value::Array(ranges) if ranges.len() > usize::from(HASH_SLOTS) => return Err(impossible()),
        answer => redis::from_redis_value::<Vec<Vec<Value>>>(answer)?,
    };
    if ranges.iter().map(Vec::len).sum::<usize>() > WORDS_MAX {
        return Err(impossible());
    }
    let ranges: Ranges = ranges.into_iter().map(|range| read_range(range, host)).collect::<Result<_, _>>()?;
    let nodes: HashSet<&Address> = ranges.iter().flat_map(|(_, nodes)| nodes).collect();
    if nodes.len() > NODES_MAX { Err(impossible()) } else { Ok(ranges) }
}

/// A node could make its clients connect anywhere, and use all their memory.
fn impossible() -> RedisError {
    let why =
        "CLUSTER SLOTS names more than 1,000 nodes, or more ranges than there are hash slots: this is not a cluster";
    (ErrorKind::Client, why).into()
}

/// The address in the metadata of a node.
fn ip_of(more: Value) -> Option<String> {
    let words: Vec<String> = redis::from_redis_value(more).ok()?;
    words.iter().position(|word| word == "ip").and_then(|name| words.get(name + 1)).cloned()
}

fn read_range(range: Vec<Value>, host: &str) -> RedisResult<(RangeInclusive<u16>, Vec<Address>)> {
    let mut words = range.into_iter();
    let mut next = || words.next().unwrap_or(Value::Nil);
    let (first, last): (u16, u16) = (redis::from_redis_value(next())?, redis::from_redis_value(next())?);
    let mut nodes = Vec::new();
    for node in words {
        let node: Vec<Value> = redis::from_redis_value(node)?;
        let mut words = node.into_iter();
        let named: Option<String> = redis::from_redis_value(words.next().unwrap_or(Value::Nil))?;
        let port = redis::from_redis_value(words.next().unwrap_or(Value::Nil))?;
        let named = match named.as_deref() {
            // A node without a hostname, in a cluster that uses hostnames.
            Some("?") => words.nth(1).and_then(|more| ip_of(more).filter(|ip| !ip.is_empty())),
            Some("") => None,
            _ => named,
        };
        nodes.push((named.unwrap_or_else(|| host.to_owned()), port));
    }
    Ok((first..=last, nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk("id"), Value::Array(Vec::new())])
    }

    #[test]
    fn a_range_names_its_master_first() {
        let range =
            |first, last, nodes: Vec<Value>| Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat());
        let answer = Value::Array(vec![
            range(0, 99, vec![node(bulk("10.0.0.1"), 1), node(bulk("10.0.0.2"), 2)]),
            range(100, 100, vec![node(Value::Nil, 3)]),
            range(
                101,
                16383,
                vec![
                    node(bulk(""), 4),
                    node(bulk("?"), 5),
                    Value::Array(vec![
                        bulk("?"),
                        Value::Int(6),
                        bulk("id"),
                        Value::Array(vec![bulk("ip"), bulk("10.0.0.6")]),
                    ]),
                ],
            ),
        ]);
        let ranges = ranges(answer, "here").unwrap();
        let at = |host: &str, port| (host.to_owned(), port);
        assert_eq!(ranges[0], (0..=99, vec![at("10.0.0.1", 1), at("10.0.0.2", 2)]));
        assert_eq!(ranges[1], (100..=100, vec![at("here", 3)]));
        assert_eq!(ranges[2].1, [at("here", 4), at("here", 5), at("10.0.0.6", 6)]);
    }

    #[test]
    fn an_impossible_cluster_is_an_error() {
        let range =
            |slot: i64, nodes: Vec<Value>| Value::Array([vec![Value::Int(slot), Value::Int(slot)], nodes].concat());
        let numbered = |hosts: i64| (0..16384).map(move |slot| range(slot, vec![node(bulk("h"), slot % hosts + 1)]));
        assert_eq!(ranges(Value::Array(numbered(1000).collect()), "h").unwrap().len(), 16384, "every slot is a range");
        let too_long = |rows: Vec<Value>| ranges(Value::Array(rows), "h").unwrap_err().to_string();
        assert!(too_long(numbered(1001).collect()).contains("1,000 nodes"));
        assert!(too_long(numbered(1).chain(numbered(1)).collect()).contains("more ranges"));
        assert!(too_long(vec![range(0, vec![node(bulk("h"), 1); WORDS_MAX])]).contains("1,000 nodes"));
    }

    #[test]
    fn another_answer_is_an_error() {
        for answer in
            [Value::Int(1), Value::Array(vec![Value::Int(1)]), Value::Array(vec![Value::Array(vec![bulk("x")])])]
        {
            assert!(ranges(answer.clone(), "h").is_err(), "{answer:?}");
        }
    }
}
