use super::Driver;
use super::key_cell::{Engine, KeyCell};
use fencelock_core::{Event, Listener};

/// Forwards the events of the backend to the keys that they concern.
impl Listener for Driver {
    fn event(&self, event: &Event) {
        match event {
            Event::Handed { key, holder, tokens, claim_ttl } => {
                let mut cells = self.keys.of_key(key);
                let waits =
                    cells.any(|cell| cell.with(|engine, cx| engine.on_hand_off(*holder, *tokens, *claim_ttl, cx)));
                if !waits {
                    self.reaper.release_undelivered(key, *holder);
                }
            }
            Event::Changed { key } => {
                for cell in self.keys.of_key(key) {
                    cell.with(Engine::on_changed);
                }
            }
            Event::Queued { key } => {
                for cell in self.keys.of_key(key) {
                    cell.with(Engine::on_queued);
                }
            }
            // A reset, or an event that this version does not know: a poll is always correct.
            _ => self.reset(),
        }
    }
}

impl Driver {
    /// See [`Action::Queued`](fencelock_core::engine::Action::Queued).
    pub(super) fn queued_here(&self, cell: &KeyCell) {
        for other in self.keys.of_key(&cell.key).filter(|other| **other != *cell) {
            other.with(Engine::on_queued);
        }
    }

    /// Any key may have changed, so all holds are renewed soon.
    fn reset(&self) {
        for cell in self.keys.all() {
            let after = self.timers.after_reset(self.rng.next());
            cell.with(|engine, cx| engine.on_reset(after, cx));
        }
    }
}
