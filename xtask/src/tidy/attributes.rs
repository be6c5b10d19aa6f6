//! Lint attributes: an exception carries its reason, and some modules must deny panics.

use proc_macro2::TokenTree;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{AttrStyle, Attribute, Meta, MetaList, Token};

use crate::survey::{RustFile, Survey};
use crate::violation::Violation;

/// Files that take input from the network and therefore must not be able to panic on it.
const PANIC_FREE: [&str; 11] = [
    "crates/model/src/wire.rs",
    "crates/proxy/src/admission.rs",
    "crates/proxy/src/codec.rs",
    "crates/proxy/src/failure.rs",
    "crates/proxy/src/limits.rs",
    "crates/proxy/src/local.rs",
    "crates/proxy/src/net.rs",
    "crates/proxy/src/pattern.rs",
    "crates/proxy/src/random.rs",
    "crates/proxy/src/telemetry.rs",
    "crates/sync/src/lib.rs",
];

/// The lints that they deny, for themselves and the modules below.
const PANICS: [&str; 3] = [
    "clippy::unwrap_used",
    "clippy::expect_used",
    "clippy::indexing_slicing",
];

/// Every `allow` and `expect` of the file says why.
pub(super) fn check(file: &RustFile) -> Vec<Violation> {
    let mut reasons = Reasons {
        file,
        found: Vec::new(),
    };
    reasons.visit_file(&file.syntax);
    reasons.found
}

/// The files named above deny what they must, when they exist.
pub(super) fn check_denied(survey: &Survey) -> Vec<Violation> {
    let files = survey.rust.iter();
    let files = files.filter(|file| PANIC_FREE.contains(&&*file.path));
    let missing = files.flat_map(|file| {
        let denied = denied(&file.syntax.attrs);
        let missing = PANICS.iter().filter(move |lint| !denied.contains(**lint));
        missing.map(|lint| Violation {
            path: file.path.clone(),
            line: 1,
            rule: "panic-free",
            what: format!("`#![deny({lint})]` is missing: input must not be able to panic"),
            remedy: "deny it at the top of the file",
        })
    });
    missing.collect()
}

struct Reasons<'a> {
    file: &'a RustFile,
    found: Vec<Violation>,
}

impl<'ast> Visit<'ast> for Reasons<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta
            && lacks_reason(list)
        {
            self.found.push(Violation {
                path: self.file.path.clone(),
                line: attribute.span().start().line,
                rule: "reason",
                what: "an exception from a lint without its reason".to_owned(),
                remedy: "add `reason = \"...\"`, or heed the lint",
            });
        }
    }
}

/// Looks into `cfg_attr` as well.
fn lacks_reason(list: &MetaList) -> bool {
    if list.path.is_ident("allow") || list.path.is_ident("expect") {
        let mut tokens = list.tokens.clone().into_iter();
        return !tokens.any(|token| matches!(token, TokenTree::Ident(i) if i == "reason"));
    }
    if !list.path.is_ident("cfg_attr") {
        return false;
    }
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    parts.is_ok_and(|parts| {
        let inner = parts.iter().skip(1);
        inner
            .filter_map(|part| part.require_list().ok())
            .any(lacks_reason)
    })
}

/// The lints that a file denies or forbids for itself, without spaces.
fn denied(attributes: &[Attribute]) -> String {
    let inner = attributes.iter().filter(|a| {
        let strict = a.path().is_ident("deny") || a.path().is_ident("forbid");
        strict && matches!(a.style, AttrStyle::Inner(_))
    });
    let lists = inner.filter_map(|a| a.meta.require_list().ok());
    let texts = lists.map(|list| list.tokens.to_string().replace(' ', ""));
    texts.collect::<Vec<_>>().join(",")
}
