package fencelock

import "time"

// Expire makes the time that the server has told over, so long ago.
func (h *Held) Expire(ago time.Duration) {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	h.expires = time.Now().Add(-ago)
}
