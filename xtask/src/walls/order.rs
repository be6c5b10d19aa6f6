//! The order of the modules within the proxy, read from the paths that its code names.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, ItemMod, ItemUse, UseTree};

use super::table::{PROXY_ORDER, PROXY_SOURCE};
use crate::survey::test_code::{attributes_of, attributes_of_part, is_test_only};
use crate::survey::{Role, RustFile, Survey};
use crate::violation::Violation;

/// Checks all production code of the proxy but its `lib.rs`, which joins the modules.
pub(super) fn check(survey: &Survey) -> Vec<Violation> {
    let files = survey.rust.iter();
    let files = files.filter(|file| file.role == Role::Production);
    let found = files.flat_map(|file| match file.path.strip_prefix(PROXY_SOURCE) {
        Some("lib.rs") | None => Vec::new(),
        Some(within) => check_file(file, within.trim_end_matches(".rs")),
    });
    found.collect()
}

fn check_file(file: &RustFile, within: &str) -> Vec<Violation> {
    let modules: Vec<String> = within.split('/').map(str::to_owned).collect();
    let module = modules.first().cloned().unwrap_or_default();
    let Some(row) = row_of(&module) else {
        return vec![Violation {
            path: file.path.clone(),
            line: 1,
            rule: "order",
            what: format!("`{module}` has no place in the order of the proxy's modules"),
            remedy: "put it below a module of xtask/src/walls/table.rs, or give it its place there",
        }];
    };
    let mut paths = Paths {
        modules,
        found: Vec::new(),
    };
    paths.visit_file(&file.syntax);
    let named = paths.found.into_iter();
    let wrong = named.filter(|(name, _)| {
        *name != module && row_of(name).is_none_or(|named_row| named_row >= row)
    });
    let violations = wrong.map(|(name, line)| Violation {
        path: file.path.clone(),
        line,
        rule: "order",
        what: match row_of(&name) {
            Some(_) => format!("`{module}` must not name `{name}`, which is not below it"),
            None => format!("`{module}` names `crate::{name}`, which is not a module in the order"),
        },
        remedy: "move what is named down, or hand it in from above",
    });
    violations.collect()
}

/// The height of a module in the order.
fn row_of(module: &str) -> Option<usize> {
    PROXY_ORDER.iter().position(|row| row.contains(&module))
}

/// Collects the top-level names of the crate that the code names, whether it starts from `crate`
/// or climbs there by `super`.
struct Paths {
    /// Where the visitor is, from the root of the crate.
    modules: Vec<String>,
    found: Vec<(String, usize)>,
}

impl Paths {
    /// `parts` are the leading names of a path.
    fn add(&mut self, parts: &[String], span: Span) {
        let climbs = parts.iter().skip_while(|part| *part == "self");
        let supers = climbs.clone().take_while(|part| *part == "super").count();
        let from_root = match parts.first().map(String::as_str) {
            Some("crate") => parts.get(1..),
            Some("self" | "super") if supers == self.modules.len() => {
                let selves = parts.iter().take_while(|part| *part == "self").count();
                parts.get(selves + supers..)
            }
            _ => None,
        };
        if let Some(rest) = from_root {
            let name = rest.first().map_or("*", String::as_str);
            self.found.push((name.to_owned(), span.start().line));
        }
    }

    fn add_use(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use(before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(before, tree);
                }
            }
            UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_) => {
                let name = match tree {
                    UseTree::Name(name) => Some(name.ident.to_string()),
                    UseTree::Rename(rename) => Some(rename.ident.to_string()),
                    _ => None,
                };
                let mut parts = before.clone();
                parts.extend(name.filter(|name| name != "self"));
                self.add(&parts, tree.span());
            }
        }
    }

    /// Paths in the arguments of a macro, which are not parsed yet.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut parts: Vec<String> = Vec::new();
        let mut start = Span::call_site();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add(&parts, start);
                        parts.clear();
                        start = name.span();
                    }
                    parts.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                other => {
                    self.add(&parts, start);
                    parts.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add(&parts, start);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_only(attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, part: &'ast ImplItem) {
        if !is_test_only(attributes_of_part(part)) {
            visit::visit_impl_item(self, part);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.modules.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.modules.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_use(&mut Vec::new(), &item.tree);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {
        // `pub(in crate::a)` and `pub(crate)` say who sees, not what is seen.
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.add(&parts, path.span());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.add_tokens(call.tokens.clone());
    }
}
