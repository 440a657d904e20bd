//! The statements, and how values become their parameters.

use crate::url::Target;
use fencelock_core::{Claim, Intent, Mode};
use tokio_postgres::types::{ToSql, Type};

/// The statements that are sent often enough to be prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// The common case of [`Call::Acquire`], for roles that may update the table.
    Take,
    Acquire,
    Release,
    Downgrade,
    Resize,
    Tell,
    Renew,
    Locked,
    List,
    Handed,
    Evict,
    Forget,
    ReadCompletion,
    WriteCompletion,
    ClearCompletion,
}

pub(crate) const CALLS: usize = Call::ClearCompletion as usize + 1;

/// The text of each [`Call`].
pub(crate) fn texts(target: &Target) -> [String; CALLS] {
    let schema = target.quoted_schema();
    // One moment for the whole statement. It may be earlier than that of the grant, and is later than that of the claim: so the lease is at
    // least as long as its holder assumes.
    let now = "(date_part('epoch', statement_timestamp()) * 1000000::float8)::bigint";
    [
        format!(
            "UPDATE {schema}.locks SET holder = $2, owner = $3, channel = $6, since = {now}, ends = {now} + $4::bigint, \
             fence = greatest(fence + 1, {now}), \
             count = CASE WHEN fence = 0 THEN 1 ELSE greatest(least($5::int, {now} - fence), 1) END \
             WHERE key = $1 AND waiting = 0 AND ends <= {now} RETURNING fence, count"
        ),
        format!("SELECT * FROM {schema}.acquire_1($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
        format!("SELECT * FROM {schema}.release_1($1, $2)"),
        format!("SELECT * FROM {schema}.downgrade_1($1, $2, $3)"),
        format!("SELECT * FROM {schema}.resize_1($1, $2)"),
        format!("SELECT {schema}.tell_1($1)"),
        format!("SELECT * FROM {schema}.renew_1($1, $2, $3, $4)"),
        format!("SELECT {schema}.locked_1($1)"),
        format!("SELECT * FROM {schema}.list_1($1)"),
        format!("SELECT * FROM {schema}.handed_1($1, $2)"),
        format!("SELECT * FROM {schema}.evict_1($1, $2)"),
        format!("SELECT {schema}.forget_1($1)"),
        format!("SELECT * FROM {schema}.read_completion_1($1)"),
        format!("SELECT {schema}.write_completion_1($1, $2, $3, $4, $5, $6)"),
        format!("SELECT {schema}.clear_completion_1($1, $2)"),
    ]
}

/// A value with its type: the types are not asked for.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

pub(crate) fn text(value: &(impl ToSql + Sync)) -> Param<'_> {
    (value, Type::TEXT)
}

pub(crate) fn bytes(value: &(impl ToSql + Sync)) -> Param<'_> {
    (value, Type::BYTEA)
}

/// Also one that may be missing.
pub(crate) fn number(value: &(impl ToSql + Sync)) -> Param<'_> {
    (value, Type::INT8)
}

pub(crate) fn small(value: &i32) -> Param<'_> {
    (value, Type::INT4)
}

pub(crate) fn texts_of(values: &(impl ToSql + Sync)) -> Param<'_> {
    (values, Type::TEXT_ARRAY)
}

pub(crate) fn byte_strings(values: &(impl ToSql + Sync)) -> Param<'_> {
    (values, Type::BYTEA_ARRAY)
}

pub(crate) fn numbers(values: &(impl ToSql + Sync)) -> Param<'_> {
    (values, Type::INT8_ARRAY)
}

/// The values of a claim.
pub(crate) struct ClaimValues<'a> {
    pub(crate) key: &'a str,
    pub(crate) holder: [u8; 16],
    pub(crate) owner: &'a str,
    pub(crate) ttl: i64,
    pub(crate) intent: i32,
    pub(crate) count: i32,
    /// As in the table of waiters.
    pub(crate) permits: i32,
    pub(crate) weight: i32,
}

impl<'a> ClaimValues<'a> {
    pub(crate) fn of(claim: &'a Claim) -> Self {
        Self {
            key: claim.key.as_str(),
            holder: claim.holder.id.to_bytes(),
            owner: claim.holder.owner.as_str(),
            ttl: micros(claim.ttl.get()),
            intent: match claim.queueing.intent {
                Intent::Try => 0,
                Intent::Enqueue => 1,
                Intent::Poll => 2,
            },
            count: signed(claim.queueing.block.get()),
            permits: if claim.mode == Mode::Exclusive { -1 } else { signed(claim.mode.limit().unwrap_or(0)) },
            weight: signed(claim.mode.weight()),
        }
    }
}

pub(crate) fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A duration for SQL. What is longer than any lease may be, is that long.
pub(crate) fn micros(span: std::time::Duration) -> i64 {
    const LONGEST: i64 = 1 << 50;
    i64::try_from(span.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_duration_overflows() {
        assert_eq!(micros(Duration::from_millis(3)), 3_000);
        assert!(micros(Duration::MAX) < i64::MAX / 4);
    }
}
