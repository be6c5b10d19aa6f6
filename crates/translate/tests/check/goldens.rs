//! Goldens: `tests/goldens/<dialect>/<the sentence under test>.yaml` holds objects, then what
//! becomes of them. `UPDATE_GOLDENS=1` writes the second part anew. The objects of
//! `tests/goldens/base.yaml` are there in all of them; alone they make no resource.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::{render, world};

/// The most lines of a golden, so that one fits on a screen.
const LINES_MAX: usize = 100;

/// The most bytes of a golden.
const BYTES_MAX: u64 = 64 << 10;

/// Two Services with an endpoint each, in each of two namespaces, and a certificate.
pub(crate) const BASE: &str = include_str!("../goldens/base.yaml");

/// The Service of the egress gateway, with one endpoint, and what else the examples name.
const EGRESS: &str = include_str!("../goldens/egress.yaml");

#[test]
fn the_base_makes_no_resource() {
    let mut engine = world::engine(world::settings(""));
    let outcome = engine.apply(world::changes(BASE), world::NOW);
    assert_eq!(outcome.delta.len(), 2, "the listeners");
    assert_eq!(engine.usage().units, 0);
}

#[test]
fn every_golden_holds() {
    check("ingress", renew);
}

#[test]
fn every_golden_of_istio_holds() {
    check("istio", renew);
}

/// The goldens of Gateway API at gateways.
#[test]
fn every_golden_of_gateway_api_holds() {
    check("gateway", renew);
}

/// The goldens of routes of Gateway API whose parents are Services.
#[test]
fn every_golden_of_gateway_api_in_the_mesh_holds() {
    check("gateway-mesh", |text| renew_on("", text));
}

/// The goldens of issuers.
#[test]
fn every_golden_of_acme_holds() {
    check("acme", renew);
}

/// The matrix of claims: by Ingress, Gateway and VirtualService, to names and wildcards, with and
/// without TLS, older and younger, and proven by a record of DNS.
#[test]
fn every_golden_of_ownership_holds() {
    check("ownership", renew);
}

/// The objects that Istio's own samples write for its ingress gateway, in other words.
#[test]
fn every_shape_of_the_samples_of_istio_holds() {
    check("istio-samples", renew);
}

/// The goldens of sidecars.
#[test]
fn every_golden_of_the_mesh_holds() {
    // The base would be in the scope of each of them.
    check("mesh", |text| renew_on("", text));
}

/// The goldens of egress: its examples at the sidecars of clients and at the gateway.
#[test]
fn every_golden_of_egress_holds() {
    check("egress", |text| {
        let name = text
            .lines()
            .next()
            .and_then(|it| it.strip_prefix("# example "));
        let name = name.expect("the first line names an example");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/egress");
        let example = read(&root.join(name).join("mongo.yaml"));
        let renewed = renew_on("", &[EGRESS, &example].concat());
        let (_, result) = renewed.split_once("=== resources\n").expect("a result");
        format!("# example {name}\n=== resources\n{result}")
    });
}

fn renew(text: &str) -> String {
    renew_on(BASE, text)
}

fn renew_on(base: &str, text: &str) -> String {
    let objects = text.split("=== resources\n").next().unwrap_or(text);
    let mut engine = world::engine(world::settings(objects));
    engine.apply(world::changes(base), world::NOW);
    engine.apply(world::changes(objects), world::NOW);
    format!(
        "{objects}=== resources\n{}{}{}{}{}=== findings\n{}",
        render::views(&engine),
        render::issuers(&engine),
        render::wishes(&engine),
        render::rivals(&engine),
        render::statuses(&engine),
        render::findings(engine.findings())
    )
}

/// Compares every golden of a folder with what `renew` makes of it.
pub(crate) fn check(folder: &str, renew: impl Fn(&str) -> String) {
    let is_update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let files = list(folder);
    assert!(!files.is_empty(), "there are goldens in {folder}");
    let mut broken = Vec::new();
    for file in files {
        let text = read(&file);
        let renewed = renew(&text);
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            renewed.lines().count() <= LINES_MAX,
            "{name} does not fit on a screen"
        );
        if renewed == text {
            continue;
        }
        if is_update {
            fs::write(&file, renewed).unwrap();
        } else {
            broken.push(format!("--- {name}\n{}", difference(&text, &renewed)));
        }
    }
    assert!(
        broken.is_empty(),
        "{} goldens differ; UPDATE_GOLDENS=1 rewrites them\n{}",
        broken.len(),
        broken.join("\n")
    );
}

#[expect(clippy::disallowed_methods, reason = "bounded by `take`")]
pub(crate) fn read(file: &Path) -> String {
    let mut text = String::new();
    let file = fs::File::open(file).unwrap();
    file.take(BYTES_MAX).read_to_string(&mut text).unwrap();
    text
}

pub(crate) fn list(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/goldens")
        .join(folder);
    let entries = fs::read_dir(root).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The lines that stand in one text only.
fn difference(old: &str, new: &str) -> String {
    let mut lines = String::new();
    for line in old
        .lines()
        .filter(|line| !new.lines().any(|other| other == *line))
    {
        lines.push_str(&format!("- {line}\n"));
    }
    for line in new
        .lines()
        .filter(|line| !old.lines().any(|other| other == *line))
    {
        lines.push_str(&format!("+ {line}\n"));
    }
    lines
}
