use super::lua::{Commands, Lua};
use super::quarantine::{EpochCheck, Quarantine};
use crate::scripts::side_key::SideKeys;
use redis::{Cmd, RedisWrite, ToRedisArgs};
use std::cell::RefCell;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

/// The side keys of a lock.
pub(crate) const SIDE: [&str; 6] = ["fence", "line", "waiters", "alive", "holds", "held"];

/// A side key that never exists: see `lock.lua`.
pub(crate) const ABSENT_KEY: &str = "absent";

/// The side key of a completion.
pub(crate) const COMPLETION_KEY: &str = "once";

/// A call of a script, which is sent by digest first, and in full if the server has not cached it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) lua: &'static Lua,
    pub(crate) by_digest: Cmd,
    pub(crate) tracked: bool,
}

impl Call {
    /// A call with an epoch check, which must also be its last arguments: [`Call::epoch_check`]. `redis_key` is the name of the lock on
    /// the server; its side keys follow, as the scripts expect.
    pub(crate) fn checked(lua: &'static LazyLock<Lua>, redis_key: &str, epoch_check: EpochCheck<'_>) -> Self {
        Self::marked(lua, redis_key, &SIDE, epoch_check)
    }

    /// A call that declares only the keys of the common case, if the server lets the script use undeclared keys. The epoch check
    /// must be among its arguments: `packed_check`.
    pub(crate) fn brief(lua: &'static LazyLock<Lua>, redis_key: &str, epoch_check: EpochCheck<'_>) -> Self {
        let side = if epoch_check.derives_keys { &SIDE[..2] } else { &SIDE };
        Self::marked(lua, redis_key, side, epoch_check)
    }

    pub(crate) fn marked(
        lua: &'static LazyLock<Lua>,
        redis_key: &str,
        side: &[&str],
        epoch_check: EpochCheck<'_>,
    ) -> Self {
        let (mark, guards_slot) = (epoch_check.mark, epoch_check.guards_slot);
        // Reserves space for the digest, the names and the arguments, so that each needs one allocation.
        let mut by_digest = spare().unwrap_or_else(|| Cmd::with_capacity(22, 400 + (1 + side.len()) * redis_key.len()));
        let keys = 1 + side.len() + usize::from(mark.is_some() || guards_slot);
        by_digest.arg("EVALSHA").arg(&lua.digest).arg(keys).arg(redis_key);
        let names = SideKeys::of(redis_key);
        for what in side {
            by_digest.write_arg_fmt(names.name(what));
        }
        if let Some(mark) = mark {
            by_digest.arg(&mark.marker);
        } else if guards_slot {
            by_digest.write_arg_fmt(names.name(ABSENT_KEY));
        }
        Self { lua, by_digest, tracked: false }
    }

    /// Enables client tracking of the keys, if the server supports it: the server then reports changes by other programs.
    pub(crate) fn tracked(mut self, tracked: bool) -> Self {
        self.tracked = tracked;
        self
    }

    /// A script for the completion of a lock.
    pub(crate) fn of_completion(lua: &'static LazyLock<Lua>, redis_key: &str, mark: Option<&Quarantine>) -> Self {
        let call = Self::of_keys(lua, 2 + usize::from(mark.is_some())).arg(redis_key);
        let call = call.arg_of(SideKeys::of(redis_key).name(COMPLETION_KEY));
        mark.into_iter().fold(call, |call, mark| call.arg(&mark.marker))
    }

    /// A script for a lock, and for its completion, which follows the side keys.
    pub(crate) fn with_completion(lua: &'static LazyLock<Lua>, redis_key: &str) -> Self {
        let side: Vec<&str> = SIDE.into_iter().chain([COMPLETION_KEY]).collect();
        Self::marked(lua, redis_key, &side, EpochCheck::without_marker(""))
    }

    /// A script that uses this many keys, which follow as its first arguments.
    pub(crate) fn of_keys(lua: &'static LazyLock<Lua>, keys: usize) -> Self {
        // Reserves space for the digest, the names and the arguments.
        let mut by_digest = Cmd::with_capacity(4 + 2 * keys, 128 + 64 * keys);
        by_digest.arg("EVALSHA").arg(&lua.digest).arg(keys);
        Self { lua, by_digest, tracked: false }
    }

    /// A script that only uses a marker.
    pub(crate) fn of_marker(lua: &'static LazyLock<Lua>, quarantine: &Quarantine, run_id: &str, trust: bool) -> Self {
        Self::of_keys(lua, 1)
            .arg(&quarantine.marker)
            .arg(run_id)
            .arg(millis(quarantine.span()))
            .arg(&quarantine.quorum)
            .arg(&quarantine.nodes)
            .arg(if trust { "trust" } else { "wait" })
    }

    pub(crate) fn epoch_check(self, epoch_check: EpochCheck<'_>) -> Self {
        epoch_check.mark.into_iter().fold(self.arg(epoch_check.epoch), |call, mark| call.arg(&mark.quorum))
    }

    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.by_digest.arg(arg);
        self
    }

    /// An argument that is written here and nowhere else.
    pub(crate) fn arg_of(mut self, arg: impl fmt::Display) -> Self {
        self.by_digest.write_arg_fmt(arg);
        self
    }

    pub(crate) fn in_full(&self) -> Cmd {
        self.sent_by(Commands::USUAL)
    }

    /// The call with the complete script.
    pub(crate) fn sent_by(&self, commands: Commands) -> Cmd {
        commands.in_full(self.lua, &self.by_digest)
    }

    /// The same as a part of a trial for `doctor`, or not: nothing that it writes stays.
    pub(crate) fn of_trial(mut self, in_trial: bool) -> Self {
        if in_trial {
            self.by_digest = self.lua.in_trial(&self.by_digest);
        }
        self
    }

    /// The script and whether it is tracked, and the call by digest.
    pub(crate) fn into_parts(mut self) -> ((&'static Lua, bool), Cmd) {
        ((self.lua, self.tracked), std::mem::take(&mut self.by_digest))
    }
}

/// The number of commands that a thread keeps, and the number of their arguments: a claim has 20 of them at most.
const KEPT: usize = 8;
const KEPT_ARGS: usize = 24;

thread_local! {
    /// Commands that were sent: the next ones use their memory.
    static SPARE: RefCell<Vec<Cmd>> = const { RefCell::new(Vec::new()) };
}

fn spare() -> Option<Cmd> {
    SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten()
}

impl Drop for Call {
    fn drop(&mut self) {
        let arguments = self.by_digest.args_iter().len();
        if arguments == 0 || arguments > KEPT_ARGS {
            return;
        }
        // Without the thread's storage, the thread is ending.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT {
                let mut command = std::mem::take(&mut self.by_digest);
                command.clear();
                spare.push(command);
            }
        });
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
