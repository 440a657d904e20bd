//! Mutants that remove rules of the scripts for readers and permits, by changing the state of a key before or after a
//! script.

use super::Mutant;
use fencelock_core::Mode;
use fencelock_model::{Claim, KeyModel, Lock, Server, Value};

/// State that a mutant saves before a claim and restores after it.
#[derive(Debug, Default)]
pub(super) struct Before {
    lock: Option<Lock>,
}

pub(super) fn before_claim(mutant: Option<Mutant>, server: &Server, key: &mut KeyModel, claim: &Claim) -> Before {
    match mutant {
        Some(Mutant::UncountedPermits) => {
            key.held.used.iter_mut().for_each(|used| *used = 0);
        }
        Some(Mutant::EndsWithItsFirst) => {
            key.expire(server);
            return Before { lock: key.lock.clone() };
        }
        Some(Mutant::ReadsBesideWriters) if claim.mode == Mode::Shared => {
            key.expire(server);
            let is_writer = |lock: &mut Lock| lock.value.holder().is_some_and(|holder| holder != claim.holder);
            return Before { lock: key.lock.take_if(is_writer) };
        }
        _ => {}
    }
    Before::default()
}

pub(super) fn after_claim(mutant: Option<Mutant>, server: &Server, key: &mut KeyModel, before: Before) {
    let Before { lock: Some(before) } = before else { return };
    match mutant {
        Some(Mutant::EndsWithItsFirst) => {
            let same = key.lock.as_mut().filter(|lock| lock.value == before.value);
            if let Some(lock) = same.filter(|lock| matches!(lock.value, Value::Shared { .. })) {
                lock.expires_ms = before.expires_ms;
            }
        }
        // The writer keeps its lock; the readers lose theirs with the next renewal.
        _ => key.lock = Some(before),
    }
    key.expire(server);
}

pub(super) fn before_release(mutant: Option<Mutant>, key: &mut KeyModel, holder: u128) {
    let is_held = key.holds.ends_ms.contains_key(&holder);
    if mutant == Some(Mutant::FreesTwice) && !is_held {
        key.held.used.iter_mut().for_each(|used| *used = used.saturating_sub(1));
    }
}
