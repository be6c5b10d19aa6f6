//! The work tree as the checks see it: texts, syntax trees, and which code serves only tests.
//!
//! Everything after reading is pure, so a test hands over a tree of a few lines instead of files.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand, TargetKind};

mod reach;
pub(crate) mod test_code;
mod tree;

pub(crate) use reach::Root;
pub(crate) use tree::Tree;

use crate::violation::Violation;

/// The target that a Rust file is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// It is part of a library or a program.
    Production,
    /// It is compiled for tests or benchmarks only.
    Test,
    /// No target reaches it.
    Orphan,
}

/// A Rust file that parses.
pub(crate) struct RustFile {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
    pub(crate) role: Role,
    /// Written by a program, so no limit on size or form applies.
    pub(crate) generated: bool,
    /// Lines, from 1, of items that are compiled for tests only.
    pub(crate) test_lines: Vec<RangeInclusive<usize>>,
}

impl RustFile {
    /// Lines that are not test code, comments and blank lines included: they are read as well.
    pub(crate) fn production_lines(&self) -> usize {
        if self.role != Role::Production || self.generated {
            return 0;
        }
        let lines = 1..=self.text.lines().count();
        lines.filter(|line| !self.is_test_line(*line)).count()
    }

    /// Whether a line, counted from 1, is of an item that is compiled for tests only.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.iter().any(|range| range.contains(&line))
    }
}

/// The whole work tree.
pub(crate) struct Survey {
    pub(crate) tree: Tree,
    /// The Rust files in order of their paths.
    pub(crate) rust: Vec<RustFile>,
    /// Rust files that do not parse.
    pub(crate) unparsable: Vec<Violation>,
}

impl Survey {
    /// Reads the tree below `root`; the targets are those of `metadata`.
    pub(crate) fn of(root: &Path, metadata: &Metadata) -> Result<Self> {
        let tree = Tree::read(root)?;
        let mut roots = roots_of(root, metadata);
        roots.extend(roots_apart(&tree));
        Ok(Self::new(tree, &roots))
    }

    /// Parses each Rust file once and follows the modules from the roots.
    pub(crate) fn new(tree: Tree, roots: &[Root]) -> Self {
        let (parsed, unparsable) = parse(&tree);
        let reached = reach::follow(&parsed, roots);
        let rust = parsed.into_iter().map(|(path, syntax)| {
            let text = tree.text(&path).unwrap_or_default().to_owned();
            RustFile {
                role: reached.get(&path).copied().unwrap_or(Role::Orphan),
                generated: is_generated(&text),
                test_lines: test_code::lines(&syntax),
                path,
                text,
                syntax,
            }
        });
        let rust = rust.collect();
        Self {
            tree,
            rust,
            unparsable,
        }
    }

    /// Production lines below a folder such as `crates/model/`.
    pub(crate) fn production_lines_below(&self, folder: &str) -> usize {
        let below = self.rust.iter().filter(|f| f.path.starts_with(folder));
        below.map(RustFile::production_lines).sum()
    }
}

/// The metadata that cargo has of the workspace and of all that it depends on.
pub(crate) fn read_metadata(root: &Path) -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.manifest_path(root.join("Cargo.toml"));
    command.exec().context("cargo metadata failed")
}

/// A file says in its first lines that a program wrote it.
pub(crate) fn is_generated(text: &str) -> bool {
    let marker = concat!("@", "generated");
    text.lines().take(5).any(|line| line.contains(marker))
}

fn parse(tree: &Tree) -> (BTreeMap<String, syn::File>, Vec<Violation>) {
    let mut parsed = BTreeMap::new();
    let mut unparsable = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".rs")) {
        match syn::parse_file(text) {
            Ok(syntax) => {
                parsed.insert(path.to_owned(), syntax);
            }
            Err(error) => unparsable.push(Violation {
                path: path.to_owned(),
                line: error.span().start().line,
                rule: "syntax",
                what: format!("does not parse: {error}"),
                remedy: "mend it, or move what is not Rust into a file of another kind",
            }),
        }
    }
    (parsed, unparsable)
}

/// The roots of what is built by hand only, in a workspace of its own below this one.
fn roots_apart(tree: &Tree) -> Vec<Root> {
    let mut roots = Vec::new();
    for (path, text) in tree.files() {
        let Some(folder) = path.strip_suffix("/Cargo.toml") else {
            continue;
        };
        if !text.lines().any(|line| line == "[workspace]") {
            continue;
        }
        let paths = text
            .lines()
            .filter_map(|line| line.strip_prefix("path = \""));
        let paths = paths.filter_map(|path| path.strip_suffix('"'));
        roots.extend(paths.map(|path| Root {
            path: format!("{folder}/{path}"),
            role: Role::Test,
        }));
    }
    roots
}

fn roots_of(root: &Path, metadata: &Metadata) -> Vec<Root> {
    let members = metadata.workspace_packages();
    let targets = members.iter().flat_map(|package| &package.targets);
    let roots = targets.filter_map(|target| {
        let path = target.src_path.as_std_path().strip_prefix(root).ok()?;
        let test_only = target
            .kind
            .iter()
            .all(|kind| matches!(kind, TargetKind::Test | TargetKind::Bench));
        Some(Root {
            path: path.to_str()?.to_owned(),
            role: if test_only {
                Role::Test
            } else {
                Role::Production
            },
        })
    });
    roots.collect()
}
