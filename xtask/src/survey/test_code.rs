//! Which items of a file are compiled for tests only.

use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Meta, Token, punctuated::Punctuated};

/// The line ranges, from 1, of all items under `#[cfg(test)]`, outermost only.
pub(crate) fn lines(file: &syn::File) -> Vec<RangeInclusive<usize>> {
    let mut finder = Finder::default();
    if is_test_only(&file.attrs) {
        return vec![1..=usize::MAX];
    }
    finder.visit_file(file);
    finder.found
}

/// Whether a `cfg` among the attributes holds only in a test build.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<Meta>()
                .is_ok_and(|meta| demands_test(&meta))
    })
}

/// The attributes of an item of any kind.
pub(crate) fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// The attributes of a part of an `impl`.
pub(crate) fn attributes_of_part(part: &ImplItem) -> &[Attribute] {
    match part {
        ImplItem::Const(i) => &i.attrs,
        ImplItem::Fn(i) => &i.attrs,
        ImplItem::Macro(i) => &i.attrs,
        ImplItem::Type(i) => &i.attrs,
        _ => &[],
    }
}

#[derive(Default)]
struct Finder {
    found: Vec<RangeInclusive<usize>>,
}

impl Finder {
    fn add(&mut self, span: proc_macro2::Span) {
        self.found.push(span.start().line..=span.end().line);
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test_only(attributes_of(item)) {
            self.add(item.span());
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, part: &'ast ImplItem) {
        if is_test_only(attributes_of_part(part)) {
            self.add(part.span());
        } else {
            visit::visit_impl_item(self, part);
        }
    }
}

fn demands_test(meta: &Meta) -> bool {
    let Meta::List(list) = meta else {
        return meta.path().is_ident("test");
    };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    let Ok(parts) = parts else { return false };
    if list.path.is_ident("all") {
        parts.iter().any(demands_test)
    } else if list.path.is_ident("any") {
        !parts.is_empty() && parts.iter().all(demands_test)
    } else {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_exists_in_a_test_build_alone_is_test_code() {
        let text = "fn a() {}\n\
                    #[cfg(test)]\n\
                    mod tests {\n\
                    }\n\
                    #[cfg(not(test))]\n\
                    fn b() {}\n\
                    #[cfg(any(test, feature = \"x\"))]\n\
                    fn c() {}\n\
                    #[cfg(all(test, unix))]\n\
                    fn d() {}\n";
        let file = syn::parse_file(text).expect("the sample parses");
        assert_eq!(lines(&file), [2..=4, 9..=10]);
    }
}
