use fencelock_lab::svg::Svg;

/// The names are to the left, time is to the right.
pub(super) const LEFT: f64 = 150.0;
pub(super) const WIDTH: f64 = 1200.0;
const RIGHT: f64 = 14.0;
/// The style of all pictures.
pub(super) const STYLE: &str = "text{font:11px system-ui,sans-serif;fill:#333}.end{text-anchor:end}.mid{text-anchor:middle}\
.small{font-size:9px;fill:#fff}.faint{fill:#888}";

/// The position of a time in a picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) from: u64,
    pub(super) until: u64,
}

/// A picture is coarser than a double.
#[allow(clippy::cast_precision_loss, reason = "pixels")]
pub(super) const fn float(number: u64) -> f64 {
    number as f64
}

impl Scale {
    pub(super) const fn span(self) -> f64 {
        float(self.until.saturating_sub(self.from)).max(1.0)
    }

    pub(super) fn x(self, at: u64) -> f64 {
        let at = at.clamp(self.from, self.until);
        LEFT + float(at - self.from) / self.span() * (WIDTH - LEFT - RIGHT)
    }

    pub(super) const fn shows(self, from: u64, until: u64) -> bool {
        from <= self.until && until >= self.from
    }

    /// Time marks along the bottom, in seconds since `zero`.
    pub(super) fn draw(self, svg: &mut Svg, zero: u64, top: f64, bottom: f64) {
        let steps = [100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000];
        let steps = steps.into_iter().chain([300_000_000, 600_000_000, 1_800_000_000]);
        let step = steps.into_iter().find(|step| self.span() / float(*step) <= 14.0).unwrap_or(3_600_000_000);
        let mut at = zero + self.from.saturating_sub(zero).div_ceil(step) * step;
        while at <= self.until {
            let x = self.x(at);
            svg.line((x, top), (x, bottom), "stroke=\"#ddd\"");
            svg.text((x, bottom + 14.0), "mid faint", &format!("{} s", float(at - zero) / 1e6));
            at += step;
        }
    }
}
