//! A minimal SVG writer.

use std::fmt::Write;

/// A picture under construction.
#[derive(Debug)]
pub struct Svg {
    style: &'static str,
    /// Decimals of a coordinate.
    digits: usize,
    body: String,
}

/// Escapes text for XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The style of the pictures of this crate.
pub(crate) const STYLE: &str = "text{font:13px \"DejaVu Sans\",\"Noto Sans CJK SC\",\"PingFang SC\",\"Microsoft YaHei\",sans-serif;fill:#222}\
.mono{font-family:\"DejaVu Sans Mono\",\"Noto Sans Mono CJK SC\",\"PingFang SC\",monospace;font-size:12px}\
.mid{text-anchor:middle}.end{text-anchor:end}.head{font-weight:bold;font-size:15px}.faint{fill:#777}\
.bad{fill:#b3261e;font-weight:bold}.lane{font-weight:bold;fill:#fff}";

// Writing to a string cannot fail.
impl Svg {
    /// A picture with a style sheet, and the number of decimals of each coordinate.
    pub const fn new(style: &'static str, digits: usize) -> Self {
        Self { style, digits, body: String::new() }
    }

    /// A rectangle, given by its upper left corner and its size. `style` contains further attributes.
    pub fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), style: &str) {
        let digits = self.digits;
        let _ = writeln!(
            self.body,
            r#"<rect x="{x:.digits$}" y="{y:.digits$}" width="{w:.digits$}" height="{h:.digits$}" {style}/>"#
        );
    }

    /// A rectangle with a tooltip, wide enough to point at.
    pub fn titled_rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), style: &str, title: &str) {
        let (digits, w, title) = (self.digits, w.max(0.8), escape(title));
        let _ = writeln!(
            self.body,
            r#"<rect x="{x:.digits$}" y="{y:.digits$}" width="{w:.digits$}" height="{h:.digits$}" {style}><title>{title}</title></rect>"#
        );
    }

    /// A line between two points.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
        let digits = self.digits;
        let _ = writeln!(
            self.body,
            r#"<line x1="{x1:.digits$}" y1="{y1:.digits$}" x2="{x2:.digits$}" y2="{y2:.digits$}" {style}/>"#
        );
    }

    /// Text that starts at this point; `class` is a class of the style sheet.
    pub fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let digits = self.digits;
        let _ =
            writeln!(self.body, r#"<text x="{x:.digits$}" y="{y:.digits$}" class="{class}">{}</text>"#, escape(text));
    }

    /// Points of one colour, as one path, which is much shorter than a circle for each point.
    pub fn dots(&mut self, points: &[(f64, f64)], colour: &str) {
        let digits = self.digits;
        let _ = write!(self.body, r#"<path d=""#);
        for (x, y) in points {
            let _ = write!(self.body, "M{x:.digits$} {y:.digits$}h0");
        }
        let _ = writeln!(self.body, r#"" stroke="{colour}" stroke-width="2.6" stroke-linecap="round" fill="none"/>"#);
    }

    /// An arrow head that points to the right or to the left.
    pub(crate) fn head(&mut self, (x, y): (f64, f64), right: bool, colour: &str) {
        let back = if right { x - 9.0 } else { x + 9.0 };
        let (up, down) = (y - 4.0, y + 4.0);
        let _ = writeln!(self.body, r#"<path d="M{x:.0} {y:.0}L{back:.0} {up:.0}V{down:.0}Z" fill="{colour}"/>"#);
    }

    /// The finished picture, with a white background and this size.
    pub fn finish(self, (width, height): (f64, f64)) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\">\n<style>{}</style>\n<rect width=\"{width:.0}\" height=\"{height:.0}\" \
             fill=\"#fff\"/>\n{}</svg>\n",
            self.style, self.body
        )
    }
}
