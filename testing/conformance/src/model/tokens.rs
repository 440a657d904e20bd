use super::server::{CLAMP_US, FENCE_MAX, Server};

/// Which tokens a grant asks for.
#[derive(Debug)]
pub(super) struct Tokens {
    /// The client's time.
    pub(super) client_us: u64,
    /// Whether that is the token that a quorum proposes to its nodes.
    pub(super) proposed: bool,
    pub(super) wanted: u64,
}

impl Tokens {
    /// The last of them after `previous`, and how many end with it.
    pub(super) fn after(&self, previous: u64, server: &Server) -> (u64, u64) {
        if self.proposed { self.proposed_after(previous, server) } else { self.own_after(previous, server) }
    }

    /// They end with the server's time, or one above the last, and reach down to the last; one where none is remembered.
    fn own_after(&self, previous: u64, server: &Server) -> (u64, u64) {
        let token = server.clock_us(self.client_us).max(previous + 1);
        let room = if previous == 0 { 1 } else { token - previous };
        (token, self.wanted.min(room))
    }

    /// Above the last one by as many as are wanted, and otherwise the proposal, as far as the server's clock bears it out.
    /// Tokens that would lie more than a second off that clock are not given, but one is always.
    fn proposed_after(&self, previous: u64, server: &Server) -> (u64, u64) {
        let now = server.clock_us(self.client_us);
        let clamped = if server.time_refused {
            self.client_us
        } else {
            self.client_us.clamp(server.now_us.saturating_sub(CLAMP_US), server.now_us + CLAMP_US)
        };
        let ceiling = now.saturating_add(CLAMP_US).min(FENCE_MAX);
        let count = self.wanted.min(ceiling.saturating_sub(previous)).max(1);
        let token = clamped.max(previous + count);
        (token, count.min(token - now.saturating_sub(CLAMP_US) + 1))
    }
}
