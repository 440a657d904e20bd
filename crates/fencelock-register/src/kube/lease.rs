//! A Lease object as the record of a lock, and back.
//!
//! The record stands in an annotation, which client-go keeps. The spec says the same to client-go. If it says something else, another
//! program has written it, and the spec is what counts: so all of them stand in one election.

use crate::web::hash;
use fencelock_core::once::Utc;
use fencelock_core::register::{Hold, Record, Version};
use fencelock_core::{Holder, HolderId, Key, Owner, Ttl};
use serde_json::{Value, json};
use std::time::Duration;

const RECORD: &str = "fencelock.dev/record";
const LABEL: &str = "fencelock.dev/lock";
/// What a listing selects.
pub(super) const SELECTOR: &str = "labelSelector=fencelock.dev%2Flock%3D1";
/// The lease of client-go, where a Lease names none.
const DEFAULT_SECONDS: u64 = 15;
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400;
/// Stands before the hash of a key that is no name of an object.
pub(super) const HASHED: &str = "fl-";

/// A Lease as the API server has sent it: the whole, because who replaces it must keep what others have added.
#[derive(Debug, Clone)]
pub(super) struct LeaseObject {
    object: Value,
    /// When it was written, by the clock of the API server.
    pub(super) modified: Option<u64>,
}

impl LeaseObject {
    /// `None` if it is no object that was stored.
    pub(super) fn new(mut object: Value) -> Option<Self> {
        let is_map = |value: &Value| value.is_object() || value.is_null();
        let is_text = |name: &str| object["metadata"][name].is_string();
        let maps = [&object["spec"], &object["metadata"]["annotations"], &object["metadata"]["labels"]];
        if !["uid", "resourceVersion"].into_iter().all(is_text) || !maps.into_iter().all(is_map) {
            return None;
        }
        // What is not sent is kept, and it is half of the object. A write renews the time of its program, and each lease begins with a
        // write of this field: if its entry was deleted, no other time counts.
        let managed = object["metadata"].as_object_mut()?.remove("managedFields").unwrap_or_default();
        let renewed = |entry: &&Value| entry["fieldsV1"]["f:spec"]["f:renewTime"].is_object();
        let entries = managed.as_array().into_iter().flatten().filter(renewed);
        let modified = entries.filter_map(|entry| micros(&entry["time"])).max();
        Some(Self { object, modified })
    }

    /// The replacement of nothing.
    pub(super) fn absent(key: &Key) -> Self {
        let (version, metadata) = ("coordination.k8s.io/v1", json!({"name": name(key)}));
        let object = json!({"apiVersion": version, "kind": "Lease", "metadata": metadata, "spec": {}});
        Self { object, modified: None }
    }

    /// With the uid: a PUT of an object that was deleted, and perhaps created again, would create or replace it.
    pub(super) fn version(&self) -> Version {
        let metadata = &self.object["metadata"];
        Version::new(format!("{}/{}", text(&metadata["uid"]), text(&metadata["resourceVersion"])))
    }

    /// Who holds it, as client-go sees it; empty if nobody does.
    pub(super) fn identity(&self) -> &str {
        text(&self.object["spec"]["holderIdentity"])
    }

    /// The key, if this program has written it.
    pub(super) fn key(&self) -> Option<Key> {
        let key = Record::key_of(self.annotation()?.as_bytes())?;
        (self.object["metadata"]["name"] == name(&key)).then_some(key)
    }

    /// Why it cannot be a lock.
    pub(super) fn refusal(&self) -> Option<String> {
        let (spec, name) = (&self.object["spec"], text(&self.object["metadata"]["name"]));
        let seconds = self.seconds();
        let too_long = (seconds > DAY).then(|| format!("the Lease {name} lasts {seconds} s, and a lock at most a day"));
        let mut elected = ["strategy", "preferredHolder"].into_iter().filter(|field| spec[field].is_string());
        let elected = elected.next().map(|field| format!("{field} {}", text(&spec[field])));
        let why = |by| format!("the API server elects the holder of the Lease {name} ({by}): use another name");
        elected.map(why).or(too_long)
    }

    /// The bytes of its record: those of the annotation if they say the same as the spec, or are not understood.
    pub(super) fn content(&self, key: &Key) -> Vec<u8> {
        let record = match self.annotation() {
            None => Record::free(self.floor()),
            Some(text) => match Record::from_bytes(text.as_bytes(), key) {
                Ok(record) if identity(record.hold.as_ref()) != self.identity() => record,
                _ => return text.as_bytes().to_vec(),
            },
        };
        // Another program has granted, or freed it. That counts as a token, so that observers see the terms of its leaders too, and it
        // is not the write whose nonce is in the annotation.
        let token = record.token.saturating_add(1).saturating_add(self.transitions());
        Record { nonce: !record.nonce, token, hold: self.foreign_hold(), ..record }.to_bytes(key)
    }

    /// The object with this record instead.
    pub(super) fn with(&self, key: &Key, record: &Record, wall_micros: u64) -> Value {
        let (mut object, holder) = (self.object.clone(), identity(record.hold.as_ref()));
        let is_same = holder == self.identity();
        // client-go counts from the last change of the spec that it has seen, in whole seconds.
        let before = micros(&object["spec"]["renewTime"]).filter(|_| is_same).unwrap_or(0);
        let now = format!("{:.6}", Utc(wall_micros.max(before.saturating_add(SECOND))));
        let annotation = String::from_utf8_lossy(&record.to_bytes(key)).trim_end_matches('\n').to_owned();
        let metadata = &mut object["metadata"];
        metadata["annotations"][RECORD] = annotation.into();
        metadata["labels"][LABEL] = "1".into();
        let spec = &mut object["spec"];
        if !is_same {
            spec["acquireTime"] = now.clone().into();
            if !holder.is_empty() {
                spec["leaseTransitions"] = self.transitions().saturating_add(1).min(i32::MAX as u64).into();
            }
        }
        let seconds = record.hold.as_ref().map_or(1, |hold| hold.ttl.as_millis().div_ceil(1000));
        spec["leaseDurationSeconds"] = seconds.into();
        spec["renewTime"] = now.into();
        spec["holderIdentity"] = holder.into();
        object
    }

    fn annotation(&self) -> Option<&str> {
        self.object["metadata"]["annotations"][RECORD].as_str()
    }

    fn seconds(&self) -> u64 {
        self.object["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(DEFAULT_SECONDS)
    }

    fn transitions(&self) -> u64 {
        self.object["spec"]["leaseTransitions"].as_u64().unwrap_or(0)
    }

    /// Of an object without a record: greater than all tokens of one that was deleted before it was created.
    fn floor(&self) -> u64 {
        let created = micros(&self.object["metadata"]["creationTimestamp"]);
        created.map_or(0, |created| (created / SECOND + 1) * SECOND)
    }

    /// The hold of another program. Its id is new in each of its terms.
    fn foreign_hold(&self) -> Option<Hold> {
        let (identity, spec) = (self.identity(), &self.object["spec"]);
        if identity.is_empty() {
            return None;
        }
        let term = [text(&self.object["metadata"]["uid"]), text(&spec["acquireTime"]), identity].join("\n");
        let mut id = [0; 16];
        id.copy_from_slice(&hmac_sha256::Hash::hash(format!("{term}\n{}", self.transitions()).as_bytes())[..16]);
        let holder = Holder { id: HolderId::from_bytes(id), owner: Owner::from_text(identity) };
        let ttl = Ttl::new(Duration::from_secs(self.seconds().clamp(1, DAY))).unwrap_or_default();
        Some(Hold { holder, ttl, since_micros: micros(&spec["acquireTime"]).unwrap_or(0) })
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Microseconds since 1970.
fn micros(time: &Value) -> Option<u64> {
    Utc::parse(text(time)).map(|time| time.0)
}

/// The `holderIdentity` of this hold: unique, and readable in a list of `kubectl`.
fn identity(hold: Option<&Hold>) -> String {
    hold.map(|hold| format!("{} {}", hold.holder.id, hold.holder.owner.as_str())).unwrap_or_default()
}

/// The name of the object of a key: the key itself if it can be one, otherwise its hash.
pub(super) fn name(key: &Key) -> String {
    let text = key.as_str();
    let is_name = text.len() <= 253 && !text.starts_with(HASHED) && text.split('.').all(is_label);
    if is_name { text.to_owned() } else { format!("{HASHED}{}", hash(key)) }
}

/// RFC 1123, in lower case. The parts of a name may be longer than a label of DNS.
fn is_label(part: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !part.is_empty() && part.bytes().all(is_inner) && !part.starts_with('-') && !part.ends_with('-')
}
