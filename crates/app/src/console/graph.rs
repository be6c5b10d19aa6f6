//! Edges as a picture: who sends on the left, where to on the right.

use std::collections::BTreeMap;

use super::edges::{Edge, Edges};
use super::html::Html;

/// The most nodes of a side, and the most edges; the busiest are drawn.
pub(super) const NODES_MAX: usize = 30;
pub(super) const EDGES_MAX: usize = 100;

/// Beyond so many edges rates are left to the table.
const RATES_MAX: usize = 30;

/// The most characters of a node's name.
const NAME_CHARS_MAX: usize = 36;

/// Sizes, in pixels of the picture.
const WIDTH: usize = 960;
const NODE_WIDTH: usize = 300;
const NODE_HEIGHT: usize = 26;
const ROW_HEIGHT: usize = 40;
const MARGIN: usize = 10;
const RIGHT: usize = WIDTH - MARGIN - NODE_WIDTH;

/// Draws edges; returns how many.
pub(super) fn draw(html: &mut Html, edges: &Edges) -> usize {
    let mut busiest: Vec<(&str, &str, &Edge)> = edges
        .edges
        .iter()
        .map(|((from, to), edge)| (&**from, &**to, edge))
        .collect();
    let weight = |edge: &Edge| edge.rate.or(edge.requests).unwrap_or_default();
    busiest.sort_by(|(.., one), (.., other)| weight(other).total_cmp(&weight(one)));
    let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
    let mut drawn = Vec::new();
    for (from, to, edge) in busiest {
        if drawn.len() >= EDGES_MAX {
            break;
        }
        let has_room = |nodes: &BTreeMap<&str, usize>, name: &str| {
            nodes.len() < NODES_MAX || nodes.contains_key(name)
        };
        if has_room(&left, from) && has_room(&right, to) {
            let row = left.len();
            let from_row = *left.entry(from).or_insert(row);
            let row = right.len();
            let to_row = *right.entry(to).or_insert(row);
            drawn.push((from_row, to_row, edge));
        }
    }
    let height = MARGIN + left.len().max(right.len()) * ROW_HEIGHT + MARGIN;
    html.raw(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"graph-title\"",
    );
    html.attribute("viewBox", &format!("0 0 {WIDTH} {height}"));
    html.raw(
        "><title id=\"graph-title\">Who sends requests to whom; the table below says the same",
    )
    .raw("</title>");
    for (from, to, edge) in &drawn {
        line(html, middle(*from), middle(*to), edge);
    }
    if drawn.len() <= RATES_MAX {
        for (from, to, edge) in &drawn {
            rate(html, (middle(*from), middle(*to)), edge);
        }
    }
    for (x, nodes) in [(MARGIN, &left), (RIGHT, &right)] {
        for (name, row) in nodes {
            node(html, (x, middle(*row)), name);
        }
    }
    html.raw("</svg>");
    drawn.len()
}

/// The height of the middle of a row.
fn middle(row: usize) -> usize {
    MARGIN + row * ROW_HEIGHT + ROW_HEIGHT / 2
}

fn line(html: &mut Html, from: usize, to: usize, edge: &Edge) {
    let (start, bend, end) = (MARGIN + NODE_WIDTH, WIDTH / 2, RIGHT);
    let path = format!("M{start} {from}C{bend} {from} {bend} {to} {end} {to}");
    html.raw(match edge.is_mutual {
        Some(true) => "<path class=\"edge mutual\"",
        Some(false) => "<path class=\"edge plain\"",
        None => "<path class=\"edge\"",
    });
    let width = match edge.rate {
        Some(rate) if rate >= 100.0 => "4",
        Some(rate) if rate >= 1.0 => "2.5",
        _ => "1.5",
    };
    html.attribute("stroke-width", width).attribute("d", &path);
    html.raw("/>");
}

fn rate(html: &mut Html, (from, to): (usize, usize), edge: &Edge) {
    let Some(rate) = edge.rate else { return };
    // Beside the end, where edges of one node lie apart.
    let (x, y) = (RIGHT - 70, (from + 7 * to) / 8);
    html.raw("<text").attribute("x", &x.to_string());
    html.attribute("y", &y.saturating_sub(4).to_string())
        .raw(">");
    html.shown(format_args!("{rate:.1}/s")).raw("</text>");
}

fn node(html: &mut Html, (x, y): (usize, usize), name: &str) {
    html.raw("<rect class=\"node\" rx=\"4\"")
        .attribute("x", &x.to_string());
    html.attribute("y", &(y - NODE_HEIGHT / 2).to_string());
    html.attribute("width", &NODE_WIDTH.to_string());
    html.attribute("height", &NODE_HEIGHT.to_string())
        .raw("/><text");
    html.attribute("x", &(x + 8).to_string());
    html.attribute("y", &(y + 5).to_string()).raw(">");
    let mut characters = name.chars();
    let shown: String = characters.by_ref().take(NAME_CHARS_MAX).collect();
    html.text(&shown);
    if characters.next().is_some() {
        html.raw("…");
    }
    html.raw("</text>");
}

#[cfg(test)]
mod tests {
    use super::{EDGES_MAX, NODES_MAX, draw};
    use crate::console::edges::{Edge, Edges};
    use crate::console::html::Html;

    #[test]
    fn a_picture_has_the_busiest_and_an_end() {
        let mut edges = Edges::default();
        for number in 0..1_000_u16 {
            let edge = Edge {
                requests: Some(number.into()),
                is_mutual: Some(number % 2 == 0),
                ..Edge::default()
            };
            let ends = (format!("w{}", number / 40), format!("s{}", number % 40));
            edges.edges.insert(ends, edge);
        }
        let mut html = Html::default();
        assert!(draw(&mut html, &edges) <= EDGES_MAX);
        let text = html.finish();
        assert!(text.matches("<rect").count() <= 2 * NODES_MAX);
        assert!(text.contains(">w24<"), "{text}");
        assert!(text.contains("class=\"edge mutual\""));
        assert!(text.contains("class=\"edge plain\""));
    }

    #[test]
    fn a_name_is_no_markup() {
        let mut edges = Edges::default();
        let ends = ("</svg><script>".to_owned(), "\"&'".repeat(100));
        edges.edges.insert(ends, Edge::default());
        let mut html = Html::default();
        draw(&mut html, &edges);
        let text = html.finish();
        assert!(!text.contains("<script"), "{text}");
        assert_eq!(text.matches("</svg>").count(), 1);
    }
}
