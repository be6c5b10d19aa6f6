//! How long a file, a function and a line may be.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

use crate::survey::RustFile;
use crate::violation::Violation;

/// Production lines of a file.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Characters of a line.
const LINE_COLUMNS_MAX: usize = 100;

/// Checks one file written by hand.
pub(super) fn check(file: &RustFile) -> Vec<Violation> {
    let mut found = Vec::new();
    found.extend(file_length(file));
    let mut functions = Functions { file, found };
    functions.visit_file(&file.syntax);
    found = functions.found;
    found.extend(long_lines(&file.path, &file.text));
    found
}

/// Lines that are too long; one whose comment has a URL may be, since a URL cannot be broken.
pub(super) fn long_lines(path: &str, text: &str) -> Vec<Violation> {
    let lines = text.lines().enumerate();
    let long = lines.filter(|(_, line)| {
        let comment = line.trim_start();
        let comment = comment.starts_with("//") || comment.starts_with('#');
        line.chars().count() > LINE_COLUMNS_MAX && !(comment && line.contains("://"))
    });
    let violations = long.map(|(index, line)| Violation {
        path: path.to_owned(),
        line: index + 1,
        rule: "line-columns",
        what: format!(
            "line has {} columns, limit {LINE_COLUMNS_MAX}",
            line.chars().count()
        ),
        remedy: "break it",
    });
    violations.collect()
}

fn file_length(file: &RustFile) -> Option<Violation> {
    let lines = file.production_lines();
    (lines > FILE_LINES_MAX).then(|| Violation {
        path: file.path.clone(),
        line: 1,
        rule: "file-lines",
        what: format!("file has {lines} production lines, limit {FILE_LINES_MAX}"),
        remedy: "divide it by what its parts know, not by length",
    })
}

struct Functions<'a> {
    file: &'a RustFile,
    found: Vec<Violation>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &Signature, body: &Block) {
        let first = signature.span().start().line;
        let last = body.brace_token.span.close().end().line;
        let lines = last.saturating_sub(first) + 1;
        if lines > FUNCTION_LINES_MAX {
            self.found.push(Violation {
                path: self.file.path.clone(),
                line: first,
                rule: "function-lines",
                what: format!(
                    "function `{}` has {lines} lines, limit {FUNCTION_LINES_MAX}",
                    signature.ident
                ),
                remedy: "give its steps names: a function each",
            });
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.measure(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}
