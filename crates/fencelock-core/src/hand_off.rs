use crate::time::micros;
use crate::{Drift, Lease, Moment, TokenBlock, Ttl};
use std::time::Duration;

/// How far a token may be ahead of the clock of the server.
const SLACK: Duration = Duration::from_secs(1);

/// What the tokens of a hand-off message are compared with, as of the last claim that was answered with a position in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HandOffBounds {
    /// The greatest fencing token so far; 0 if none. A message with a token up to this is outdated.
    pub last_fence: u64,
    /// The time of the clock of the tokens, in microseconds since 1970, if it is that of a server. A message with a token far ahead of it
    /// was not sent by the server. `None` if messages cannot be forged.
    pub server_micros: Option<u64>,
}

impl HandOffBounds {
    /// Messages with tokens after `last_fence` are accepted, and not far after `server_micros`.
    pub const fn new(last_fence: u64, server_micros: Option<u64>) -> Self {
        Self { last_fence, server_micros }
    }

    /// The lease that a hand-off message gives to a waiter that requested `ttl`, if the message is valid. `sent` is the time just before
    /// the claim with these bounds was sent.
    ///
    /// A first token greater than the greatest one at the last answered claim means that the key was handed over after that
    /// claim was executed, and so after it was sent. Counting `claim_ttl` from there is therefore safe, however late the
    /// message is. If the message is late, or has no claim TTL, the waiter polls instead.
    ///
    /// Any client that may publish on the channel can forge a message, so it is limited to what the server could have
    /// granted: the lease is not longer than requested, and the tokens are not ahead of the server's time.
    pub fn accept_hand_off(
        self,
        sent: Moment,
        tokens: TokenBlock,
        claim_ttl: Duration,
        ttl: Ttl,
        drift: Drift,
        now: Moment,
    ) -> Option<Lease> {
        let claim_ttl = claim_ttl.min(ttl.get());
        let lease = Lease::granted(sent, claim_ttl, drift);
        let in_time = !claim_ttl.is_zero() && lease.remaining(now) >= claim_ttl / 4;
        let is_new = tokens.first().get() > self.last_fence;
        (in_time && is_new && self.could_have_given(tokens, drift, now.since(sent))).then_some(lease)
    }

    fn could_have_given(self, tokens: TokenBlock, drift: Drift, passed: Duration) -> bool {
        let Some(server_micros) = self.server_micros else { return true };
        let furthest = micros(passed + drift.of(passed) + SLACK);
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

    fn after(last_fence: u64) -> HandOffBounds {
        HandOffBounds::new(last_fence, Some(NOW))
    }

    /// The remaining lease of a message with this token and claim TTL, half a second after the claim was sent.
    fn remaining(bounds: HandOffBounds, token: u64, claim_ttl: u64) -> Option<u128> {
        let (sent, now) = (Moment::from_micros(SECOND), Moment::from_micros(SECOND + SECOND / 2));
        let (tokens, ttl) = (FencingToken::new(token).unwrap().into(), Ttl::new(Duration::from_secs(10)).unwrap());
        let claim_ttl = Duration::from_millis(claim_ttl);
        let lease = bounds.accept_hand_off(sent, tokens, claim_ttl, ttl, Drift::default(), now)?;
        Some(lease.remaining(now).as_millis())
    }

    #[test]
    fn a_lease_counts_from_the_last_answered_claim() {
        assert_eq!(remaining(after(NOW - 9), NOW + 1, 3000), Some(3000 - 32 - 500));
    }

    #[test]
    fn a_token_that_is_not_new_is_of_an_old_message() {
        assert_eq!(remaining(after(NOW), NOW, 3000), None);
    }

    #[test]
    fn a_message_that_is_late_in_its_claim_ttl_is_left_to_a_poll() {
        assert_eq!(remaining(after(0), NOW, 600), None);
        assert_eq!(remaining(after(0), NOW, 0), None);
    }

    #[test]
    fn no_message_gives_a_longer_lease_than_requested() {
        assert_eq!(remaining(after(0), NOW, 86_400_000), Some(10_000 - 102 - 500));
    }

    #[test]
    fn no_message_gives_a_token_beyond_the_servers_time() {
        assert!(remaining(after(0), NOW + SECOND + SECOND / 2, 3000).is_some());
        assert_eq!(remaining(after(0), NOW + 2 * SECOND, 3000), None);
        assert_eq!(remaining(after(0), FencingToken::MAX, 3000), None);
    }

    #[test]
    fn a_fence_ahead_of_the_time_keeps_increasing() {
        assert!(remaining(after(NOW + 900 * SECOND), NOW + 900 * SECOND + 1, 3000).is_some());
        assert_eq!(remaining(after(NOW + 900 * SECOND), NOW + 902 * SECOND, 3000), None);
    }

    #[test]
    fn without_a_channel_that_others_can_write_there_is_no_bound() {
        assert!(remaining(HandOffBounds::new(0, None), FencingToken::MAX, 3000).is_some());
    }
}
