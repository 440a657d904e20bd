use crate::args::Break;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::state;
use crate::text::{holding, plain};
use fencelock::{Client, Eviction, Expiry, Holding, Occupant};

/// Ends somebody else's hold.
pub(super) async fn breaking(breaking: Break, context: &Context) -> Result<Exit, Failure> {
    context.with_client(async |client| end(&breaking, client, context).await).await
}

async fn end(breaking: &Break, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let key = plain(&breaking.key);
    let Some(seen) = client.inspect(&breaking.key).await? else {
        return nothing_to_end(&breaking.key, "free, so nothing was done", context);
    };
    // Where nobody's hold can be ended from outside, no option helps: the place says at once what does.
    if client.capabilities().evicts {
        permitted(breaking, Kind::of(&seen)).map_err(|why| {
            Failure::new(Exit::Usage, format!("{key} is {}; nothing was done: {why}", holding(&seen)))
        })?;
    }
    match client.evict(&seen).await? {
        Eviction::Evicted => context.answer(&format!("{}\n", ended(&seen, context.report.json)))?,
        Eviction::Changed(None) => {
            return nothing_to_end(&breaking.key, "free by now, so nothing was done", context);
        }
        Eviction::Changed(Some(now)) => {
            let why = format!("{key} is {} by now: nothing was done, look again", holding(&now));
            return Err(Failure::new(Exit::Busy, why));
        }
        Eviction::Refused(why) => return Err(Failure::new(Exit::Usage, format!("{key}: {why}"))),
        other => return Err(Failure::new(Exit::Usage, format!("{key}: {other:?}"))),
    }
    Ok(Exit::Success)
}

/// What is under a key, as far as `break` is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A lock of ours.
    Ours,
    /// A string that ends by itself: a lock of another library.
    Foreign,
    /// A string that does not: a lock of another library that forgot to say how long, or data.
    ForeignWithoutTtl,
    /// No lock of any library.
    Other,
}

impl Kind {
    fn of(seen: &Holding) -> Self {
        // Every grant of ours left a fence, and where nodes differ on the token, the age tells of it. What only looks like a holder
        // of ours may be data.
        let hold = seen.first();
        let granted = hold.fence.is_some() || hold.held_for.is_some();
        match (&hold.occupant, hold.expiry) {
            (Occupant::Holder(_), _) if granted => Self::Ours,
            (Occupant::Foreign(foreign), _) if !foreign.is_string() => Self::Other,
            (_, Expiry::In(_)) => Self::Foreign,
            (_, Expiry::Never) => Self::ForeignWithoutTtl,
        }
    }
}

/// What has to be said before this may be ended, if it was not.
fn permitted(breaking: &Break, kind: Kind) -> Result<(), String> {
    let option = match kind {
        Kind::Ours => None,
        Kind::Foreign => Some(("--foreign", breaking.foreign)),
        Kind::ForeignWithoutTtl => Some(("--foreign-without-ttl", breaking.foreign_without_ttl)),
        Kind::Other => return Err("it is no lock, and break deletes nothing else".to_owned()),
    };
    let wanted = option.into_iter().chain([("--yes", breaking.yes)]);
    let missing: Vec<_> = wanted.filter(|(_, given)| !given).map(|(option, _)| option).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(" ");
    Err(match kind {
        Kind::ForeignWithoutTtl => {
            format!("it may be data and no lock; if it is a lock that nobody holds, add {missing} to delete it")
        }
        _ => format!("add {missing} to end this hold"),
    })
}

fn nothing_to_end(key: &str, why: &str, context: &Context) -> Result<Exit, Failure> {
    let mut answer = state(key, None);
    answer["broken"] = false.into();
    context.answer(&if context.report.json { format!("{answer}\n") } else { format!("{}: {why}\n", plain(key)) })?;
    Ok(Exit::Success)
}

/// With what was seen before it was ended.
fn ended(victim: &Holding, json: bool) -> String {
    if json {
        let mut answer = state(victim.key.as_str(), Some(victim));
        answer["broken"] = true.into();
        return answer.to_string();
    }
    format!("{}: ended the hold that was {}", plain(&victim.key), holding(victim))
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
    fn a_value_without_a_fence_is_no_lock_of_ours() {
        let value = format!("{} web-1:42", "ab".repeat(16));
        let ours = HolderInfo::new(Occupant::from_wire(&value), Expiry::In(Duration::from_secs(1)));
        assert_eq!(kind(ours.clone()), Kind::Foreign);
        assert_eq!(kind(ours.clone().with_fence(FencingToken::new(7).ok())), Kind::Ours);
        assert_eq!(kind(ours.with_held_for(Some(Duration::ZERO))), Kind::Ours, "nodes differ on its token");
        assert_eq!(kind(HolderInfo::new(Occupant::from_wire(&value), Expiry::Never)), Kind::ForeignWithoutTtl);
    }

    #[test]
    fn each_kind_needs_its_own_option() {
        let given = |foreign, foreign_without_ttl| Break { key: "k".into(), yes: true, foreign, foreign_without_ttl };
        let table = [
            (Kind::Ours, [true; 4]),
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
