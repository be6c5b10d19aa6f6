//! Lines over time as a picture: the age of values below, their unit on the left.

use super::html::Html;
use super::panels::{LINES_MAX, Measure};

/// The spans of time that pictures are of, in minutes; the shortest that holds all values is used.
const SPANS: [f64; 4] = [12.0, 40.0, 60.0, 120.0];

/// The steps in which the axis of time is named.
const STEPS: f64 = 4.0;

/// About how many places of the other axis are named, and how many at most.
const TICKS: f64 = 4.0;
const TICKS_MAX: usize = 12;

/// Sizes, in pixels of the picture.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 236.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 464.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 190.0;

/// Heights that differ by less are one.
const LEVEL: f64 = 0.05;

/// A line: its values in the unit of the picture, each with its age in seconds, the oldest first.
/// Where one is not a number the line has a gap.
pub(super) type Curve = Vec<(f64, f64)>;

/// A picture that has something to show.
pub(super) struct Chart<'c> {
    /// The number of the picture on its page.
    pub(super) number: usize,
    /// The heading.
    pub(super) title: &'static str,
    /// The unit of the values.
    pub(super) measure: Measure,
    /// The lines, in the order of their marks.
    pub(super) curves: &'c [Curve],
}

/// The lengths of both axes.
struct Scale {
    /// The minutes of the one.
    span: f64,
    /// The distance of named places of the other.
    step: f64,
    /// Its highest value.
    high: f64,
}

impl Chart<'_> {
    /// Writes the picture.
    pub(super) fn draw(&self, html: &mut Html) {
        let scale = Scale::over(self.curves);
        let (title, text) = (
            format!("plot-{}-title", self.number),
            format!("plot-{}-text", self.number),
        );
        html.raw("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\"");
        html.attribute("viewBox", &format!("0 0 {WIDTH} {HEIGHT}"));
        html.attribute("aria-labelledby", &title);
        html.attribute("aria-describedby", &text);
        html.raw("><title").attribute("id", &title);
        html.raw(">").raw(self.title);
        html.raw("</title><desc").attribute("id", &text);
        html.raw(">Lines over time, ").raw(self.measure.word);
        html.raw(", from 0 to ").text(&short(scale.high));
        html.raw(", of the last ").text(&short(scale.span));
        html.raw(" minutes; the table below has the last values.</desc>");
        scale.axes(html, self.measure.word);
        for (number, curve) in self.curves.iter().enumerate() {
            html.raw("<path").attribute("class", &class(number));
            scale.line(html, curve);
            html.raw("/>");
        }
        html.raw("</svg>");
    }
}

/// Writes the mark of a line by its number, which is that of its colour and dashes.
pub(super) fn mark(html: &mut Html, number: usize) {
    html.raw("<svg class=\"key\" viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path");
    html.attribute("class", &class(number));
    html.raw(" d=\"M0 5H34\"/></svg>");
}

/// A number of a few digits, with a letter for thousands and more.
pub(super) fn short(value: f64) -> String {
    let (value, letter) = match value {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        f64::MIN_POSITIVE..0.001 => format!("{value:.0e}"),
        _ => format!("{value:.3}"),
    };
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{letter}")
}

fn class(number: usize) -> String {
    format!("line l{}", number % LINES_MAX)
}

impl Scale {
    /// The scale on which all values have a place.
    fn over(curves: &[Curve]) -> Scale {
        let values = curves.iter().flatten();
        let values = values.filter(|(_, value)| value.is_finite());
        let (mut oldest, mut most) = (0.0_f64, 0.0_f64);
        for (age, value) in values {
            (oldest, most) = (oldest.max(*age), most.max(*value));
        }
        let [.., longest] = SPANS;
        let span = SPANS.into_iter().find(|span| oldest <= span * 60.0);
        let most = if most > 0.0 { most } else { 1.0 };
        let rough = most / TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let mut steps = [1.0, 2.0, 5.0].into_iter().map(|factor| factor * power);
        let step = steps.find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * power);
        Scale {
            span: span.unwrap_or(longest),
            step,
            high: (most / step).ceil() * step,
        }
    }

    fn axes(&self, html: &mut Html, unit: &'static str) {
        html.raw("<text class=\"tick\"").attribute("x", "8");
        html.attribute("y", "18").raw(">").raw(unit).raw("</text>");
        let ticks = std::iter::successors(Some(0.0_f64), |tick| Some(tick + self.step));
        let ticks = ticks.take_while(|tick| *tick <= self.high + self.step / 2.0);
        for tick in ticks.take(TICKS_MAX) {
            let y = self.y(tick);
            html.raw("<path class=\"grid\" d=\"");
            html.shown(format_args!("M{LEFT} {y:.1}H{RIGHT}"));
            html.raw("\"/>");
            tick_text(html, (LEFT - 6.0, y + 4.0), "end", &short(tick));
        }
        let steps = std::iter::successors(Some(0.0_f64), |step| Some(step + 1.0));
        for step in steps.take_while(|step| *step <= STEPS) {
            let minutes = self.span / STEPS * step;
            let text = match step > 0.0 {
                true => short(minutes),
                false => "now".to_owned(),
            };
            tick_text(
                html,
                (self.x(minutes * 60.0), BOTTOM + 18.0),
                "middle",
                &text,
            );
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        tick_text(html, (middle, BOTTOM + 38.0), "middle", "minutes ago");
        html.raw("<path class=\"axis\" d=\"");
        html.shown(format_args!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"));
        html.raw("\"/>");
    }

    /// Writes the way of a line. Places are left out while it stays at the height that was written
    /// last.
    fn line(&self, html: &mut Html, curve: &[(f64, f64)]) {
        html.raw(" d=\"");
        let height = |at: Option<usize>| {
            let (_, value) = curve.get(at?)?;
            value.is_finite().then(|| self.y(*value))
        };
        let mut written: Option<f64> = None;
        for (at, (age, _)) in curve.iter().enumerate() {
            let Some(y) = height(Some(at)) else {
                written = None;
                continue;
            };
            let next = height(at.checked_add(1));
            let is_level = |last: f64| {
                let is_there = |y: f64| (y - last).abs() < LEVEL;
                is_there(y) && next.is_some_and(is_there)
            };
            if written.is_some_and(is_level) {
                continue;
            }
            let x = self.x(*age);
            // A place by itself is a dot.
            match written {
                Some(_) => html.shown(format_args!("L{x:.1} {y:.1}")),
                None => html.shown(format_args!("M{x:.1} {y:.1}h1")),
            };
            written = Some(y);
        }
        html.raw("\"");
    }

    /// The place of what is so many seconds old.
    fn x(&self, age: f64) -> f64 {
        (RIGHT - age / (self.span * 60.0) * (RIGHT - LEFT)).max(LEFT)
    }

    /// The place of a value.
    fn y(&self, value: f64) -> f64 {
        (BOTTOM - value / self.high * (BOTTOM - TOP)).clamp(TOP, BOTTOM)
    }
}

fn tick_text(html: &mut Html, (x, y): (f64, f64), anchor: &'static str, text: &str) {
    html.raw("<text class=\"tick\"");
    html.attribute("x", &format!("{x:.1}"));
    html.attribute("y", &format!("{y:.1}"));
    html.attribute("text-anchor", anchor).raw(">");
    html.text(text).raw("</text>");
}

#[cfg(test)]
mod tests {
    use super::{Chart, Curve, Scale, short};
    use crate::console::html::Html;
    use crate::console::panels::Measure;

    fn drawn(curves: &[Curve]) -> String {
        let mut html = Html::default();
        let chart = Chart {
            number: 3,
            title: "Requests",
            measure: Measure {
                factor: 1.0,
                word: "per second",
            },
            curves,
        };
        chart.draw(&mut html);
        html.finish()
    }

    #[test]
    fn a_picture_has_axes_units_and_a_text_for_those_who_do_not_see_it() {
        let text = drawn(&[vec![(300.0, 0.0), (0.0, 38.0)]]);
        for part in [
            "role=\"img\"",
            "aria-labelledby=\"plot-3-title\"",
            "<title id=\"plot-3-title\">Requests</title>",
            "from 0 to 40, of the last 12 minutes;",
            ">per second</text>",
            ">minutes ago</text>",
            ">now</text>",
            ">40</text>",
            ">12</text>",
            // Five of twelve minutes from the right, and at the bottom.
            "M294.0 190.0h1L464.0 38.0",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_line_has_gaps_and_its_level_parts_are_short() {
        let mut curve: Curve = (0..480_u32).map(|it| (f64::from(479 - it), 5.0)).collect();
        curve[100].1 = f64::NAN;
        let text = drawn(&[curve]);
        let (_, line) = text.split_once("class=\"line l0\" d=\"").unwrap();
        let (line, _) = line.split_once('"').unwrap();
        assert_eq!(line.matches('M').count(), 2, "{line}");
        assert_eq!(line.matches('L').count(), 2, "{line}");
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn a_line_that_rises_and_falls_slowly_keeps_its_top() {
        // A value of 0.05 is 0.04 pixels high.
        let steps = (0..=50_u32).chain((0..50).rev()).zip(0_u32..);
        let slow = steps.map(|(height, at)| (f64::from(100 - at), f64::from(height) * 0.05));
        let text = drawn(&[slow.collect(), vec![(0.0, 200.0)]]);
        let (_, line) = text.split_once("class=\"line l0\" d=\"").unwrap();
        let (line, _) = line.split_once('"').unwrap();
        let heights = line.split(['M', 'L']).skip(1).map(|place| {
            let (_, y) = place.split_once(' ').unwrap();
            y.trim_end_matches("h1")
        });
        let heights: Vec<&str> = heights.collect();
        assert!(heights.contains(&"188.0"), "{line}");
        assert!(heights.starts_with(&["190.0"]) && heights.ends_with(&["190.0"]));
    }

    #[test]
    fn axes_hold_whatever_values_there_are() {
        for most in [0.0, 1e-9, 0.3, 1.0, 7.0, 99.0, 1e12] {
            let scale = Scale::over(&[vec![(10.0, most), (8_000.0, f64::NAN)]]);
            assert!(scale.high >= most && scale.high <= 2.0 * most.max(1.0));
            assert!(scale.high / scale.step <= 5.0 + 1e-6, "{most}");
            assert!((scale.span - 12.0).abs() < 1e-9);
        }
        let scale = Scale::over(&[vec![(8_000.0, 1.0)]]);
        assert!((scale.span - 120.0).abs() < 1e-9);
        assert!(!drawn(&[]).contains("NaN"));
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 2e-4, 0.0314, 1.5, 12.34, 999.6, 12_345.0, 2.5e6].map(short);
        let expected = ["0", "2e-4", "0.031", "1.5", "12.3", "1000", "12.3k", "2.5M"];
        assert_eq!(texts, expected);
    }
}
