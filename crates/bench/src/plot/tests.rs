use super::scale::Scale;
use super::*;

/// A reader of XML that accepts what it knows: elements, quoted attributes, text with entities.
/// The elements that it met, by name.
pub(crate) fn elements(text: &str) -> Result<Vec<String>, String> {
    let (mut open, mut met) = (Vec::new(), Vec::new());
    let mut rest = text.trim();
    while !rest.is_empty() {
        let Some(end) = rest.find('<') else {
            return Err(format!("text after the end: {rest}"));
        };
        check_text(&rest[..end], open.is_empty())?;
        rest = &rest[end + 1..];
        let close = rest.find('>').ok_or("a tag without end")?;
        let (tag, after) = (&rest[..close], &rest[close + 1..]);
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let last: Option<String> = open.pop();
            if last.as_deref() != Some(name) {
                return Err(format!("</{name}> closes {last:?}"));
            }
            continue;
        }
        let is_empty = tag.ends_with('/');
        let tag = tag.trim_end_matches('/');
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        check_attributes(attributes)?;
        met.push(name.to_owned());
        if !is_empty {
            open.push(name.to_owned());
        }
    }
    match open.pop() {
        Some(name) => Err(format!("<{name}> stays open")),
        None => Ok(met),
    }
}

fn check_text(text: &str, is_outside: bool) -> Result<(), String> {
    if is_outside && !text.trim().is_empty() {
        return Err(format!("text outside of all: {text}"));
    }
    for (at, _) in text.match_indices('&') {
        let entity = text[at..].split_inclusive(';').next().unwrap_or("");
        if !["&amp;", "&lt;", "&gt;", "&quot;"].contains(&entity) {
            return Err(format!("`{entity}` is no entity"));
        }
    }
    Ok(())
}

fn check_attributes(text: &str) -> Result<(), String> {
    let mut rest = text.trim();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or(format!("no value: {rest}"))?;
        let (value, after) = after.split_once('"').ok_or(format!("no end: {after}"))?;
        check_text(value, false)?;
        if names.contains(&name) {
            return Err(format!("{name} stands there twice"));
        }
        names.push(name);
        rest = after.trim_start();
    }
    Ok(())
}

fn plot(groups: &[&str], is_log: bool) -> Plot {
    Plot {
        title: "Time <to> live & \"well\"".to_owned(),
        x: Axis {
            is_log: is_log && groups.is_empty(),
            ..Axis::even("domains", "")
        },
        y: Axis {
            is_log,
            ..Axis::even("activation, p50", "ms")
        },
        groups: groups.iter().map(|name| (*name).to_owned()).collect(),
        series: vec![
            Series {
                name: "myriad".to_owned(),
                points: vec![(1.0, 1.2), (0.0, 1.3), (100.0, f64::NAN), (20_000.0, 1.1)],
            },
            Series {
                name: "a & b".to_owned(),
                points: vec![(0.0, 300.0), (1.0, 45_000.0)],
            },
        ],
    }
}

#[test]
fn a_plot_is_xml_with_captions_units_and_a_legend() {
    for (groups, is_log) in [(&[][..], false), (&[], true), (&["a", "b"], false)] {
        let plot = plot(groups, is_log);
        let svg = plot.svg();
        let met = elements(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
        assert!(plot.has_points());
        for text in [
            "activation, p50, ms",
            ">domains<",
            ">myriad<",
            ">a &amp; b<",
        ] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        let marks = match groups.is_empty() {
            true => "circle",
            false => "rect",
        };
        assert!(
            met.iter().filter(|name| *name == marks).count() > 3,
            "{svg}"
        );
        assert!(svg.contains("prefers-color-scheme:dark"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn a_reader_of_xml_tells_what_is_none() {
    let broken = [
        "<a>",
        "<a></b>",
        "<a>&nbsp;</a>",
        "<a b=c/>",
        "<a b=\"1\" b=\"2\"/>",
        "<a/>text",
    ];
    for text in broken {
        assert!(elements(text).is_err(), "{text}");
    }
    assert_eq!(elements("<a b=\"1\"><c/></a>").unwrap(), ["a", "c"]);
}

#[test]
fn names_of_groups_are_turned_where_they_would_touch() {
    let mut plot = plot(&["a", "b"], false);
    let height = plot.legend_top();
    assert!(!plot.svg().contains("rotate(-30"));
    plot.groups = (0..8).map(|at| format!("a long name {at}")).collect();
    assert_eq!(plot.svg().matches("rotate(-30").count(), 8);
    assert!(elements(&plot.svg()).is_ok());
    assert!(plot.legend_top() > height);
}

#[test]
fn a_plot_without_points_says_so() {
    let mut plot = plot(&[], true);
    plot.series.iter_mut().for_each(|it| it.points.clear());
    assert!(!plot.has_points());
    assert!(plot.svg().contains("no figures"));
    assert!(elements(&plot.svg()).is_ok());
    // A logarithm of nothing has no place either.
    plot.series[0].points.push((0.0, 1.0));
    assert!(!plot.has_points());
}

#[test]
fn ticks_lie_on_the_scale_and_values_between_its_ends() {
    let even = Scale::over([3.0, 42.0].into_iter(), false).unwrap();
    assert_eq!(even.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
    let even = even.between(100.0, 0.0);
    assert!((even.place(0.0) - 100.0).abs() < 1e-9);
    assert!((even.place(25.0) - 50.0).abs() < 1e-9);
    let log = Scale::over([100.0, 1e6].into_iter(), true).unwrap();
    assert_eq!(log.ticks().len(), 5);
    let log = log.between(0.0, 400.0);
    assert!((log.place(1e4) - 200.0).abs() < 1e-6);
    let close = Scale::over([2.0, 64.0].into_iter(), true).unwrap();
    assert_eq!(close.ticks().len(), 7, "{:?}", close.ticks());
    let one = Scale::over([5.0].into_iter(), true)
        .unwrap()
        .between(0.0, 1.0);
    assert!((0.0..=1.0).contains(&one.place(5.0)));
    let nothing = Scale::over([0.0].into_iter(), false)
        .unwrap()
        .between(0.0, 1.0);
    assert!(nothing.place(0.0).abs() < 1e-9);
    assert_eq!(Scale::over(std::iter::empty(), false), None);
}

#[test]
fn numbers_are_short() {
    let cases = [
        (0.0, "0"),
        (0.125, "0.125"),
        (1.5, "1.5"),
        (42.0, "42"),
        (1_000.0, "1000"),
        (20_000.0, "20k"),
        (1e6, "1M"),
        (-2.5, "-2.5"),
    ];
    for (value, expected) in cases {
        assert_eq!(number(value), expected);
    }
}
