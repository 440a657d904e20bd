use crate::{Drift, Lease, Moment, TokenBlock, Ttl};
use std::time::Duration;

/// How far a token may be ahead of the clock of the server.
const SLACK: Duration = Duration::from_secs(1);

/// The last claim of a waiter that was answered with a position in the queue. Hand-off messages are compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct QueuePosition {
    /// The time just before it was sent.
    pub sent: Moment,
    /// The greatest fencing token by then; 0 if none.
    pub last_fence: u64,
    /// The time of the server's clock, in microseconds since 1970; `None` if messages cannot be forged.
    pub server_micros: Option<u64>,
}

impl QueuePosition {
    /// The position of a claim that was sent at this time.
    pub const fn new(sent: Moment, last_fence: u64, server_micros: Option<u64>) -> Self {
        Self { sent, last_fence, server_micros }
    }

    /// The lease that a hand-off message gives to a waiter that requested `ttl`, if the message is valid.
    ///
    /// A first token greater than the greatest one at the last answered claim means that the key was handed over after that
    /// claim was executed, and so after it was sent. Counting `claim_ttl` from there is therefore safe, however late the
    /// message is. If the message is late, or has no claim TTL, the waiter polls instead.
    ///
    /// Any client that may publish on the channel can forge a message, so it is limited to what the server could have
    /// granted: the lease is not longer than requested, and the tokens are not ahead of the server's time.
    pub fn accept_hand_off(
        self,
        tokens: TokenBlock,
        claim_ttl: Duration,
        ttl: Ttl,
        drift: Drift,
        now: Moment,
    ) -> Option<Lease> {
        let claim_ttl = claim_ttl.min(ttl.get());
        let lease = Lease::granted(self.sent, claim_ttl, drift);
        let in_time = !claim_ttl.is_zero() && lease.remaining(now) >= claim_ttl / 4;
        let is_new = tokens.first().get() > self.last_fence;
        (in_time && is_new && self.could_have_given(tokens, drift, now)).then_some(lease)
    }

    fn could_have_given(self, tokens: TokenBlock, drift: Drift, now: Moment) -> bool {
        let Some(server_micros) = self.server_micros else { return true };
        let passed = now.since(self.sent);
        let furthest = passed + drift.of(passed) + SLACK;
        let furthest = u64::try_from(furthest.as_micros()).unwrap_or(u64::MAX);
        // A fence ahead of the time continues from its value.
        tokens.last().get() <= server_micros.max(self.last_fence).saturating_add(furthest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FencingToken;

    const NOW: u64 = 1_780_000_000_000_000;
    const SECOND: u64 = 1_000_000;

    fn position(last_fence: u64) -> QueuePosition {
        QueuePosition { sent: Moment::from_micros(SECOND), last_fence, server_micros: Some(NOW) }
    }

    /// The remaining lease of a message with this token and claim TTL, half a second after the claim was sent.
    fn remaining(position: QueuePosition, token: u64, claim_ttl: u64) -> Option<u128> {
        let now = Moment::from_micros(SECOND + SECOND / 2);
        let (tokens, ttl) = (FencingToken::new(token).unwrap().into(), Ttl::new(Duration::from_secs(10)).unwrap());
        let lease = position.accept_hand_off(tokens, Duration::from_millis(claim_ttl), ttl, Drift::default(), now)?;
        Some(lease.remaining(now).as_millis())
    }

    #[test]
    fn a_lease_counts_from_the_last_answered_claim() {
        assert_eq!(remaining(position(NOW - 9), NOW + 1, 3000), Some(3000 - 32 - 500));
    }

    #[test]
    fn a_token_that_is_not_new_is_of_an_old_message() {
        assert_eq!(remaining(position(NOW), NOW, 3000), None);
    }

    #[test]
    fn a_message_that_is_late_in_its_claim_ttl_is_left_to_a_poll() {
        assert_eq!(remaining(position(0), NOW, 600), None);
        assert_eq!(remaining(position(0), NOW, 0), None);
    }

    #[test]
    fn no_message_gives_a_longer_lease_than_requested() {
        assert_eq!(remaining(position(0), NOW, 86_400_000), Some(10_000 - 102 - 500));
    }

    #[test]
    fn no_message_gives_a_token_beyond_the_servers_time() {
        assert!(remaining(position(0), NOW + SECOND + SECOND / 2, 3000).is_some());
        assert_eq!(remaining(position(0), NOW + 2 * SECOND, 3000), None);
        assert_eq!(remaining(position(0), FencingToken::MAX, 3000), None);
    }

    #[test]
    fn a_fence_ahead_of_the_time_keeps_increasing() {
        assert!(remaining(position(NOW + 900 * SECOND), NOW + 900 * SECOND + 1, 3000).is_some());
        assert_eq!(remaining(position(NOW + 900 * SECOND), NOW + 902 * SECOND, 3000), None);
    }

    #[test]
    fn without_a_channel_that_others_can_write_there_is_no_bound() {
        let position = QueuePosition { server_micros: None, ..position(0) };
        assert!(remaining(position, FencingToken::MAX, 3000).is_some());
    }
}
