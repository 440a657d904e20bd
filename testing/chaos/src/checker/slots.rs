//! C10: a slot that is granted is one of its set, and its key has its number.
//!
//! Each slot is a key of its own, so the other checks apply to each of them. Together they bound the holders of a set: by C3
//! there is one for each key, and by C10 there are as many keys as slots.

use super::view::KeyView;
use super::violation::{Check, Violation};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    for hold in &view.holds {
        let Some(slot) = hold.acquire.slot else { continue };
        let is_of_key = key.rsplit_once('#').is_some_and(|(_, number)| number == slot.number.to_string());
        if slot.number >= slot.slots || !is_of_key {
            found.push(Violation {
                check: Check::C10,
                key: key.to_owned(),
                lines: vec![hold.number],
                span_us: (hold.asked(), hold.start()),
                text: format!("{} was granted {slot} as this key", hold.acquire.client),
            });
        }
    }
}
