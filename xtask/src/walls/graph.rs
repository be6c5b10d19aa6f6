//! Members, packages and the dependencies between them, as far as walls need to know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, PackageId};

/// The members of the workspace, and their dependencies.
#[derive(Default)]
pub(crate) struct Graph {
    /// The members in order of their names.
    pub(super) members: Vec<Member>,
    packages: BTreeMap<String, Package>,
}

/// A package of the workspace.
pub(super) struct Member {
    pub(super) name: String,
    /// Relative to the workspace.
    pub(super) folder: String,
    id: String,
}

/// Any package, by an identity that tells versions apart.
struct Package {
    name: String,
    /// Identities of what it depends on.
    normal: BTreeSet<String>,
    /// The same, of any kind: normal, for builds, for tests.
    all: BTreeSet<String>,
}

impl Graph {
    /// Made of the dependencies that cargo has resolved, on every platform and with the features of
    /// the whole workspace. That is never less than what one package alone would get.
    pub(crate) fn of(metadata: &Metadata) -> Result<Self> {
        let resolve = metadata.resolve.as_ref().context("nothing was resolved")?;
        let mut graph = Self::default();
        for package in metadata.workspace_packages() {
            let folder = package.manifest_path.parent().context("no folder")?;
            let folder = folder.strip_prefix(&metadata.workspace_root)?;
            let (name, id) = (package.name.as_str(), package.id.repr.as_str());
            graph.add_member(name, folder.as_str(), id);
        }
        for package in &metadata.packages {
            graph.add_package(&package.id.repr, package.name.as_str());
        }
        for node in &resolve.nodes {
            for dependency in &node.deps {
                let PackageId { repr: to } = &dependency.pkg;
                for kind in &dependency.dep_kinds {
                    let normal = kind.kind == DependencyKind::Normal;
                    graph.add_dependency(&node.id.repr, to, normal);
                }
            }
        }
        Ok(graph)
    }

    pub(super) fn add_member(&mut self, name: &str, folder: &str, id: &str) {
        self.members.push(Member {
            name: name.to_owned(),
            folder: folder.to_owned(),
            id: id.to_owned(),
        });
        self.members.sort_by(|a, b| a.name.cmp(&b.name));
    }

    pub(super) fn add_package(&mut self, id: &str, name: &str) {
        let package = Package {
            name: name.to_owned(),
            normal: BTreeSet::new(),
            all: BTreeSet::new(),
        };
        self.packages.insert(id.to_owned(), package);
    }

    /// Without effect for an unknown package.
    pub(super) fn add_dependency(&mut self, from: &str, to: &str, normal: bool) {
        if let Some(package) = self.packages.get_mut(from) {
            package.all.insert(to.to_owned());
            if normal {
                package.normal.insert(to.to_owned());
            }
        }
    }

    /// Names of the direct normal dependencies of a member.
    pub(super) fn normal(&self, member: &Member) -> BTreeSet<&str> {
        let package = self.packages.get(&member.id);
        self.names(package.map(|package| &package.normal))
    }

    /// Names of all direct dependencies of a member, of whatever kind.
    pub(super) fn all(&self, member: &Member) -> BTreeSet<&str> {
        let package = self.packages.get(&member.id);
        self.names(package.map(|package| &package.all))
    }

    /// The shortest way over normal dependencies to a package of this name, as names: the first
    /// is a direct dependency of the member, the last the package.
    pub(super) fn way<'a>(&'a self, member: &'a Member, to: &str) -> Option<Vec<&'a str>> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([&*member.id]);
        while let Some(id) = queue.pop_front() {
            let Some(package) = self.packages.get(id) else {
                continue;
            };
            if package.name == to && id != member.id {
                return Some(self.back(&came_from, id));
            }
            for next in &package.normal {
                if *next != member.id && !came_from.contains_key(&**next) {
                    came_from.insert(next, id);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    fn back<'a>(&'a self, came_from: &BTreeMap<&'a str, &'a str>, last: &'a str) -> Vec<&'a str> {
        let ids = std::iter::successors(Some(last), |id| came_from.get(id).copied());
        let mut names: Vec<&str> = ids.filter_map(|id| self.name(id)).collect();
        names.pop(); // The member itself.
        names.reverse();
        names
    }

    fn names<'a>(&'a self, ids: Option<&'a BTreeSet<String>>) -> BTreeSet<&'a str> {
        let ids = ids.into_iter().flatten();
        ids.filter_map(|id| self.name(id)).collect()
    }

    fn name(&self, id: &str) -> Option<&str> {
        self.packages.get(id).map(|package| &*package.name)
    }
}
