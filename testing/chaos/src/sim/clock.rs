use fencelock_core::Moment;

/// One clock, as a function of the true time in microseconds since the start of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimClock {
    /// Its reading at the start.
    pub(super) start_us: i64,
    /// How much faster it runs than true time, in parts per million.
    pub(super) ppm: i64,
}

impl SimClock {
    /// The reading at a true time.
    pub(super) fn micros(&self, at: u64) -> u64 {
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        u64::try_from(self.start_us + at + (at * self.ppm).div_euclid(1_000_000)).unwrap_or(0)
    }

    pub(super) fn moment(&self, at: u64) -> Moment {
        Moment::from_micros(self.micros(at))
    }

    /// The first true time at which the reading is at least `moment`, not before `now`.
    pub(super) fn when(&self, moment: Moment, now: u64) -> u64 {
        let left = moment.as_micros().saturating_sub(self.micros(now));
        let million = 1_000_000_u64;
        let rate = million.saturating_add_signed(self.ppm);
        let mut at = now + u64::try_from(u128::from(left) * u128::from(million) / u128::from(rate)).unwrap_or(0);
        while at > now && self.moment(at - 1) >= moment {
            at -= 1;
        }
        while self.moment(at) < moment {
            at += 1;
        }
        at
    }

    /// Steps the clock.
    pub(super) const fn jump(&mut self, by_us: i64) {
        self.start_us += by_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_found_at_its_first_microsecond() {
        for ppm in [-4000, -1, 0, 7, 4000] {
            let clock = SimClock { start_us: 1_000_000, ppm };
            for target in [1_000_001, 1_500_000, 20_999_999] {
                let moment = Moment::from_micros(target);
                let at = clock.when(moment, 0);
                assert!(clock.moment(at) >= moment && clock.moment(at - 1) < moment, "{ppm} {target} {at}");
            }
            assert_eq!(clock.when(Moment::from_micros(5), 77), 77, "what is past is now");
        }
    }
}
