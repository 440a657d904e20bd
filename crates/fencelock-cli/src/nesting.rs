//! Locks that this program runs under. Waiting for one of them would deadlock.

use crate::child_socket::Variable;
use crate::exit::{Exit, Failure};
use crate::keeper::is_of;
use crate::paths::is_part;
use crate::plan::Plan;
use crate::proc::{Ancestor, arguments_of};
use crate::text::plain;
use fencelock::{Client, HolderId, HolderInfo, Holding, Mode, Occupant, TreePath};
use serde_json::{Value, json};
use std::path::Path;

/// The key of the innermost lock, or the keys of the innermost locks, one in each line, their holder ids likewise, and their backend;
/// outer locks are in [`OUTER`].
const KEY: &str = "FENCELOCK_KEY";
const KEYS: &str = "FENCELOCK_KEYS";
const HOLDER: &str = "FENCELOCK_HOLDER";
const HOLDERS: &str = "FENCELOCK_HOLDERS";
const BACKEND: &str = "FENCELOCK_BACKEND";
/// JSON: arrays of a key, its backend and the holder id. Earlier versions write no holder id.
const OUTER: &str = "FENCELOCK_OUTER";

/// The locks listed in the environment, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nesting {
    locks: Vec<OuterLock>,
}

/// A lock that a program around this one has acquired.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OuterLock {
    key: String,
    /// Unknown if another version started this program.
    backend: Option<String>,
    /// Unknown if another version acquired the lock.
    holder: Option<String>,
}

impl Nesting {
    pub(crate) fn of_this_process() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let outer = match variable(OUTER).as_deref().map(serde_json::from_str) {
            Some(Ok(Value::Array(locks))) => locks.iter().filter_map(outer_lock).collect(),
            // Ignore an unrelated variable of that name.
            _ => Vec::new(),
        };
        let backend = variable(BACKEND).filter(|backend| !backend.is_empty());
        let lines = |name| variable(name).iter().flat_map(|text| text.lines()).map(str::to_owned).collect::<Vec<_>>();
        let (mut keys, mut holders) = (lines(KEYS), lines(HOLDERS));
        if let Some(key) = variable(KEY).filter(|key| !keys.contains(key)) {
            keys.push(key);
            holders = variable(HOLDER).into_iter().collect();
        }
        let mut holders = Some(holders).filter(|holders| holders.len() == keys.len()).unwrap_or_default().into_iter();
        let innermost = keys.into_iter().map(|key| OuterLock { key, backend: backend.clone(), holder: holders.next() });
        Self { locks: innermost.chain(outer).collect() }
    }

    /// The keys of these locks.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(|lock| lock.key.as_str())
    }

    /// The known locks of this key on this backend. The same key on another backend is another lock.
    fn of<'a>(&'a self, key: &'a str, backend: &'a str) -> impl Iterator<Item = &'a OuterLock> {
        let same = move |lock: &OuterLock| lock.backend.as_deref().is_none_or(|known| known == backend);
        self.locks.iter().filter(move |lock| lock.key == key && same(lock))
    }

    /// Refuses to wait for `key` on `backend` if this program runs under it. A program may outlive the one that acquired the lock, so
    /// the backend is asked whether that holder still has it.
    pub(crate) async fn check(&self, key: &str, backend: &str, client: &Client) -> Result<(), Failure> {
        for lock in self.of(key, backend) {
            let holder = lock.holder.as_deref().and_then(|holder| holder.parse::<HolderId>().ok());
            let is_held = match holder {
                Some(holder) => {
                    client.inspect(key).await.map(|found| found.is_some_and(|found| may_have(&found, holder)))
                }
                None => Ok(true),
            };
            let (key, named) = (plain(key), "(FENCELOCK_KEYS, FENCELOCK_OUTER)");
            match is_held {
                Ok(false) => {}
                Ok(true) => {
                    let why = format!(
                        "{key} is the lock that this program runs under {named}, and it is held until this program exits: \
                         waiting would deadlock; use another key, or --nested-ok if that lock is released"
                    );
                    return Err(Failure::new(Exit::Usage, why));
                }
                Err(cause) => {
                    let why = format!(
                        "{key} is the lock that this program was started under {named}, and whether it is still held is \
                         unknown: {cause:#}; use --nested-ok if that lock is released"
                    );
                    return Err(Failure::new(Exit::Unreachable, why));
                }
            }
        }
        Ok(())
    }

    /// The keys of a path that this program runs under, and which it need not claim: others may wait for them in vain. A command under
    /// an exclusive lock may lock what is below it, and one under any lock what is beside it.
    ///
    /// # Errors
    /// It would wait for itself.
    pub(crate) async fn has(&self, plan: &Plan, backend: &str, client: &Client) -> Result<Vec<String>, Failure> {
        let (locks, is_run, mut has) = (plan.of_path().unwrap_or_default(), !plan.command.is_empty(), Vec::new());
        for lock in &locks {
            let names = self.keys().filter(|name| is_part(lock, name));
            for OuterLock { key, holder, .. } in names.flat_map(|name| self.of(name, backend)) {
                let Some(found) = client.inspect(key).await? else { continue };
                let is_it = |hold: &&HolderInfo| hold.holder_id().map(|id| id.to_string()) == *holder;
                let Some(outer) = found.holders.iter().find(is_it).map(|hold| hold.mode) else { continue };
                if outer.same_class(lock.1) || is_run && outer == Mode::Exclusive && lock.1 == Mode::Shared {
                    has.push(key.clone());
                    break;
                }
                let (path, on) = (&plan.keys[0], TreePath::of_key(key).unwrap_or_default());
                let why = format!(
                    "{path}: this program runs under a lock on {on} or below it (FENCELOCK_KEYS, FENCELOCK_OUTER), which it would wait \
                     for until it exits; use --nested-ok if that lock is released"
                );
                return Err(Failure::new(Exit::Usage, why));
            }
        }
        // A reader under a reader of the same path.
        has.truncate(locks.len().saturating_sub(1));
        Ok(if is_run { has } else { Vec::new() })
    }

    /// Refuses to wait for one of the slots of `key` if this program runs under all of them.
    pub(crate) async fn check_slots(
        &self,
        key: &str,
        slots: u32,
        backend: &str,
        client: &Client,
    ) -> Result<(), Failure> {
        let mut refused = Ok(());
        for slot in 0..slots {
            refused = self.check(&format!("{key}#{slot}"), backend, client).await;
            if refused.is_ok() {
                break;
            }
        }
        refused
    }

    /// The environment of a command that runs under these locks too.
    pub(crate) fn with(&self, keys: &[String], backend: &str) -> Vec<Variable> {
        let outer: Value = self.locks.iter().map(|lock| json!([lock.key, lock.backend, lock.holder])).collect();
        let around = [(BACKEND, Some(backend.to_owned())), (OUTER, Some(outer.to_string()))];
        of_each(KEY, KEYS, keys).into_iter().chain(around).collect()
    }
}

/// Refuses to wait for a lock of a `fencelock` that this program runs under, although the environment, which `sudo` and `env -i` clear, does
/// not say so. The record names the host and the process, and the arguments of that process name the key: it may be that of another
/// container under the same host name. Without an answer of the backend nothing is refused.
pub(crate) async fn held_by_ancestor(ancestors: &[Ancestor], awaited: &Plan, client: &Client) -> Option<Failure> {
    let above: Vec<_> = ancestors.iter().filter_map(|above| Some((above.pid, arguments(above.pid)?))).collect();
    for key in &awaited.keys {
        let names_key =
            |words: &[String]| words.iter().any(|word| word == key || word.strip_prefix("--also=") == Some(key));
        let above: Vec<_> = above.iter().filter(|(_, words)| names_key(words)).map(|(pid, _)| *pid).collect();
        if above.is_empty() {
            continue;
        }
        let key = if awaited.slots == Some(1) { format!("{key}#0") } else { key.clone() };
        let Ok(Some(found)) = client.inspect(&key).await else { continue };
        let holds = |hold: &&HolderInfo| {
            let Occupant::Holder(holder) = &hold.occupant else { return false };
            (hold.mode == Mode::Exclusive || awaited.mode == Mode::Exclusive)
                && above.iter().any(|pid| is_of(&holder.owner, *pid))
        };
        if let Some(hold) = found.holders.iter().find(holds) {
            let why = format!(
                "{key} is held by {}, which this program runs under, although its environment does not say so (sudo and env -i clear \
                 it): waiting would deadlock; use another key, or --nested-ok if that lock is released",
                hold.occupant
            );
            return Some(Failure::new(Exit::Usage, why));
        }
    }
    None
}

/// The arguments of a process that runs this program.
fn arguments(pid: i32) -> Option<Vec<String>> {
    let words = arguments_of(pid);
    let program = |path: &str| Path::new(path).file_name().map(ToOwned::to_owned);
    (program(words.first()?) == program(&std::env::args().next()?)).then_some(words)
}

/// Two variables: for the only value, and for all. With several, the one for a single value is removed, so that a script does not
/// mistake the first one for all.
pub(crate) fn of_each(only: &'static str, all: &'static str, values: &[String]) -> [Variable; 2] {
    [(only, if let [value] = values { Some(value.clone()) } else { None }), (all, Some(values.join("\n")))]
}

/// Whether this holder is listed, or one of the holders that are not.
fn may_have(found: &Holding, holder: HolderId) -> bool {
    let listed = found.holders.iter().count();
    found.has(holder) || u32::try_from(listed).is_ok_and(|listed| listed < found.holders.count())
}

fn outer_lock(value: &Value) -> Option<OuterLock> {
    let text = |index: usize| value.get(index).and_then(Value::as_str).map(str::to_owned);
    Some(OuterLock { key: text(0)?, backend: text(1), holder: text(2) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The environment of a command under these locks, as variables.
    fn inside(outer: &Nesting, keys: &[&str], backend: &str, holders: Option<&str>) -> Nesting {
        let keys: Vec<_> = keys.iter().map(|&key| key.to_owned()).collect();
        let variables = outer.with(&keys, backend);
        Nesting::read(|name| {
            let set = variables.iter().find(|(known, _)| *known == name).and_then(|(_, value)| value.clone());
            set.or_else(|| holders.filter(|_| name == HOLDERS).map(str::to_owned))
        })
    }

    fn none() -> Nesting {
        Nesting::read(|_| None)
    }

    fn under(locks: &[(&str, &str)]) -> Nesting {
        locks.iter().fold(none(), |outer, (key, backend)| inside(&outer, &[key], backend, None))
    }

    fn matches(nesting: &Nesting, key: &str, backend: &str) -> bool {
        nesting.of(key, backend).next().is_some()
    }

    #[test]
    fn each_of_several_locks_counts() {
        let nesting = inside(&inside(&none(), &["a", "b c"], "file:/x", None), &["d"], "file:/y", None);
        for (key, backend) in [("a", "file:/x"), ("b c", "file:/x"), ("d", "file:/y")] {
            assert!(matches(&nesting, key, backend), "{key}");
        }
        assert!(!matches(&nesting, "a", "file:/y") && !matches(&nesting, "b", "file:/x"));
    }

    #[test]
    fn only_the_same_key_on_the_same_backend_is_a_match() {
        let nesting = under(&[("k", "redis://a:6379")]);
        assert!(matches(&nesting, "k", "redis://a:6379"));
        assert!(!matches(&nesting, "k", "redis://b:6379") && !matches(&nesting, "j", "redis://a:6379"));
        assert!(!matches(&none(), "k", "redis://a:6379"));
    }

    #[test]
    fn locks_further_out_count_too() {
        let nesting = under(&[("a", "file:/x"), ("b", "file:/y"), ("c", "file:/x")]);
        for (key, backend) in [("a", "file:/x"), ("b", "file:/y"), ("c", "file:/x")] {
            assert!(matches(&nesting, key, backend), "{key}");
        }
        assert!(!matches(&nesting, "b", "file:/x"));
    }

    #[test]
    fn a_backend_that_is_not_known_may_be_the_same() {
        let only = |name: &str| (name == KEY).then(|| "k".to_owned());
        assert!(matches(&Nesting::read(only), "k", "redis://a"));
        let broken = |name: &str| match name {
            BACKEND => Some(String::new()),
            OUTER => Some("nonsense".to_owned()),
            _ => only(name),
        };
        assert!(matches(&Nesting::read(broken), "k", "x"));
    }

    #[test]
    fn each_lock_has_its_holder_also_further_out() {
        let two = inside(&none(), &["a", "b"], "file:/x", Some("1\n2"));
        let three = inside(&two, &["c"], "file:/x", Some("3"));
        let holders = |nesting: &Nesting| {
            let locks = nesting.locks.iter();
            locks.map(|lock| (lock.key.clone(), lock.holder.clone().unwrap_or_default())).collect::<Vec<_>>()
        };
        let expected = [("c", "3"), ("a", "1"), ("b", "2")].map(|(key, holder)| (key.to_owned(), holder.to_owned()));
        assert_eq!(holders(&three), expected);
        let unpaired = inside(&none(), &["a", "b"], "file:/x", Some("1"));
        assert!(unpaired.locks.iter().all(|lock| lock.holder.is_none()), "{unpaired:?}");
    }

    #[test]
    fn an_outer_lock_of_an_earlier_version_has_no_holder() {
        let old = Nesting::read(|name| (name == OUTER).then(|| r#"[["k","file:/x"],["j",null]]"#.to_owned()));
        assert!(matches(&old, "k", "file:/x") && matches(&old, "j", "file:/y"));
        assert!(old.locks.iter().all(|lock| lock.holder.is_none()));
    }
}
