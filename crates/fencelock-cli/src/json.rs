//! The fields of JSON output. docs/en/json.md documents them; a field name has the same meaning in all commands.

use crate::mode::with_mode;
use crate::text::{owner_of, prefix, process_of};
use fencelock::{
    Expiry, FencingToken, HolderId, HolderInfo, Holding, Key, Liveness, Mode, Occupant, Owner, WaiterInfo, WindowDone,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Adds `owner` and `foreign`: exactly one of them is `null`. The holder id is never shown, because it allows a release.
pub(crate) fn with_occupant(mut answer: Value, by: &Occupant) -> Value {
    (answer["owner"], answer["foreign"]) = match by {
        Occupant::Holder(holder) => (owner(&holder.owner), Value::Null),
        Occupant::Foreign(foreign) => (Value::Null, foreign.to_string().into()),
    };
    answer
}

/// The answer of `acquire` for one lock, with the time `left` of its lease.
pub(crate) fn acquired(key: &Key, hold: (HolderId, FencingToken, Mode), ttl: Duration, left: Duration) -> Value {
    let (holder, fence, mode) = hold;
    let answer = json!({
        "key": key.as_str(),
        "holder": holder.to_string(),
        "fence": fence.get(),
        "ttl_ms": millis(ttl),
        "expires_in_ms": (left != Duration::MAX).then(|| millis(left)),
        "while_pid": null,
        "name": null,
        "slot": null,
    });
    with_mode(answer, Some(mode))
}

/// The fields that identify the holder.
pub(crate) fn owner(owner: &Owner) -> Value {
    let (name, watched) = (owner.label().and_then(owner_of), owner.label().and_then(process_of));
    json!({ "host": owner.host(), "pid": owner.pid(), "label": owner.label(), "name": name, "while_pid": watched })
}

/// The record that work is done in a window.
pub(crate) fn window_done(done: &WindowDone) -> Value {
    json!({
        "owner": owner(done.by()),
        "fence": done.fencing_token().get(),
        "granted": done.granted_utc(),
        "granted_ago_ms": done.granted_ago().map(millis),
        "next_window": done.next_window_utc(),
        "next_window_in_ms": millis(done.next_window_in()),
    })
}

/// One of the holders of a key.
fn hold(hold: &HolderInfo) -> Value {
    let answer = json!({
        "holder_prefix": hold.holder_id().map(prefix),
        "fence": hold.fence.map(FencingToken::get),
        "held_for_ms": hold.held_for.map(millis),
        "expires_in_ms": expires_in(hold.expiry),
    });
    with_mode(with_occupant(with_liveness(answer, hold.alive), &hold.occupant), Some(hold.mode))
}

/// Adds what shows that a holder is alive.
fn with_liveness(mut answer: Value, alive: Option<Liveness>) -> Value {
    let (ago, every) = match alive {
        Some(Liveness::Renewed { ago, every }) => (Some(ago), every),
        _ => (None, None),
    };
    answer["process_lives"] = (alive == Some(Liveness::Process)).then_some(true).into();
    (answer["renewed_ago_ms"], answer["renewed_every_ms"]) = (ago.map(millis).into(), every.map(millis).into());
    answer
}

/// The first waiters; unknown without a queue. Of a free key nobody is named: what is in its queue is about to get it.
fn queue(held: Option<&Holding>, queues: bool) -> Value {
    match held {
        None => json!(queues.then(Vec::<Value>::new)),
        Some(held) => held.queue.as_ref().map_or(Value::Null, |queue| queue.iter().map(waiter).collect()),
    }
}

/// One of the waiters of a key.
fn waiter(waiter: &WaiterInfo) -> Value {
    let answer = json!({ "owner": owner(&waiter.holder.owner), "waited_ms": waiter.waited.map(millis) });
    with_mode(answer, Some(waiter.mode))
}

/// Whether it is unknown who holds the key, or nobody.
pub(crate) fn is_unread(held: &Holding) -> bool {
    matches!(&held.first().occupant, Occupant::Foreign(foreign) if foreign.is_unread())
}

/// The number of waiters, where it is known: the backend `queues` them, and the key can be read.
pub(crate) fn waiters(held: &Holding, queues: bool) -> Option<u32> {
    Some(held.waiters).filter(|_| queues && !is_unread(held))
}

/// The fields of a key, held or free, in `status` and other commands.
pub(crate) fn state(key: &str, held: Option<&Holding>, queues: bool) -> Value {
    let (holder, known) = (held.map(Holding::first), held.filter(|held| !is_unread(held)));
    let answer = json!({
        "key": key,
        "held": (known.is_some() == held.is_some()).then_some(held.is_some()),
        "owner": null,
        "foreign": null,
        "fence": holder.and_then(|holder| holder.fence).map(FencingToken::get),
        "held_for_ms": holder.and_then(|holder| holder.held_for).map(millis),
        "expires_in_ms": holder.and_then(|holder| expires_in(holder.expiry)),
        "waiters": held.map_or(queues.then_some(0), |held| waiters(held, queues)),
        "longest_wait_ms": held.and_then(Holding::longest_wait).map(millis),
        "queue": queue(held, queues),
        "holders": known.iter().flat_map(|held| held.holders.iter()).map(hold).collect::<Value>(),
        "holder_count": known.map_or(0, |held| held.holders.count()),
    });
    let answer = with_liveness(answer, holder.and_then(|holder| holder.alive));
    let answer = with_mode(answer, known.map(|held| held.first().mode));
    match holder {
        Some(holder) => with_occupant(answer, &holder.occupant),
        None => answer,
    }
}

/// `null` if there is no end.
pub(crate) fn expires_in(expiry: Expiry) -> Option<u64> {
    expiry.span().map(millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock::HolderInfo;

    #[test]
    fn a_hold_of_fencelock_has_an_owner_and_no_holder_id() {
        let proof = "ab".repeat(16);
        let by = Occupant::from_wire(&format!("{proof} web-1:4242 nightly"));
        let held = Holding::new(Key::new("k").unwrap(), HolderInfo::new(by, Expiry::Never));
        let state = state("k", Some(&held), true);
        assert_eq!(
            state["owner"],
            json!({ "host": "web-1", "pid": 4242, "label": "nightly", "name": null, "while_pid": null })
        );
        assert!(state["foreign"].is_null() && !state.to_string().contains(&proof), "{state}");
    }

    #[test]
    fn a_value_of_another_program_has_no_owner() {
        let held =
            Holding::new(Key::new("k").unwrap(), HolderInfo::new(Occupant::from_wire("5f3b12ab"), Expiry::Never));
        let state = state("k", Some(&held), false);
        assert!(state["owner"].is_null() && state["foreign"].is_string(), "{state}");
        assert!(state["waiters"].is_null(), "{state}");
    }
}
