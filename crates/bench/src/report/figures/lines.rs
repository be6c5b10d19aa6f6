//! Series out of objects.

use serde_json::Value;

use super::{figure, text};
use crate::plot::{Plot, Series};

/// A series of these points; none where there is no point.
pub(super) fn series(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Option<Series> {
    let points: Vec<_> = points.collect();
    (!points.is_empty()).then(|| Series {
        name: name.to_owned(),
        points,
    })
}

/// A line through the objects that have both figures.
pub(super) fn line<'a>(
    name: &str,
    rows: impl Iterator<Item = &'a Value>,
    x: &str,
    y: &str,
) -> Option<Series> {
    series(
        name,
        rows.filter_map(|row| Some((figure(row, x)?, figure(row, y)?))),
    )
}

/// Bars: a group for each object, and in it one bar for each figure that it has.
pub(super) fn bars<'a>(
    mut plot: Plot,
    rows: impl Iterator<Item = &'a Value>,
    group: impl Fn(&Value) -> String,
    figures: &[(&str, &str)],
) -> Plot {
    let mut all: Vec<(&str, Vec<(f64, f64)>)> = figures
        .iter()
        .map(|(name, _)| (*name, Vec::new()))
        .collect();
    for row in rows {
        let place = place(&mut plot, group(row));
        for ((_, points), (_, path)) in all.iter_mut().zip(figures) {
            points.extend(figure(row, path).map(|value| (place, value)));
        }
    }
    let all = all.into_iter();
    plot.series = all
        .filter_map(|(name, points)| series(name, points.into_iter()))
        .collect();
    plot
}

/// Bars of Myriad and of each peer: objects of one group differ by their `peer`, and all have
/// Myriad's own figure.
pub(super) fn by_value<'a>(
    mut plot: Plot,
    rows: impl Iterator<Item = &'a Value>,
    group: impl Fn(&Value) -> String,
    [own, peer]: [&str; 2],
) -> Plot {
    let mut all: Vec<(String, Vec<(f64, f64)>)> = vec![("Myriad".to_owned(), Vec::new())];
    for row in rows {
        let place = place(&mut plot, group(row));
        let pairs = [("Myriad", own), (text(row, "peer"), peer)];
        for (name, path) in pairs {
            let Some(value) = figure(row, path) else {
                continue;
            };
            let at = all.iter().position(|(found, _)| found == name);
            let at = at.unwrap_or_else(|| {
                all.push((name.to_owned(), Vec::new()));
                all.len() - 1
            });
            let points = &mut all[at].1;
            if points.iter().all(|(taken, _)| *taken != place) {
                points.push((place, value));
            }
        }
    }
    let all = all.into_iter();
    plot.series = all
        .filter_map(|(name, points)| series(&name, points.into_iter()))
        .collect();
    plot
}

/// The place of a group, which gets the next one where it is new.
fn place(plot: &mut Plot, group: String) -> f64 {
    let at = plot.groups.iter().position(|name| *name == group);
    let at = at.unwrap_or_else(|| {
        plot.groups.push(group);
        plot.groups.len() - 1
    });
    at as f64
}
