//! Names of modules: a module is called by what it knows.

use syn::ItemMod;
use syn::visit::{self, Visit};

use crate::survey::RustFile;
use crate::violation::Violation;

/// Names that say nothing, so that everything ends up below them.
const FORBIDDEN: [&str; 9] = [
    "common",
    "helper",
    "helpers",
    "manager",
    "managers",
    "misc",
    "util",
    "utils",
    "utilities",
];

/// Checks the names of a file, of its folders and of the modules within.
pub(super) fn check(file: &RustFile) -> Vec<Violation> {
    let mut found = Vec::new();
    let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    for name in stem.split('/') {
        if FORBIDDEN.contains(&name) {
            found.push(forbidden(&file.path, 1, name));
        }
    }
    if stem.ends_with("/mod") {
        found.push(Violation {
            path: file.path.clone(),
            line: 1,
            rule: "mod-file",
            what: "a `mod.rs`: ten editor tabs of one name".to_owned(),
            remedy: "use `foo.rs` beside `foo/`",
        });
    }
    let mut modules = Modules { file, found };
    modules.visit_file(&file.syntax);
    modules.found
}

struct Modules<'a> {
    file: &'a RustFile,
    found: Vec<Violation>,
}

impl<'ast> Visit<'ast> for Modules<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let name = module.ident.to_string();
        if module.content.is_some() && FORBIDDEN.contains(&&*name) {
            let line = module.ident.span().start().line;
            self.found.push(forbidden(&self.file.path, line, &name));
        }
        visit::visit_item_mod(self, module);
    }
}

fn forbidden(path: &str, line: usize, name: &str) -> Violation {
    Violation {
        path: path.to_owned(),
        line,
        rule: "module-name",
        what: format!("a module named `{name}` says nothing of what it knows"),
        remedy: "name it by its subject, or put its parts where they are used",
    }
}
