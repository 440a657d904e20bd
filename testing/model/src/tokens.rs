use super::server::{CLAMP_US, FENCE_MAX, Server};

/// The requested tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    /// The time of the client.
    pub(super) client_us: u64,
    /// Whether `client_us` is the token that a quorum proposes to its nodes.
    pub(super) proposed: bool,
    pub(super) wanted: u64,
}

impl Tokens {
    /// The last token after `previous`, and the number of tokens.
    pub(super) fn after(&self, previous: u64, server: &Server) -> (u64, u64) {
        if self.proposed { self.proposed_after(previous, server) } else { self.own_after(previous, server) }
    }

    /// The block ends at the time of the server, or one above `previous`, and may start right after `previous`; a single
    /// token if the previous one is unknown.
    fn own_after(&self, previous: u64, server: &Server) -> (u64, u64) {
        let token = server.clock_us(self.client_us).max(previous + 1);
        let room = if previous == 0 { 1 } else { token - previous };
        (token, self.wanted.min(room))
    }

    /// Starts above the previous token, and otherwise at the proposal, within the limit of the clock of the server.
    /// Tokens more than a second ahead of that clock are not granted, except one. What remains of a block is a power of two, because
    /// other nodes with clocks that differ a little must grant the same block.
    fn proposed_after(&self, previous: u64, server: &Server) -> (u64, u64) {
        let now = server.clock_us(self.client_us);
        let clamped = if server.time_refused {
            self.client_us
        } else {
            self.client_us.clamp(server.now_us.saturating_sub(CLAMP_US), server.now_us + CLAMP_US)
        };
        let ceiling = now.saturating_add(CLAMP_US).min(FENCE_MAX);
        let room = ceiling.saturating_sub(previous).max(1);
        let powers = std::iter::successors(Some(1), |power| Some(power * 2)).take_while(|power| *power <= room);
        let count = if self.wanted <= room { self.wanted.max(1) } else { powers.max().unwrap_or(1) };
        let token = clamped.max(previous + count);
        (token, count.min(token - now.saturating_sub(CLAMP_US) + 1))
    }
}
