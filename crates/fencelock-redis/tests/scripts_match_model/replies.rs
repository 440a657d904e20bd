//! Converts the results of the model to the replies of the scripts.

use super::expected::Expected;
use super::quarantined_client;
use crate::scripts::reply::Evicting;
use fencelock_core::Mode;
use fencelock_model::{self as model, Acquire, Availability, QueueScan, UnknownVersion, Value};
use fencelock_testkit::Reply;

pub(super) fn text(text: &(impl ToString + ?Sized)) -> Reply {
    Reply::Text(text.to_string())
}

pub(super) fn pttl(ttl_ms: Option<u64>) -> Reply {
    Reply::Int(ttl_ms.map_or(-1, |ttl| i64::try_from(ttl).unwrap()))
}

pub(super) fn int(number: u64) -> Reply {
    Reply::Int(i64::try_from(number).unwrap())
}

pub(super) fn occupied(occupied: &model::Occupied) -> [Reply; 4] {
    let [value, kind] = described(&occupied.by, occupied.listed.as_ref());
    [text(&occupied.last_fence), pttl(occupied.ttl_ms), value, kind]
}

/// The value and its type, or the description of several holds.
pub(super) fn described(value: &Value, listed: Option<&model::Listed>) -> [Reply; 2] {
    match listed {
        Some(listed) => [text(&listed.text()), text("shared")],
        None => [text(value), text(value.kind())],
    }
}

pub(super) fn shared(listed: &model::Listed) -> Vec<Reply> {
    let [value, kind] = described(&listed.value, Some(listed));
    vec![text("taken"), value, kind]
}

pub(super) fn class(mode: Mode) -> [Reply; 2] {
    match mode {
        Mode::Permits { limit, .. } => [text("s"), int(limit.into())],
        _ => [text("r"), int(0)],
    }
}

/// Added only if there is one; otherwise the length of the reply does not change.
pub(super) fn unread(unread: Option<model::Unread>) -> Option<Reply> {
    let model::Unread { name, bytes, begins } = unread?;
    Some(Reply::Array(vec![text(&name.text()), int(bytes as u64), text(&begins)]))
}

/// The reply to a claim, abbreviated in the common case.
pub(super) fn claimed(answer: Result<Acquire, model::ScriptError>, wanted: u64) -> Expected {
    let abbreviated = match &answer {
        Ok(Acquire::Granted { fence, count, unread: None }) if *count == wanted => Some(int(*fence)),
        _ => None,
    };
    Expected::or_refused(answer, acquired).or_abbreviated(abbreviated)
}

pub(super) fn acquired(answer: Acquire) -> Reply {
    let (mut words, found) = match answer {
        Acquire::Granted { fence, count, unread } => (vec![text("granted"), text(&fence), int(count)], unread),
        Acquire::Yours => (vec![text("yours")], None),
        Acquire::Queued { ahead, now_us, occupied: by } => {
            let time = text(&now_us.map_or("-1".to_owned(), |now_us| now_us.to_string()));
            let [last, rest @ ..] = occupied(&by);
            ([text("queued"), int(ahead), last, time].into_iter().chain(rest).collect(), by.unread)
        }
        Acquire::Busy(by) => ([text("busy")].into_iter().chain(occupied(&by)).collect(), by.unread),
        Acquire::Gone(unread) => (vec![text("gone")], unread),
        Acquire::Conflict(mode, unread) => ([text("class")].into_iter().chain(class(mode)).collect(), unread),
        Acquire::NoClock => (vec![text("noclock")], None),
        Acquire::More(unread) => (vec![text("more")], unread),
        Acquire::Unreadable(unread) => (vec![text("unreadable")], unread),
        Acquire::Refused(refusal) => (quarantined_client::refused(&refusal), None),
    };
    words.extend(unread(found));
    Reply::Array(words)
}

pub(super) fn taken(by: &Value) -> Reply {
    Reply::Array(vec![text("taken"), text(by), text(by.kind())])
}

pub(super) fn left(word: Reply, left: QueueScan) -> Reply {
    Reply::Array([word, int(u64::from(left.more))].into_iter().chain(unread(left.unread)).collect())
}

/// The reply to a release, abbreviated in the common case.
pub(super) fn ended(answer: Result<model::Release, model::ScriptError>) -> Expected {
    let abbreviated = match &answer {
        Ok(model::Release::Released(QueueScan { more: false, unread: None })) => Some(int(1)),
        _ => None,
    };
    Expected::or_refused(answer, released).or_abbreviated(abbreviated)
}

pub(super) fn released(answer: model::Release) -> Reply {
    match answer {
        model::Release::Released(found) => left(text("released"), found),
        model::Release::Absent(found) => left(text("absent"), found),
        model::Release::Taken(by) => taken(&by),
        model::Release::Shared(listed, found) => {
            let more = int(u64::from(found.more));
            Reply::Array(shared(&listed).into_iter().chain([more]).chain(unread(found.unread)).collect())
        }
    }
}

pub(super) fn downgraded(answer: model::Downgrade) -> Reply {
    match answer {
        model::Downgrade::Downgraded { fence, scan } => {
            let words = [text("downgraded"), text(&fence), int(u64::from(scan.more))];
            Reply::Array(words.into_iter().chain(unread(scan.unread)).collect())
        }
        model::Downgrade::Absent => Reply::Array(vec![text("absent")]),
        model::Downgrade::Taken(by) => taken(&by),
        model::Downgrade::Shared(listed) => Reply::Array(shared(&listed)),
        model::Downgrade::NoClock => Reply::Array(vec![text("noclock")]),
        model::Downgrade::Refused(refusal) => Reply::Array(quarantined_client::refused(&refusal)),
    }
}

pub(super) fn resized(answer: model::Resize) -> Reply {
    match answer {
        model::Resize::Resized { before, used, held, ticket, scan } => {
            let more = int(u64::from(scan.more));
            let words = [text("resized"), int(before.into()), int(used), int(held), more, text(&ticket)];
            Reply::Array(words.into_iter().chain(unread(scan.unread)).collect())
        }
        model::Resize::Absent(found) => Reply::Array([text("absent")].into_iter().chain(unread(found)).collect()),
        model::Resize::Taken(by) => taken(&by),
        model::Resize::Shared(listed) => Reply::Array(shared(&listed)),
        model::Resize::NoClock => Reply::Array(vec![text("noclock")]),
        model::Resize::Refused(refusal) => Reply::Array(quarantined_client::refused(&refusal)),
    }
}

pub(super) fn acked(answer: model::Raise) -> Reply {
    int(u64::from(answer == model::Raise::Acked))
}

pub(super) fn evicting(seen: model::HoldKind) -> Evicting {
    match seen {
        model::HoldKind::Ours => Evicting::Ours,
        model::HoldKind::Foreign => Evicting::Foreign,
        model::HoldKind::Endless => Evicting::Endless,
        model::HoldKind::Shared => Evicting::Shared,
    }
}

pub(super) fn evicted(answer: model::Evict) -> Reply {
    match answer {
        model::Evict::Evicted(found) => left(int(1), found),
        model::Evict::AnotherByNow => Reply::Array(vec![int(0), int(0)]),
    }
}

pub(super) fn renewed(answer: model::Renew) -> Reply {
    match answer {
        model::Renew::Renewed { waiters } => Reply::Array(vec![text("renewed"), int(waiters)]),
        model::Renew::Absent => Reply::Array(vec![text("absent")]),
        model::Renew::Taken(by) => taken(&by),
        model::Renew::Shared(listed) => Reply::Array(shared(&listed)),
    }
}

pub(super) fn inspected(answer: Availability) -> Reply {
    let seen = match answer {
        Availability::Held(seen) => seen,
        Availability::Free { waiters } => return int(waiters),
        Availability::Refused(refusal) => return Reply::Array(quarantined_client::refused(&refusal)),
    };
    let fence = seen.fence.map(|fence| fence.to_string()).unwrap_or_default();
    let [value, kind] = described(&seen.by, seen.listed.as_ref());
    let named = seen.named.iter().map(|(ms, entry)| {
        let ms = ms.map(|ms| ms.to_string()).unwrap_or_default();
        format!("{ms}\t{}\t{}", entry.value, entry.version)
    });
    let named = text(&named.collect::<Vec<_>>().join("\n"));
    Reply::Array(vec![value, kind, pttl(seen.ttl_ms), text(&fence), int(seen.waiters), named])
}

pub(super) fn version(UnknownVersion(version): &UnknownVersion) -> Reply {
    Reply::Array(vec![text("version"), text(&**version)])
}
