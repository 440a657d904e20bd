//! The script that carries out the common cases of several locks: its arguments and its replies.

use super::call::Call;
use super::script::{COMBINED, released_id};
use crate::scripts::side_key::SideKeys;
use fencelock_core::{Claim, Holder, HolderId};
use redis::{ErrorKind, RedisResult, Value};

/// The reply for a request that is not the common case. The server has changed nothing.
pub(crate) const NOT_COMMON: Value = Value::Int(0);

/// A request that may be a common case.
#[derive(Debug)]
pub(crate) struct Common {
    /// The name of the lock on the server.
    pub(crate) redis_key: String,
    what: What,
}

#[derive(Debug)]
enum What {
    Release { id: [u8; HolderId::HEX_LEN + 1] },
    Claim { holder: Holder, ttl_ms: u64, wanted: u32 },
}

impl Common {
    pub(crate) fn claim(redis_key: &str, claim: &Claim) -> Self {
        let (holder, ttl_ms) = (claim.holder.clone(), claim.ttl.as_millis());
        let what = What::Claim { holder, ttl_ms, wanted: claim.block.get() };
        Self { redis_key: redis_key.to_owned(), what }
    }

    pub(crate) fn release(redis_key: &str, holder: &HolderId) -> Self {
        Self { redis_key: redis_key.to_owned(), what: What::Release { id: released_id(holder) } }
    }

    pub(crate) fn is_release(&self) -> bool {
        matches!(self.what, What::Release { .. })
    }
}

/// The call for these requests, and the index of each in the replies.
pub(crate) fn call(requests: &[Common]) -> (Call, Box<[usize]>) {
    let of = |release: bool| requests.iter().filter(move |common| common.is_release() == release);
    let (releases, claims) = (of(true).count(), of(false).count());
    let mut call = Call::of_keys(&COMBINED, 2 * releases + 3 * claims);
    for (release, sides) in [(true, &["line"][..]), (false, &["line", "fence"])] {
        for common in of(release) {
            call = call.arg(&common.redis_key);
        }
        for side in sides {
            for common in of(release) {
                call = call.arg_of(SideKeys::of(&common.redis_key).name(side));
            }
        }
    }
    call = call.arg(releases);
    for common in of(true).chain(of(false)) {
        call = match &common.what {
            What::Release { id } => call.arg(id),
            What::Claim { holder, ttl_ms, wanted } => call.arg_of(holder.wire()).arg(ttl_ms).arg(wanted),
        };
    }
    let (mut release, mut claim) = (0..releases, releases..);
    let next = |common: &Common| if common.is_release() { release.next() } else { claim.next() };
    let positions = requests.iter().filter_map(next).collect();
    (call, positions)
}

/// The reply to the request with this index, in the reply to all of them.
pub(crate) fn answer(reply: &Value, index: usize, is_release: bool) -> RedisResult<Option<Value>> {
    match reply {
        Value::Array(answers) => Ok(answers.get(index).cloned()),
        // Each is the common case, and this is the last token of every claim.
        Value::Int(last) => Ok(Some(Value::Int(if is_release { 1.min(*last) } else { *last }))),
        _ => Err((ErrorKind::Parse, "the reply to several locks is neither a number nor an array").into()),
    }
}
