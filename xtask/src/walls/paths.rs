//! The paths within its crate that the production code of a file names.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, ItemMod, ItemUse, UseTree};

use crate::survey::test_code::{attributes_of, attributes_of_part, is_test_only};

/// Each path from the root of the crate with its line, whether the code starts it from `crate`,
/// `self` or `super`. `modules` leads from the root to the file.
pub(super) fn named(file: &syn::File, modules: Vec<String>) -> Vec<(Vec<String>, usize)> {
    let mut paths = Paths {
        modules,
        found: Vec::new(),
    };
    paths.visit_file(file);
    paths.found
}

/// Collects paths while it visits a file.
struct Paths {
    /// The module that the visitor is in, from the root of the crate.
    modules: Vec<String>,
    found: Vec<(Vec<String>, usize)>,
}

impl Paths {
    /// `parts` are the leading names of a path.
    fn add(&mut self, parts: &[String], span: Span) {
        let selves = parts.iter().take_while(|part| *part == "self").count();
        let after = parts.iter().skip(selves);
        let supers = after.take_while(|part| *part == "super").count();
        let from = match parts.first().map(String::as_str) {
            Some("crate") => Some((0, 1)),
            Some("self" | "super") => {
                let left = self.modules.len().checked_sub(supers);
                left.map(|left| (left, selves + supers))
            }
            _ => None,
        };
        if let Some((kept, skipped)) = from {
            let path = self.modules.iter().take(kept);
            let path = path.chain(parts.iter().skip(skipped)).cloned().collect();
            self.found.push((path, span.start().line));
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
