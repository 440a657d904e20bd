use super::Driver;
use super::key_cell::Engine;
use fencelock_core::{Event, Listener};

/// Forwards the events of the backend to the keys that they concern.
impl Listener for Driver {
    fn event(&self, event: &Event) {
        match event {
            Event::Handed { key, holder, tokens, claim_ttl } => {
                let mut cells = self.keys.of_key(key);
                let waits =
                    cells.any(|cell| cell.with(|engine, cx| engine.on_hand_off(*holder, *tokens, *claim_ttl, cx)));
                if let Some(this) = self.this.upgrade().filter(|_| !waits) {
                    this.release_undelivered(key, *holder);
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
            // A reset, or an event that this version does not know: a poll is always correct. Any key may have changed, so all holds are
            // renewed soon.
            _ => {
                for cell in self.keys.all() {
                    let random = self.rng.next();
                    let after = self.timers.table().after_reset(random);
                    cell.with(|engine, cx| engine.on_reset(after, cx));
                }
            }
        }
    }
}
