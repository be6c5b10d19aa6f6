//! Plots as SVG that stands alone: lines or bars, with axes that count evenly or by powers of ten.
//!
//! Colours are CSS variables with a second set for dark screens, so that a plot reads the same in
//! a page and by itself. Series differ by dashes as well as by colour.

mod scale;

use std::fmt::Write as _;

use scale::Scale;

/// A plot: lines, or bars where the x axis has groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The heading.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Names of the places 0, 1, 2 ... of the horizontal axis; empty where it has numbers.
    pub groups: Vec<String>,
    /// The lines, or the bars of each group.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// Its unit; empty for a plain number.
    pub unit: String,
    /// Whether equal distances are equal factors.
    pub is_log: bool,
}

/// A line or a colour of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Places and values.
    pub points: Vec<(f64, f64)>,
}

/// The colours and strokes of plots.
pub const STYLE: &str = "\
.plot{--ink:#1c2733;--faint:#5c6873;--grid:#dfe5ea;--paper:#ffffff;--s0:#1b6ca8;--s1:#c2571a;\
--s2:#3a7d34;--s3:#8a3f9c;--s4:#806500;--s5:#b3264b;font:14px system-ui,sans-serif}\
@media(prefers-color-scheme:dark){.plot{--ink:#e6edf3;--faint:#9aa7b3;--grid:#2b3640;\
--paper:#12181f;--s0:#63b3ff;--s1:#ff9d5c;--s2:#7ed37a;--s3:#d99bea;--s4:#e3c34d;--s5:#ff7d9c}}\
.plot text{fill:var(--ink)}.plot .tick{fill:var(--faint);font-size:13px}\
.plot .heading{font-size:15px;font-weight:600}.plot .paper{fill:var(--paper)}\
.plot .grid{stroke:var(--grid)}.plot .axis{stroke:var(--faint)}\
.plot .s0{stroke:var(--s0);fill:var(--s0)}.plot .s1{stroke:var(--s1);fill:var(--s1)}\
.plot .s2{stroke:var(--s2);fill:var(--s2)}.plot .s3{stroke:var(--s3);fill:var(--s3)}\
.plot .s4{stroke:var(--s4);fill:var(--s4)}.plot .s5{stroke:var(--s5);fill:var(--s5)}\
.plot .line{fill:none;stroke-width:2}.plot .line.s1{stroke-dasharray:8 3}\
.plot .line.s2{stroke-dasharray:3 3}.plot .line.s3{stroke-dasharray:10 3 2 3}\
.plot .line.s4{stroke-dasharray:5 2}.plot .line.s5{stroke-dasharray:2 2}";

/// How many series have a colour of their own.
const COLOURS: usize = 6;

/// So narrow that texts can be read on a phone, where a plot is as wide as the screen.
const WIDTH: f64 = 480.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 464.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 280.0;
const HEADING_LEFT: f64 = 12.0;
/// The distances of texts below the area.
const TICK_DOWN: f64 = 18.0;
const LABEL_DOWN: f64 = 40.0;
const LEGEND_DOWN: f64 = 66.0;
const LEGEND_ROW: f64 = 20.0;
/// About how wide a letter below the axis is.
const LETTER: f64 = 7.0;
/// How far names of groups are turned where they would touch each other, in degrees, and how deep
/// that takes a letter.
const SLANT: f64 = -30.0;
const SLANT_DOWN: f64 = 0.5;
/// The share of a group's width that its bars take.
const BARS_SHARE: f64 = 0.76;

impl Axis {
    /// An axis that counts evenly from zero.
    pub fn even(label: &str, unit: &str) -> Axis {
        Axis {
            label: label.to_owned(),
            unit: unit.to_owned(),
            is_log: false,
        }
    }

    /// An axis on which equal distances are equal factors.
    pub fn log(label: &str, unit: &str) -> Axis {
        Axis {
            is_log: true,
            ..Axis::even(label, unit)
        }
    }

    /// The label with its unit.
    pub fn caption(&self) -> String {
        match self.unit.is_empty() {
            true => self.label.clone(),
            false => format!("{}, {}", self.label, self.unit),
        }
    }
}

impl Plot {
    /// Whether there is a point that can be drawn.
    pub fn has_points(&self) -> bool {
        self.scales().is_some()
    }

    /// The SVG of it.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        let height = self.legend_top() + LEGEND_ROW * self.series.len() as f64;
        let title = escape(&self.title);
        // Writing to a String does not fail.
        let _ = write!(
            out,
            "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
             <title>{title}</title><style>{STYLE}</style>\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\
             <text class=\"heading\" x=\"{HEADING_LEFT}\" y=\"24\">{title}</text>"
        );
        self.captions(&mut out);
        match self.scales() {
            Some((x, y)) => {
                self.axes(&mut out, &x, &y);
                match self.groups.is_empty() {
                    true => self.lines(&mut out, &x, &y),
                    false => self.bars(&mut out, &x, &y),
                }
            }
            None => {
                let _ = write!(
                    out,
                    "<text x=\"{LEFT}\" y=\"{}\">no figures</text>",
                    f64::midpoint(TOP, BOTTOM)
                );
            }
        }
        self.legend(&mut out);
        out.push_str("</svg>\n");
        out
    }

    /// The scales of both axes; none where there is nothing to draw.
    fn scales(&self) -> Option<(Scale, Scale)> {
        let all = || self.series.iter().flat_map(|series| &series.points);
        let drawn = |&&(x, y): &&(f64, f64)| fits(x, &self.x) && fits(y, &self.y);
        let x = match self.groups.len() {
            0 => Scale::over(all().filter(drawn).map(|it| it.0), self.x.is_log)?,
            groups => Scale::of_places(groups),
        };
        let y = Scale::over(all().filter(drawn).map(|it| it.1), self.y.is_log)?;
        Some((x.between(LEFT, RIGHT), y.between(BOTTOM, TOP)))
    }

    fn captions(&self, out: &mut String) {
        let _ = write!(
            out,
            "<text class=\"caption\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, RIGHT),
            BOTTOM + LABEL_DOWN + self.slanted(),
            escape(&self.x.caption())
        );
        let middle = f64::midpoint(TOP, BOTTOM);
        let _ = write!(
            out,
            "<text class=\"caption\" x=\"16\" y=\"{middle}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 16 {middle})\">{}</text>",
            escape(&self.y.caption())
        );
    }

    fn axes(&self, out: &mut String, x: &Scale, y: &Scale) {
        for value in y.ticks() {
            let at = y.place(value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{RIGHT}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 7.0,
                at + 4.0,
                number(value)
            );
        }
        let places: Vec<(f64, String)> = match self.groups.is_empty() {
            true => (x.ticks().into_iter())
                .map(|value| (x.place(value), number(value)))
                .collect(),
            false => (self.groups.iter().enumerate())
                .map(|(index, name)| (x.place(index as f64), escape(name)))
                .collect(),
        };
        let y = BOTTOM + TICK_DOWN;
        let is_slanted = self.slanted() > 0.0;
        for (at, text) in places {
            let how = match is_slanted {
                true => format!("text-anchor=\"end\" transform=\"rotate({SLANT} {at:.1} {y})\""),
                false => "text-anchor=\"middle\"".to_owned(),
            };
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{y}\" {how}>{text}</text>"
            );
        }
        let _ = write!(
            out,
            "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>"
        );
    }

    fn lines(&self, out: &mut String, x: &Scale, y: &Scale) {
        for (index, series) in self.series.iter().enumerate() {
            let colour = index % COLOURS;
            let mut points = series.points.clone();
            points.retain(|&(a, b)| fits(a, &self.x) && fits(b, &self.y));
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            let mut way = String::new();
            for &(a, b) in &points {
                let _ = write!(way, "{:.1},{:.1} ", x.place(a), y.place(b));
            }
            let _ = write!(
                out,
                "<polyline class=\"line s{colour}\" points=\"{}\"/>",
                way.trim_end()
            );
            for &(a, b) in &points {
                let _ = write!(
                    out,
                    "<circle class=\"s{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\">\
                     <title>{}: {}, {}</title></circle>",
                    x.place(a),
                    y.place(b),
                    escape(&series.name),
                    number(a),
                    number(b)
                );
            }
        }
    }

    fn bars(&self, out: &mut String, x: &Scale, y: &Scale) {
        let group = (RIGHT - LEFT) / self.groups.len().max(1) as f64 * BARS_SHARE;
        let width = group / self.series.len().max(1) as f64;
        for (index, series) in self.series.iter().enumerate() {
            for &(place, value) in &series.points {
                if !fits(place, &self.x) || !fits(value, &self.y) {
                    continue;
                }
                let left = x.place(place) - group / 2.0 + width * index as f64;
                let top = y.place(value);
                let _ = write!(
                    out,
                    "<rect class=\"s{}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                     height=\"{:.1}\"><title>{}: {}</title></rect>",
                    index % COLOURS,
                    (width - 2.0).max(1.0),
                    (BOTTOM - top).max(0.0),
                    escape(&series.name),
                    number(value)
                );
            }
        }
    }

    /// How deep the names of groups reach because they are turned; nothing where they are not.
    fn slanted(&self) -> f64 {
        let longest = self.groups.iter().map(|name| name.chars().count()).max();
        let width = longest.unwrap_or(0) as f64 * LETTER;
        match width * self.groups.len() as f64 > RIGHT - LEFT {
            true => width * SLANT_DOWN,
            false => 0.0,
        }
    }

    fn legend_top(&self) -> f64 {
        BOTTOM + LEGEND_DOWN + self.slanted()
    }

    fn legend(&self, out: &mut String) {
        for (index, series) in self.series.iter().enumerate() {
            let at = self.legend_top() + LEGEND_ROW * index as f64;
            let colour = index % COLOURS;
            let mark = match self.groups.is_empty() {
                true => format!(
                    "<path class=\"line s{colour}\" d=\"M{LEFT} {at}h34\"/>\
                     <circle class=\"s{colour}\" cx=\"{}\" cy=\"{at}\" r=\"3.5\"/>",
                    LEFT + 17.0
                ),
                false => format!(
                    "<rect class=\"s{colour}\" x=\"{LEFT}\" y=\"{}\" width=\"34\" height=\"10\"/>",
                    at - 5.0
                ),
            };
            let _ = write!(
                out,
                "{mark}<text x=\"{}\" y=\"{}\">{}</text>",
                LEFT + 44.0,
                at + 4.0,
                escape(&series.name)
            );
        }
    }
}

/// Whether a value has a place on an axis.
fn fits(value: f64, axis: &Axis) -> bool {
    value.is_finite() && (!axis.is_log || value > 0.0)
}

/// Text as it stands in XML, quoted attributes included.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no form for these.
            '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' => out.push(' '),
            _ => out.push(letter),
        }
    }
    out
}

/// A number in few signs: thousands and millions by a letter, three digits of the rest.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let (value, letter) = match size {
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{letter}")
}

#[cfg(test)]
pub(crate) mod tests;
