use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{markdown, rows};

/// Names that are not ours to choose.
const OF_OTHERS: [&str; 2] = ["istio_", "process_"];

/// A path of this repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

#[test]
fn the_page_is_the_table() {
    let page = markdown();
    let written = include_str!("../../../../docs/metrics.md");
    if page != written && std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(repository("docs/metrics.md"), &page).expect("written");
        return;
    }
    assert!(
        page == written,
        "docs/metrics.md is another page; write it with UPDATE_GOLDENS=1"
    );
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    let mut names = BTreeSet::new();
    for row in rows() {
        let name = row.name;
        assert!(names.insert(name), "{name} stands there twice");
        if OF_OTHERS.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let letters = name.bytes();
        let mut letters = letters.filter(|it| !matches!(it, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        assert!(
            name.starts_with("myriad_") && letters.next().is_none(),
            "{name}"
        );
        assert_eq!(row.kind == "counter", name.ends_with("_total"), "{name}");
        let units = [
            "_ms",
            "_millis",
            "_milliseconds",
            "_micros",
            "_kib",
            "_mib",
            "_percent",
        ];
        assert!(!units.iter().any(|unit| name.contains(unit)), "{name}");
        if row.kind == "histogram" {
            assert!(name.ends_with("_seconds"), "{name}");
        }
        assert!(!row.help.is_empty() && !row.of.is_empty(), "{name}");
        // What grows with the number of domains is bounded by a setting.
        for label in row.labels.split_whitespace() {
            let is_bounded =
                name.starts_with("myriad_domain_") || name.starts_with("myriad_route_");
            let grows = [
                "domain",
                "host",
                "route",
                "namespace",
                "name",
                "path",
                "client",
            ];
            assert!(is_bounded || !grows.contains(&label), "{name} by {label}");
        }
    }
    assert!(names.len() > 150, "{} names", names.len());
}

/// Every name of the table stands in the code, so that none is of the past.
#[test]
fn each_metric_is_one_of_the_code() {
    let mut code = String::new();
    let mut folders = vec![repository("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") && !path.ends_with("corpus") {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                #[expect(clippy::disallowed_methods, reason = "these are files of ours")]
                let text = std::fs::read_to_string(&path).expect("a file");
                code.push_str(&text);
            }
        }
    }
    for row in rows() {
        let name = row.name.strip_prefix("myriad_").unwrap_or(row.name);
        let name = name.strip_suffix("_total").unwrap_or(name);
        let written = [name, name.trim_start_matches("kubernetes_")];
        let stands = written.iter().any(|it| code.contains(&format!("\"{it}\"")));
        let is_total = code.contains(&format!("\"{name}_total\""));
        assert!(stands || is_total, "{} is nowhere in the code", row.name);
    }
}
