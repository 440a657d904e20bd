//! What a session holds, and how it gets it.

use super::message::{ErrorReply, Lock, Mode as Shape, Seconds, Window, seconds};
use crate::commands::claim::{Claimed, check_election, claim_as, settings};
use crate::commands::once::args::{OncePer, OnceWindow};
use crate::exit::Exit;
use crate::json;
use crate::keeper::{Asked, Keeping, Shows};
use crate::plan::{Plan, Rules};
use crate::values;
use fencelock::contract::KeySet;
use fencelock::{Client, EndWaker, FencingToken, Guard, Guards, Key, Mode, UnfinishedRun, WindowDone};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The most of one session.
pub(super) const HOLDS: usize = 65_536;
pub(super) const KEYS: usize = KeySet::MAX_KEYS;
/// A client without 64-bit integers reads these exactly.
const LARGEST_TOKEN: u64 = 1 << 53;

/// What is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) plan: Plan,
    /// The request named several, or a list of one.
    #[serde(skip)]
    pub(crate) is_list: bool,
    /// Requests of an owner share a hold.
    pub(crate) owner: Option<String>,
    /// By `acquire`, of a keeper.
    pub(crate) asked: Option<Box<Asked>>,
    /// What its owner has of the keys of a path.
    #[serde(skip)]
    pub(crate) has: Vec<Arc<Guard>>,
}

fn usage(why: impl Into<String>) -> ErrorReply {
    ErrorReply::of(Exit::Usage, why)
}

fn time(given: Option<Seconds>, member: &str) -> Result<Option<Duration>, ErrorReply> {
    given.map(|seconds| seconds.get(member)).transpose()
}

impl Wanted {
    pub(super) fn of_lock(lock: Lock, ttl: Duration) -> Result<Self, ErrorReply> {
        let is_list = lock.keys.is_some();
        let keys = match (lock.key, lock.keys) {
            (Some(key), None) => vec![key],
            (None, Some(keys)) => keys,
            _ => return Err(usage("lock: name either key or keys")),
        };
        let (shared, permits) = (lock.mode == Some(Shape::Shared), lock.permits.is_some());
        let counted = lock.limit.or(lock.slots).is_some();
        let wrong = [
            (keys.is_empty(), "keys are empty: name at least one"),
            (lock.limit.and(lock.slots).is_some(), "limit and slots exclude each other"),
            (permits && !counted, "permits need the limit of their semaphore"),
            (counted && shared, "the mode shared excludes limit and slots"),
            (counted && is_list, "limit and slots are for one key"),
            (permits && lock.limit.is_none(), "permits are for a limit"),
        ];
        if let Some((_, why)) = wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(usage(format!("lock: {why}")));
        }
        let mode = match lock.limit {
            Some(limit) => {
                Mode::permits(lock.permits.unwrap_or(1), limit).map_err(|invalid| usage(format!("lock: {invalid}")))?
            }
            None if shared => Mode::Shared,
            None => Mode::Exclusive,
        };
        if let Some(owner) = &lock.owner {
            values::owner(owner).map_err(|why| usage(format!("owner: {why}")))?;
        }
        let rules = Rules { max_hold: time(lock.max_hold, "max_hold")?, ..Rules::default() };
        let plan = Plan { mode, slots: lock.slots, rules, ..plan(keys, (lock.wait, lock.ttl, ttl), lock.label)? };
        Ok(Self { plan, is_list, owner: lock.owner, asked: None, has: Vec::new() })
    }

    /// Of a key without an owner.
    pub(super) fn of(plan: Plan) -> Self {
        Self { plan, is_list: false, owner: None, asked: None, has: Vec::new() }
    }

    /// Whether a hold of this is what the other asks for, too.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let rules =
            |wanted: &Self| wanted.asked.as_ref().map(|_| (wanted.plan.rules.max_hold, wanted.plan.rules.on_lost));
        let what = |wanted: &Self| (wanted.plan.mode, wanted.plan.slots, wanted.plan.end_group, rules(wanted));
        self.owner.is_some()
            && self.owner == other.owner
            && self.plan.keys == other.plan.keys
            && self.plan.tree == other.plan.tree
            && what(self) == what(other)
    }

    /// Waits for it. Dropping the future leaves nothing behind.
    pub(super) async fn claim(&self, client: &Client, shows: Option<Shows>) -> Result<Claimed, ErrorReply> {
        if let (Some(asked), Some(shows)) = (&self.asked, shows) {
            return Ok(Box::pin(asked.claim(&self.plan, client, shows)).await?);
        }
        if self.plan.campaigns {
            check_election(&self.plan, client)?;
        }
        let mut lock = settings(&self.plan, client);
        if let Some(max_hold) = self.plan.rules.max_hold {
            lock = lock.max_hold(max_hold);
        }
        let claimed = claim_as(&self.plan, lock, client).await?;
        let Claimed::Held { guards, .. } = &claimed else { return Ok(claimed) };
        let mut tokens = guards.fencing_tokens().into_iter().map(FencingToken::get);
        tokens.find(|token| *token > LARGEST_TOKEN).map_or(Ok(claimed), |large| {
            let key = &self.plan.keys[0];
            let why = format!(
                "the fencing token {large} of {key} is larger than 2^53, which not every client can read exactly"
            );
            Err(ErrorReply::of(Exit::Unreachable, why))
        })
    }
}

impl Window {
    /// The rule of this window.
    pub(super) fn rule(self) -> Result<OncePer, ErrorReply> {
        let window = match self {
            Self::Seconds(seconds) => seconds.get("window")?,
            Self::Text(text) => values::span(&text).map_err(|why| usage(format!("window: {why}")))?,
        };
        Ok(OncePer { window: OnceWindow { once_per: Some(window), ..OnceWindow::default() }, even_if_failed: false })
    }
}

/// The plan of an exclusive lock, with the time that a lease has without another one.
pub(super) fn plan(
    keys: Vec<String>,
    (wait, own, ttl): (Option<Seconds>, Option<Seconds>, Duration),
    label: Option<String>,
) -> Result<Plan, ErrorReply> {
    Ok(Plan { keys, wait: time(wait, "wait")?, ttl: time(own, "ttl")?.unwrap_or(ttl), label, ..Plan::default() })
}

/// The result of a request for work that is done in this window.
pub(super) fn already(done: &WindowDone) -> Value {
    let (next, token) = (seconds(done.next_window_in()), done.fencing_token().get());
    json!({ "done": true, "next": next, "token": token, "by": json::owner(done.by()) })
}

/// Of a run of once, and the number of a slot.
pub(super) type Rest = (Option<UnfinishedRun>, Option<u32>);

/// Locks of a session. They are released when this is dropped.
pub(crate) struct Hold {
    pub(crate) wanted: Arc<Wanted>,
    /// The request that got it.
    pub(super) id: Value,
    /// `None` if a keeper has released them, and shows that they are lost.
    pub(crate) guards: Option<Guards<Arc<Guard>>>,
    pub(super) once: Option<Box<UnfinishedRun>>,
    pub(super) slot: Option<u32>,
    /// Of `serve`: wakes its session at a loss. A keeper watches it.
    pub(super) bell: Option<EndWaker>,
    /// The key and the cause, once it was told.
    pub(crate) lost: Option<Box<(String, String)>>,
    /// Of a keeper.
    pub(crate) kept: Option<Box<Keeping>>,
}

/// By number, in the order of their grants.
pub(crate) type Holds = BTreeMap<u64, Hold>;

impl Hold {
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.guards.iter().flat_map(Guards::keys).map(Key::as_str)
    }

    /// The key and the cause.
    fn loss(&self) -> Option<(String, String)> {
        self.lost.as_deref().cloned().or_else(|| {
            let loss = self.guards.as_ref()?.check().err()?.losses().into_iter().next()?;
            Some((loss.key.to_string(), loss.to_string()))
        })
    }

    /// Zero if it is lost, or was released.
    pub(super) fn left(&self) -> Duration {
        self.guards.as_ref().map(Guards::remaining).unwrap_or_default()
    }

    /// `Err` if it is lost: in doubt, it is.
    pub(crate) fn remaining(&self) -> Result<Duration, ErrorReply> {
        match (self.left(), self.loss()) {
            (left, None) if !left.is_zero() => Ok(left),
            (_, Some((key, cause))) => Err(ErrorReply::lost(&key, &cause)),
            (_, None) => Err(ErrorReply::lost(self.keys().next().unwrap_or_default(), "its lease has ended")),
        }
    }

    /// The result of a request that gets it.
    pub(super) fn result(&self, number: u64, wanted: &Wanted) -> Value {
        let Some(guards) = &self.guards else { return Value::Null };
        if let Some(asked) = &wanted.asked {
            return asked.answer((&wanted.plan, wanted.owner.as_deref()), guards, self.slot).into();
        }
        let left = seconds(guards.remaining());
        let tokens: Vec<_> = guards.fencing_tokens().into_iter().map(FencingToken::get).collect();
        let keys = &self.wanted.plan.keys;
        if self.wanted.is_list {
            return json!({ "hold": number, "keys": keys, "tokens": tokens, "remaining": left });
        }
        let mut result = json!({ "hold": number, "key": keys[0], "token": tokens[0], "remaining": left });
        if let Some(slot) = self.slot {
            result["slot"] = slot.into();
        }
        if self.once.is_some() {
            result["done"] = false.into();
        }
        result
    }

    /// The params of `lost`; `None` if it was told.
    pub(super) fn tell_loss(&mut self, number: u64) -> Option<Value> {
        let (key, cause) = self.loss().filter(|_| self.lost.is_none())?;
        let mut params = json!({ "hold": number, "key": key, "cause": cause });
        if self.wanted.is_list {
            params["keys"] = self.wanted.plan.keys.clone().into();
        }
        self.lost = Some(Box::new((key, cause)));
        Some(params)
    }

    /// If the future is dropped, the release continues in the background.
    pub(super) async fn release(self, is_done: bool) -> Result<Value, ErrorReply> {
        self.remaining()?;
        drop(self.bell);
        if let Some(run) = self.once.filter(|_| is_done) {
            run.succeed().await?;
        }
        let guards = self.guards.ok_or_else(|| usage("nothing was held"))?;
        // The work is done: to repeat it would be wrong.
        guards.release().await.map_err(|error| ErrorReply::from(error).about("the release is not confirmed"))?;
        Ok(json!({}))
    }
}
