//! As much of SVG as the pictures need.

use std::fmt::Write;

/// A picture that grows.
#[derive(Debug)]
pub(super) struct Svg {
    width: f64,
    body: String,
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Svg {
    pub(super) const fn new(width: f64) -> Self {
        Self { width, body: String::new() }
    }

    // Writing to a string cannot fail.
    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    /// `look` is further attributes; `title` is what a pointer shows.
    pub(super) fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), look: &str, title: &str) {
        let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) };
        self.push(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{:.1}" height="{h:.1}" {look}>{title}</rect>"#,
            w.max(0.8)
        ));
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), look: &str) {
        self.push(format_args!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {look}/>"#));
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        self.push(format_args!(r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{}</text>"#, escape(text)));
    }

    pub(super) fn dots(&mut self, points: &[(f64, f64)], colour: &str) {
        // A path of points is much shorter than as many circles.
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "M{x:.1} {y:.1}h0");
        }
        self.push(format_args!(
            r#"<path d="{path}" stroke="{colour}" stroke-width="2.6" stroke-linecap="round" fill="none"/>"#
        ));
    }

    pub(super) fn finish(self, height: f64) -> String {
        let width = self.width;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}">
<style>text{{font:11px system-ui,sans-serif;fill:#333}}.end{{text-anchor:end}}.mid{{text-anchor:middle}}.small{{font-size:9px;fill:#fff}}.faint{{fill:#888}}</style>
<rect width="{width:.0}" height="{height:.0}" fill="white"/>
{}</svg>
"#,
            self.body
        )
    }
}
