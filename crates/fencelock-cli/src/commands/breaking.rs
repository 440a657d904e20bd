use super::slots;
use crate::args::Break;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::json::state;
use crate::keeper::{self, Done, Request};
use crate::proc::user_of;
use crate::text::{ended_holding, holder_of, holding, plain};
use fencelock::contract::Holder;
use fencelock::{Client, Eviction, Expiry, HolderInfo, Holding, Liveness, Occupant};
use rustix::process::geteuid;
use serde_json::Value;

/// Breaks a lock.
pub(super) async fn break_lock(breaking: &Break, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let (key, queues) = (plain(&breaking.key), client.capabilities().queues);
    let Some(row) = client.inspect(&breaking.key).await? else {
        let slots = slots::held(&breaking.key, client, slots::LISTING).await;
        if let Ok(slots @ [first, ..]) = slots.as_deref() {
            let (held, first) = (slots::counted(slots), &first.key);
            let why = format!("{key}: {held}; nothing was done: name one of them, as in `fencelock break {first}`");
            return Err(Failure::new(Exit::Usage, why));
        }
        let unknown = slots.err().map(|why| format!("; {}", slots::unknown(&why))).unwrap_or_default();
        return nothing_to_break(&breaking.key, &format!("free, nothing to do{unknown}"), queues, context);
    };
    let refused = |held: &Holding, why: String| {
        Failure::new(Exit::Usage, format!("{key} is {}; nothing was done: {why}", holding(held)))
    };
    let seen = one_of(&row, breaking.holder.as_deref()).map_err(|why| refused(&row, why))?;
    let backend = context.identity(client)?;
    let kept = keeper_of(&backend, &seen).await?;
    // If the backend cannot break locks, no option helps, and its error explains why.
    if client.capabilities().evicts || kept.is_some() {
        permitted(breaking, Kind::of(&seen)).map_err(|why| refused(&seen, why))?;
    }
    match end(client, &backend, &seen, kept).await? {
        Eviction::Evicted => {
            let mut answer = state(seen.key.as_str(), Some(&seen), queues);
            answer["broken"] = true.into();
            context.answer_with(&answer, &broken(&seen))
        }
        Eviction::Changed(None) => nothing_to_break(&breaking.key, "free now, nothing to do", queues, context),
        Eviction::Changed(Some(now)) => {
            let why = format!("{key} is now {}: nothing was done, run the command again", holding(&now));
            Err(Failure::new(Exit::Busy, why))
        }
        Eviction::Refused(why) => {
            Err(Failure::new(Exit::Usage, format!("{key}: {}", out_of_reach(seen.first()).unwrap_or(why))))
        }
        other => Err(Failure::new(Exit::Usage, format!("{key}: {other:?}"))),
    }
}

/// The holder, if a keeper of this machine has its lock.
async fn keeper_of<'a>(backend: &str, seen: &'a Holding) -> Result<Option<&'a Holder>, Failure> {
    let Occupant::Holder(holder) = &seen.first().occupant else { return Ok(None) };
    let kept: Option<Value> = keeper::ask(backend, &holder.owner, &Request::Holds).await?;
    Ok(kept.map(|_| holder))
}

/// Ends a hold if it has not changed, through its keeper if it has one.
async fn end(client: &Client, backend: &str, seen: &Holding, kept: Option<&Holder>) -> Result<Eviction, Failure> {
    let mut released = false;
    if let Some(holder) = kept {
        let by = format!("process {} of user {}", std::process::id(), geteuid().as_raw());
        let request = Request::Break { key: seen.key.to_string(), holder: holder.id, by };
        let done: Option<Vec<Done>> = keeper::ask(backend, &holder.owner, &request).await?;
        released = done.is_some_and(|done| done.first().is_some_and(|done| done.released == Some(true)));
    }
    Ok(match client.evict(seen).await? {
        Eviction::Changed(_) if released => Eviction::Evicted,
        ended => ended,
    })
}

/// Ends a hold of fencelock that a user has confirmed, and says what became of it.
#[cfg(feature = "top")]
pub(super) async fn end_own(client: &Client, backend: &str, seen: &Holding) -> Result<String, Failure> {
    let key = plain(&seen.key);
    if Kind::of(seen) != Kind::Own {
        return Ok(format!("{key}: not a lock of fencelock, nothing was done: see `fencelock break {key}`"));
    }
    let kept = keeper_of(backend, seen).await?;
    Ok(match end(client, backend, seen, kept).await? {
        Eviction::Evicted => broken(seen),
        Eviction::Changed(None) => format!("{key}: free now, nothing was done"),
        Eviction::Changed(Some(now)) => format!("{key} is now {}: nothing was done", holding(&now)),
        Eviction::Refused(why) => format!("{key}: {}", plain(&out_of_reach(seen.first()).unwrap_or(why))),
        other => format!("{key}: {other:?}"),
    })
}

/// What frees the lock that a process of this machine keeps for another one, where this user cannot reach the keeper. Anybody may
/// write such a label, so the process that it names must belong to the user of the keeper.
pub(super) fn out_of_reach(hold: &HolderInfo) -> Option<String> {
    let Occupant::Holder(Holder { owner, .. }) = &hold.occupant else { return None };
    let (keeper, watched) = keeper::named(owner)?;
    let user = user_of(keeper).filter(|_| hold.alive == Some(Liveness::Process))?;
    if user != 0 && user_of(watched) != Some(user) {
        return None;
    }
    let remedy = if user == geteuid().as_raw() {
        format!("and does not answer: end process {watched}")
    } else {
        format!("and answers only to user {user}: run this as user {user}, or end process {watched}")
    };
    Some(format!("process {keeper} keeps this lock for process {watched}, ignores TERM, {remedy}"))
}

/// The hold to end: the only one, or the one whose holder id begins with `prefix`.
fn one_of(row: &Holding, prefix: Option<&str>) -> Result<Holding, String> {
    let Some(prefix) = prefix else {
        if row.holders.count() == 1 {
            return Ok(row.clone());
        }
        return Err(format!("name one of its {} holders with --holder PREFIX: {}", row.holders.count(), listed(row)));
    };
    let wanted = prefix.trim().to_lowercase();
    if wanted.is_empty() || wanted.len() > 32 || !wanted.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("--holder takes 1 to 32 hexadecimal digits, not {:?}", plain(prefix)));
    }
    let begins = |hold: &&HolderInfo| hold.holder_id().is_some_and(|id| id.to_string().starts_with(&wanted));
    let found: Vec<_> = row.holders.iter().filter(begins).collect();
    match found[..] {
        [hold] => Ok(Holding::new(row.key.clone(), hold.clone()).with_waiters(row.waiters)),
        [] => Err(format!("no holder begins with {wanted}: {}", listed(row))),
        _ => Err(format!("{} holders begin with {wanted}: name more digits: {}", found.len(), listed(row))),
    }
}

/// `5f3b12ab web-1:4242, 9c02d1ee web-2:7`
fn listed(row: &Holding) -> String {
    row.holders.iter().map(holder_of).collect::<Vec<_>>().join(", ")
}

/// The kind of value under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A lock of fencelock.
    Own,
    /// A string with a TTL: a lock of another library.
    Foreign,
    /// A string without a TTL: a lock of another library, or data.
    ForeignWithoutTtl,
    /// Not a lock.
    Other,
}

impl Kind {
    fn of(seen: &Holding) -> Self {
        // Every grant of fencelock stores a fencing token; if nodes disagree on the token, the age shows it. A value that only appears to be
        // like a holder may be data.
        let hold = seen.first();
        let granted = hold.fence.is_some() || hold.held_for.is_some();
        match (&hold.occupant, hold.expiry) {
            (Occupant::Holder(_), _) if granted => Self::Own,
            (Occupant::Foreign(foreign), _) if !foreign.is_string() => Self::Other,
            (_, Expiry::In(_)) => Self::Foreign,
            (_, Expiry::Never) => Self::ForeignWithoutTtl,
        }
    }
}

/// Requires the options that permit breaking this kind of lock.
fn permitted(breaking: &Break, kind: Kind) -> Result<(), String> {
    let option = match kind {
        Kind::Own => None,
        Kind::Foreign => Some(("--foreign", breaking.foreign)),
        Kind::ForeignWithoutTtl => Some(("--foreign-without-ttl", breaking.foreign_without_ttl)),
        Kind::Other => return Err("it is not a lock, and `break` deletes only locks".to_owned()),
    };
    let wanted = option.into_iter().chain([("--yes", breaking.yes)]);
    let missing: Vec<_> = wanted.filter(|(_, given)| !given).map(|(option, _)| option).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(" ");
    Err(match kind {
        Kind::ForeignWithoutTtl => {
            format!("it may be data; if it is an abandoned lock, add {missing} to delete it")
        }
        _ => format!("add {missing} to break this lock"),
    })
}

fn nothing_to_break(key: &str, why: &str, queues: bool, context: &Context) -> Result<Exit, Failure> {
    let mut answer = state(key, None, queues);
    answer["broken"] = false.into();
    context.answer_with(&answer, &format!("{}: {why}", plain(key)))
}

/// The result, with the state of the lock before it was broken.
fn broken(seen: &Holding) -> String {
    format!("{}: broke the lock {}", plain(&seen.key), ended_holding(seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock::{FencingToken, HolderInfo, Key};
    use std::time::Duration;

    fn kind(hold: HolderInfo) -> Kind {
        Kind::of(&Holding::new(Key::new("k").unwrap(), hold))
    }

    #[test]
    fn a_value_without_a_fencing_token_is_not_a_lock_of_fencelock() {
        let value = format!("{} web-1:42", "ab".repeat(16));
        let ours = HolderInfo::new(Occupant::from_wire(&value), Expiry::In(Duration::from_secs(1)));
        assert_eq!(kind(ours.clone()), Kind::Foreign);
        assert_eq!(kind(ours.clone().with_fence(FencingToken::new(7).ok())), Kind::Own);
        assert_eq!(kind(ours.with_held_for(Some(Duration::ZERO))), Kind::Own, "nodes differ on its token");
        assert_eq!(kind(HolderInfo::new(Occupant::from_wire(&value), Expiry::Never)), Kind::ForeignWithoutTtl);
    }

    #[test]
    fn one_hold_of_many_is_named_by_its_prefix() {
        let hold = |id: &str| {
            let occupant = Occupant::from_wire(&format!("{id} web-1:42"));
            HolderInfo::new(occupant, Expiry::Never).with_mode(fencelock::Mode::Shared)
        };
        let (one, two) = (format!("ab1{}", "0".repeat(29)), format!("ab2{}", "0".repeat(29)));
        let single = Holding::new(Key::new("k").unwrap(), hold(&one));
        assert_eq!(one_of(&single, None).as_ref(), Ok(&single));
        let row = single.with_holder(hold(&two));
        assert_eq!(one_of(&row, Some("AB2")).unwrap().first().holder_id(), Some(two.parse().unwrap()));
        assert_eq!(one_of(&row, Some(&one)).unwrap().first().holder_id(), Some(one.parse().unwrap()));
        for (prefix, why) in [
            (None, "name one of its 2 holders with --holder PREFIX"),
            (Some("ab"), "2 holders begin with ab: name more digits"),
            (Some("c"), "no holder begins with c"),
            (Some(""), "1 to 32 hexadecimal digits"),
            (Some("xyz"), "1 to 32 hexadecimal digits"),
        ] {
            let refused = one_of(&row, prefix).unwrap_err();
            assert!(refused.contains(why), "{prefix:?}: {refused}");
        }
        let refused = one_of(&row, None).unwrap_err();
        assert!(
            refused.contains("ab100000 web-1:42") && refused.contains("ab200000") && !refused.contains(&one),
            "{refused}"
        );
    }

    #[test]
    fn each_kind_needs_its_own_option() {
        let given = |foreign, foreign_without_ttl| Break {
            key: "k".into(),
            holder: None,
            yes: true,
            foreign,
            foreign_without_ttl,
        };
        let table = [
            (Kind::Own, [true; 4]),
            (Kind::Foreign, [false, true, false, true]),
            (Kind::ForeignWithoutTtl, [false, false, true, true]),
            (Kind::Other, [false; 4]),
        ];
        for (kind, expected) in table {
            let options = [given(false, false), given(true, false), given(false, true), given(true, true)];
            assert_eq!(options.map(|breaking| permitted(&breaking, kind).is_ok()), expected, "{kind:?}");
        }
    }
}
