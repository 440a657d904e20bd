//! A minimal SVG writer. Coordinates are whole pixels.

use std::fmt::Write;

/// A picture under construction.
#[derive(Debug, Default)]
pub(crate) struct Svg(String);

/// Escapes text for XML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "text{font:13px \"DejaVu Sans\",\"Noto Sans CJK SC\",\"PingFang SC\",\"Microsoft YaHei\",sans-serif;fill:#222}\
.mono{font-family:\"DejaVu Sans Mono\",\"Noto Sans Mono CJK SC\",\"PingFang SC\",monospace;font-size:12px}\
.mid{text-anchor:middle}.end{text-anchor:end}.head{font-weight:bold;font-size:15px}.faint{fill:#777}\
.bad{fill:#b3261e;font-weight:bold}.lane{font-weight:bold;fill:#fff}";

// Writing to a string cannot fail.
impl Svg {
    /// A rectangle, given by its upper left corner and its size. `style` contains further attributes.
    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), style: &str) {
        let _ = writeln!(self.0, r#"<rect x="{x:.0}" y="{y:.0}" width="{w:.0}" height="{h:.0}" {style}/>"#);
    }

    /// A line between two points.
    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
        let _ = writeln!(self.0, r#"<line x1="{x1:.0}" y1="{y1:.0}" x2="{x2:.0}" y2="{y2:.0}" {style}/>"#);
    }

    /// Text that starts at this point; `class` is a class of the style sheet.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let _ = writeln!(self.0, r#"<text x="{x:.0}" y="{y:.0}" class="{class}">{}</text>"#, escape(text));
    }

    /// An arrow head that points to the right or to the left.
    pub(crate) fn head(&mut self, (x, y): (f64, f64), right: bool, colour: &str) {
        let back = if right { x - 9.0 } else { x + 9.0 };
        let (up, down) = (y - 4.0, y + 4.0);
        let _ = writeln!(self.0, r#"<path d="M{x:.0} {y:.0}L{back:.0} {up:.0}V{down:.0}Z" fill="{colour}"/>"#);
    }

    /// The finished picture, with a white background and this size.
    pub(crate) fn finish(self, (width, height): (f64, f64)) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\">\n<style>{STYLE}</style>\n<rect width=\"{width:.0}\" height=\"{height:.0}\" \
             fill=\"#fff\"/>\n{}</svg>\n",
            self.0
        )
    }
}
