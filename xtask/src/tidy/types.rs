//! Names of types: retired words stay away, and an exported type is the only one of its name.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Ident, Item, UseRename, Visibility};

use crate::survey::{Role, RustFile, Survey};
use crate::violation::Violation;

/// Words that stood for several things, or for one that everybody calls by another name. No type
/// or module is called so; types of others that are used by their path may be.
const RETIRED: [&str; 12] = [
    "Around", "Channel", "Dice", "Guard", "Journal", "Link", "Manner", "Passage", "Place",
    "Target", "Tries", "Visit",
];

/// The folders of crates that declare nothing by a retired word.
const FREE_OF_RETIRED: [&str; 3] = ["crates/model/", "crates/proxy/", "crates/translate/"];

/// The folders of crates in which no two exported types have one name.
const UNIQUE: [&str; 9] = [
    "crates/admin/",
    "crates/api/",
    "crates/app/",
    "crates/base/",
    "crates/model/",
    "crates/pki/",
    "crates/proxy/",
    "crates/sidecar/",
    "crates/translate/",
];

/// Checks that a file declares no type and no module by a retired word.
pub(super) fn check(file: &RustFile) -> Vec<Violation> {
    if !FREE_OF_RETIRED.iter().any(|it| file.path.starts_with(it)) {
        return Vec::new();
    }
    let declared = Declared::of(file).all.into_iter();
    let retired = declared.filter(|it| it.is_retired());
    retired
        .map(|it| Violation {
            path: file.path.clone(),
            line: it.line,
            rule: "retired-name",
            what: format!("`{}` is a word that was retired", it.name),
            remedy: "name it by the term of the field; GLOSSARY.md has those of the house",
        })
        .collect()
}

/// Checks that the exported types of each crate have names of their own.
pub(super) fn check_unique(survey: &Survey) -> Vec<Violation> {
    UNIQUE
        .iter()
        .flat_map(|folder| repeated(survey, folder))
        .collect()
}

fn repeated(survey: &Survey, folder: &str) -> Vec<Violation> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    let files = survey.rust.iter().filter(|file| {
        file.path.starts_with(folder) && file.role == Role::Production && !file.generated
    });
    for file in files {
        for it in Declared::of(file).all {
            if !it.is_exported || file.is_test_line(it.line) {
                continue;
            }
            if let Some(other) = known.get(&it.name) {
                found.push(Violation {
                    path: file.path.clone(),
                    line: it.line,
                    rule: "type-name",
                    what: format!("`{}` is the name of another type, in {other}", it.name),
                    remedy: "give each a name that says what it is",
                });
            } else {
                known.insert(it.name, file.path.clone());
            }
        }
    }
    found
}

/// A name that a file gives to a type or a module.
struct Name {
    name: String,
    line: usize,
    /// Whether it is a type that other files may use.
    is_exported: bool,
}

impl Name {
    fn is_retired(&self) -> bool {
        RETIRED
            .iter()
            .any(|word| word.eq_ignore_ascii_case(&self.name))
    }
}

/// The names in a file.
#[derive(Default)]
struct Declared {
    all: Vec<Name>,
}

impl Declared {
    fn of(file: &RustFile) -> Self {
        let mut declared = Declared::default();
        declared.visit_file(&file.syntax);
        declared
    }

    fn add(&mut self, ident: &Ident, is_exported: bool) {
        self.all.push(Name {
            name: ident.to_string(),
            line: ident.span().start().line,
            is_exported,
        });
    }
}

impl<'ast> Visit<'ast> for Declared {
    fn visit_item(&mut self, item: &'ast Item) {
        let named = match item {
            Item::Enum(item) => Some((&item.ident, &item.vis)),
            Item::Struct(item) => Some((&item.ident, &item.vis)),
            Item::Trait(item) => Some((&item.ident, &item.vis)),
            Item::Type(item) => Some((&item.ident, &item.vis)),
            Item::Union(item) => Some((&item.ident, &item.vis)),
            _ => None,
        };
        if let Some((ident, visibility)) = named {
            self.add(ident, !matches!(visibility, Visibility::Inherited));
        }
        if let Item::Mod(module) = item {
            self.add(&module.ident, false);
        }
        visit::visit_item(self, item);
    }

    fn visit_use_rename(&mut self, rename: &'ast UseRename) {
        self.add(&rename.rename, false);
    }
}
