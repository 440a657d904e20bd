//! What others do to a record.
#![allow(clippy::unwrap_used)]

use fencelock_core::{Acquire, Backend, ManualClock, Release, Renew, Renewal};
use fencelock_register::RegisterLocks;
use fencelock_testkit::{MemoryRegister, claim};
use futures_util::future::FutureExt;
use std::sync::Arc;
use std::time::Duration;

fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("a store in memory answers at once")
}

#[test]
fn a_deleted_record_is_a_loss_whose_tokens_do_not_come_back_and_that_of_another_program_stays() {
    let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
    let store = MemoryRegister::with_clock(clock.clone(), Duration::from_secs(1));
    let [one, other] = [(); 2].map(|()| RegisterLocks::new(Arc::new(store.clone())).with_clock(clock.clone()));
    let [first, second] = [(); 2].map(|()| claim("orders", Duration::from_secs(30)));
    let renewal = [Renewal::new(first.key.clone(), first.holder.id, first.ttl)];
    let Ok(Acquire::Granted { tokens: before }) = now(one.acquire(&first)).answer else { panic!("it is free") };
    store.delete(&first.key);
    assert_eq!(now(one.renew(&renewal)), [Ok(Renew::Absent)]);
    assert_eq!(now(one.inspect(&first.key)), Ok(None));
    // In the second of the last write, the clock of the store cannot tell them apart.
    clock.advance(Duration::from_secs(1));
    let Ok(Acquire::Granted { tokens }) = now(other.acquire(&second)).answer else { panic!("it is free again") };
    assert!(tokens.last() > before.last());
    assert!(matches!(now(one.renew(&renewal))[..], [Ok(Renew::TakenBy(_))]));
    assert!(matches!(now(one.release(&first.key, &first.holder.id)), Ok(Release::TakenBy(_))));
    store.put(&first.key, "a photograph");
    assert!(matches!(now(other.release(&second.key, &second.holder.id)), Ok(Release::TakenBy(_))));
    assert!(matches!(now(one.acquire(&first)).answer, Ok(Acquire::Busy(_))));
    assert_eq!(store.get(&first.key).unwrap(), b"a photograph");
}
