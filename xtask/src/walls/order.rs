//! The order of the modules within a crate, read from the paths that its code names.

use super::paths;
use super::table::{ORDERS, Order};
use crate::survey::{Role, RustFile, Survey};
use crate::violation::Violation;

/// Checks all production code of crates that have an order, but their `lib.rs` and `main.rs`, which
/// join the modules.
pub(super) fn check(survey: &Survey) -> Vec<Violation> {
    let files = survey.rust.iter();
    let files = files.filter(|file| file.role == Role::Production);
    let found = files.flat_map(|file| {
        let mut orders = ORDERS.iter();
        let within = orders.find_map(|order| Some((order, file.path.strip_prefix(order.source)?)));
        match within {
            Some((_, "lib.rs" | "main.rs")) | None => Vec::new(),
            Some((order, within)) => check_file(order, file, within.trim_end_matches(".rs")),
        }
    });
    found.collect()
}

fn check_file(order: &Order, file: &RustFile, within: &str) -> Vec<Violation> {
    let modules: Vec<String> = within.split('/').map(str::to_owned).collect();
    let module = modules.first().cloned().unwrap_or_default();
    let row_of = |module: &str| order.rows.iter().position(|row| row.contains(&module));
    let Some(row) = row_of(&module) else {
        return vec![Violation {
            path: file.path.clone(),
            line: 1,
            rule: "order",
            what: format!("`{module}` has no place in the order of its crate's modules"),
            remedy: "put it below a module of xtask/src/walls/table.rs, or give it its place there",
        }];
    };
    let named = paths::named(&file.syntax, modules).into_iter();
    let named = named.map(|(path, line)| {
        let name = path.first().map_or("*", String::as_str);
        (name.to_owned(), line)
    });
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
