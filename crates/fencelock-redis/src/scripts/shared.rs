//! Locks that several clients hold together, as the replies of the scripts describe them.

use super::wire::{WIRE, of_this_version};
use fencelock_core::{
    Expiry, FencingToken, Foreign, Holder, HolderInfo, Holders, Holding, Mode, Occupant, Occupied, Owner,
};
use std::time::Duration;

/// The type of such a lock in a reply.
pub(crate) const KIND: &str = "shared";

/// The mode of a lock with this value, with weight 1; `None` if it is held by one client, or not a lock of this version.
pub(crate) fn mode_of(value: &str) -> Option<Mode> {
    let mut words = of_this_version(value)?.split(':');
    let (mode, limit, first) = (words.next()?, words.next()?, words.next()?);
    let is_number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit()) && !text.starts_with('0');
    if words.next().is_some() || first.is_empty() || !is_number(first) {
        return None;
    }
    match mode {
        "r" if limit == "0" => Some(Mode::Shared),
        "s" if is_number(limit) => Mode::permits(1, limit.parse().ok()?).ok(),
        _ => None,
    }
}

/// The mode that a waiter claims, from the rest of its entry: the version, and if it is not exclusive the mode, weight and limit.
/// What this version cannot read counts as an exclusive claim, as in the scripts.
pub(crate) fn mode_of_entry(rest: &str) -> Mode {
    let fields: Vec<_> = rest.strip_prefix(WIRE).unwrap_or_default().split(' ').skip(1).collect();
    match fields[..] {
        ["r", "1", "0"] => Mode::Shared,
        ["s", weight, limit] => {
            let numbers = weight.parse().ok().zip(limit.parse().ok());
            numbers.and_then(|(weight, limit)| Mode::permits(weight, limit).ok()).unwrap_or_default()
        }
        _ => Mode::Exclusive,
    }
}

/// The holders that a reply describes: the first line has the value of the lock and the number of holds; each hold follows with
/// its holder id, remaining ms, weight, token and owner.
pub(crate) fn holders(described: &str, wall_micros: u64) -> Option<Holders<HolderInfo>> {
    let mut lines = described.split('\n');
    let (value, count) = lines.next()?.rsplit_once(' ')?;
    let mode = mode_of(value)?;
    let mut infos = lines.filter_map(|line| holder(line, mode, wall_micros));
    let (first, rest) = (infos.next()?, infos);
    let (holders, named) = rest.fold((Holders::one(first), 1), |(holders, named), info| (holders.and(info), named + 1));
    Some(holders.and_unnamed(count.parse::<u32>().ok()?.saturating_sub(named)))
}

fn holder(line: &str, mode: Mode, wall_micros: u64) -> Option<HolderInfo> {
    let mut words = line.splitn(5, ' ');
    let (id, rest) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    // Another program may have removed the entry; the hold is still valid.
    let weight = words.next().and_then(|weight| weight.parse().ok());
    let token: Option<FencingToken> = words.next().and_then(|token| token.parse().ok());
    let owner = Owner::from_text(words.next().unwrap_or_default());
    let mode = match mode {
        // A hold that was granted before a change of the limit may have more permits than the new limit.
        Mode::Permits { limit, .. } => {
            let held = weight.and_then(|weight| Mode::permits(weight, Mode::MOST_PERMITS).ok());
            held.unwrap_or(mode).resized(limit)
        }
        mode => mode,
    };
    let held_for = token.map(|token| Duration::from_micros(wall_micros.saturating_sub(token.get())));
    let info = HolderInfo::new(Occupant::Holder(Holder { id, owner }), Expiry::In(Duration::from_millis(rest)));
    Some(info.with_mode(mode).with_fence(token).with_held_for(held_for))
}

/// The value of the lock in a description.
pub(crate) fn value(described: &[u8]) -> &[u8] {
    described.split(|byte| *byte == b' ').next().unwrap_or_default()
}

pub(crate) fn occupied(holders: Holders<HolderInfo>, expiry: Expiry) -> Occupied {
    let held_for = holders.iter().filter_map(|hold| hold.held_for).max();
    Occupied::new(occupants(holders), expiry).with_held_for(held_for)
}

pub(crate) fn occupants(holders: Holders<HolderInfo>) -> Holders {
    holders.map(|hold| hold.occupant)
}

/// Represents the unknown holders of a lock of this version: without the server time, a script does not list them.
pub(crate) fn unlisted(value: &str) -> Option<Foreign> {
    mode_of(value).map(|mode| Foreign::other(format!("the holders of {}, which are not listed", mode.class())))
}

/// The holds that `seen` lists, as `evict.lua` expects them: `<holder id> <token>` of each.
pub(crate) fn listed(seen: &Holding) -> String {
    let words = seen.holders.iter().filter_map(|hold| Some(format!("{} {}", hold.holder_id()?, hold.fence?)));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_780_000_000_000_000;

    #[test]
    fn the_value_of_a_shared_lock_names_its_mode_and_limit() {
        assert_eq!(mode_of("fencelock:1:r:0:1780000000000000"), Some(Mode::Shared));
        assert_eq!(mode_of("fencelock:1:s:10:1"), Mode::permits(1, 10).ok());
        for other in [
            "fencelock:2:r:0:1",
            "fencelock:1:r:1:1",
            "fencelock:1:s:0:1",
            "fencelock:1:s:2000000:1",
            "fencelock:1:r:0:",
            "fencelock:1:r:0:1:2",
            "fencelock:1:r:0",
            "fencelock:1:x:0:1",
            "fencelock:1:r:0:01",
        ] {
            assert_eq!(mode_of(other), None, "{other}");
        }
    }

    #[test]
    fn an_entry_names_the_mode_of_its_waiter() {
        let permits = Mode::permits(2, 10).unwrap();
        let table =
            [("1", Mode::Exclusive), ("1 r 1 0", Mode::Shared), ("1 s 2 10", permits), ("2 r 1 0", Mode::Exclusive)];
        for (rest, mode) in table.into_iter().chain([("1 s 0 10", Mode::Exclusive), ("1 r", Mode::Exclusive)]) {
            assert_eq!(mode_of_entry(rest), mode, "{rest}");
        }
    }

    #[test]
    fn a_description_lists_some_holders_and_counts_the_others() {
        let id = "ab".repeat(16);
        let text = format!("fencelock:1:s:10:17 5\n{id} 3000 2 {} web-1:7 nightly job\n{id} 4000 ", NOW - 2_000_000);
        let holders = holders(&text, NOW).unwrap();
        assert_eq!(holders.count(), 5);
        let first = holders.first();
        assert_eq!((first.mode, first.expiry), (Mode::permits(2, 10).unwrap(), Expiry::In(Duration::from_secs(3))));
        assert_eq!(first.held_for, Some(Duration::from_secs(2)));
        assert_eq!(first.occupant.to_string(), "web-1:7 (nightly job)");
        let other = holders.iter().nth(1).unwrap();
        assert_eq!((other.mode, other.fence), (Mode::permits(1, 10).unwrap(), None), "its entry was removed");
        assert_eq!(value(text.as_bytes()), b"fencelock:1:s:10:17");
    }

    #[test]
    fn a_description_that_is_damaged_is_none() {
        for text in ["", "fencelock:1:r:0:17", "fencelock:1:r:0:17 1", "fencelock:1:r:0:17 1\nx 3000 1 1 a", "x 1\ny"] {
            assert_eq!(holders(text, NOW), None, "{text:?}");
        }
    }
}
