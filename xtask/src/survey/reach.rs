//! The files that a target's module declarations reach, and the target.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Expr, Item, ItemMod, Lit, Meta};

use super::Role;
use super::test_code::{attributes_of, is_test_only};

/// The first file of a target.
pub(crate) struct Root {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) role: Role,
}

/// The role of each file that some root reaches; production wins where both reach it.
pub(crate) fn follow(
    files: &BTreeMap<String, syn::File>,
    roots: &[Root],
) -> BTreeMap<String, Role> {
    let mut walk = Walk {
        files,
        reached: BTreeMap::new(),
    };
    for root in roots {
        let folder = folder_of(&root.path);
        walk.enter(&root.path, folder.to_owned(), root.role);
    }
    walk.reached
}

struct Walk<'a> {
    files: &'a BTreeMap<String, syn::File>,
    reached: BTreeMap<String, Role>,
}

impl Walk<'_> {
    /// Visits a file whose child modules lie in `children`.
    fn enter(&mut self, path: &str, children: String, role: Role) {
        let Some(file) = self.files.get(path) else {
            return;
        };
        let role = if is_test_only(&file.attrs) {
            Role::Test
        } else {
            role
        };
        if self.reached.get(path).is_some_and(|known| *known <= role) {
            return;
        }
        self.reached.insert(path.to_owned(), role);
        let mut modules = Modules {
            folder: folder_of(path).to_owned(),
            children,
            role,
            found: Vec::new(),
        };
        modules.visit_file(file);
        for found in modules.found {
            let Some(target) = found.paths.iter().find(|p| self.files.contains_key(*p)) else {
                continue;
            };
            let children = children_of(target);
            self.enter(target, children, found.role);
        }
    }
}

/// A declaration that names another file: the places where it may lie.
struct Found {
    paths: Vec<String>,
    role: Role,
}

struct Modules {
    folder: String,
    children: String,
    role: Role,
    found: Vec<Found>,
}

impl Modules {
    fn declare(&mut self, module: &ItemMod) {
        let name = unraw(&module.ident);
        let paths = match path_attribute(module) {
            Some(path) => vec![join(&self.folder, &path)],
            None => vec![
                join(&self.children, &format!("{name}.rs")),
                join(&self.children, &format!("{name}/mod.rs")),
            ],
        };
        let role = self.role;
        self.found.push(Found { paths, role });
    }
}

impl<'ast> Visit<'ast> for Modules {
    fn visit_item(&mut self, item: &'ast Item) {
        let role = self.role;
        if is_test_only(attributes_of(item)) {
            self.role = Role::Test;
        }
        visit::visit_item(self, item);
        self.role = role;
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.content.is_none() {
            self.declare(module);
            return;
        }
        let inner = join(&self.children, &unraw(&module.ident));
        let outer = std::mem::replace(&mut self.children, inner);
        visit::visit_item_mod(self, module);
        self.children = outer;
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.is_ident("include")
            && let Ok(Lit::Str(path)) = call.parse_body::<Lit>()
        {
            self.found.push(Found {
                paths: vec![join(&self.folder, &path.value())],
                role: self.role,
            });
        }
    }
}

fn path_attribute(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        let Expr::Lit(value) = &pair.value else {
            return None;
        };
        match &value.lit {
            Lit::Str(path) if pair.path.is_ident("path") => Some(path.value()),
            _ => None,
        }
    })
}

fn unraw(name: &syn::Ident) -> String {
    name.to_string().trim_start_matches("r#").to_owned()
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn children_of(path: &str) -> String {
    match path.strip_suffix("/mod.rs") {
        Some(folder) => folder.to_owned(),
        None => path.trim_end_matches(".rs").to_owned(),
    }
}

/// Joins with `..` resolved, since paths are compared as texts.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(files: &[(&str, &str)], roots: &[(&str, Role)]) -> Vec<(String, Role)> {
        let files = files.iter().map(|(path, text)| {
            let file = syn::parse_file(text).expect("the sample parses");
            ((*path).to_owned(), file)
        });
        let roots: Vec<Root> = roots
            .iter()
            .map(|(path, role)| Root {
                path: (*path).to_owned(),
                role: *role,
            })
            .collect();
        follow(&files.collect(), &roots).into_iter().collect()
    }

    #[test]
    fn modules_are_followed_beside_and_below_their_parent() {
        let files = [
            ("a/src/lib.rs", "mod one; mod two { mod inner; }"),
            (
                "a/src/one.rs",
                "#[cfg(test)] mod tests; include!(\"gen.rs\");",
            ),
            ("a/src/one/tests.rs", ""),
            ("a/src/gen.rs", ""),
            (
                "a/src/two/inner.rs",
                "#[path = \"../../data/odd.rs\"] mod odd;",
            ),
            ("a/data/odd.rs", ""),
            ("a/src/lost.rs", ""),
        ];
        let reached = reached(&files, &[("a/src/lib.rs", Role::Production)]);
        let expected = [
            ("a/data/odd.rs", Role::Production),
            ("a/src/gen.rs", Role::Production),
            ("a/src/lib.rs", Role::Production),
            ("a/src/one.rs", Role::Production),
            ("a/src/one/tests.rs", Role::Test),
            ("a/src/two/inner.rs", Role::Production),
        ];
        assert_eq!(
            reached,
            expected.map(|(path, role)| (path.to_owned(), role))
        );
    }

    #[test]
    fn a_file_that_tests_and_a_library_reach_is_production() {
        let files = [
            ("a/tests/t.rs", "#[path = \"../src/shared.rs\"] mod shared;"),
            ("a/src/lib.rs", "mod shared;"),
            ("a/src/shared.rs", ""),
        ];
        let roots = [
            ("a/tests/t.rs", Role::Test),
            ("a/src/lib.rs", Role::Production),
        ];
        let reached = reached(&files, &roots);
        assert!(reached.contains(&("a/src/shared.rs".to_owned(), Role::Production)));
        assert!(reached.contains(&("a/tests/t.rs".to_owned(), Role::Test)));
    }
}
