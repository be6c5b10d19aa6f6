//! Names of header fields with underscores or other punctuation, which servers that pass fields as
//! variables (CGI, RFC 3875, section 4.1.18) take for names with dashes: what a client writes in
//! such a name would stand beside, or in place of, what the proxy has set, verified or framed by.

use std::sync::{Mutex, PoisonError};

use myriad_model::Underscores;

use super::token;
use crate::codec::field::{Field, KnownField, is_ambiguous, is_read_as};
use crate::codec::head::Head;
use crate::pattern::Budget;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::tables::Tables;
use crate::telemetry::count::{Count, Counts};

/// The most names that the log tells of.
const NAMES_MAX: usize = 64;

/// The longest part of a name that the log tells, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Fields that the proxy sets, beside those that it knows.
const SET: [&str; 6] = [
    "x-request-id",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-flags",
];

/// The names that the log has told of.
static TOLD: Mutex<Vec<Box<str>>> = Mutex::new(Vec::new());

/// Takes out of a head the fields that its route says an endpoint must not get.
pub fn sift(
    tables: &Tables,
    visit: &DownstreamConnection,
    head: &mut Head<'_>,
    counts: &Counts,
    budget: &Budget,
) {
    if !head.fields.iter().any(|field| is_ambiguous(field.name)) {
        return;
    }
    // A token is not verified yet: it may lead to another route, of whose dialect this one is.
    let route = tables.route(&visit.listener, head, None, budget).ok();
    let route = route.and_then(|entry| entry.route());
    let rule = match route {
        Some(route) => route.policy.underscores,
        // Nobody knows whose route it is: it gets no more than the strictest would.
        None if budget.is_spent() => Underscores::Dropped,
        None => Underscores::default(),
    };
    if rule == Underscores::Passed {
        return;
    }
    let goes = |field: &Field<'_>| {
        is_ambiguous(field.name)
            && (rule == Underscores::Dropped || collides(tables, visit, field.name))
    };
    head.fields.retain(|field| {
        let goes = goes(field);
        if goes {
            counts.add(Count::UnderscoreDropped);
            tell(&TOLD, field.name);
        }
        !goes
    });
}

/// Whether a name is read as that of a field that the proxy sets, verifies or frames by.
fn collides(tables: &Tables, visit: &DownstreamConnection, name: &str) -> bool {
    let mut issuers = tables.access_policies().issuers(&visit.listener);
    KnownField::read_of(name) != KnownField::Other
        || SET.iter().any(|known| is_read_as(name, known))
        || issuers.any(|(issuer, _)| token::fills(issuer, name))
}

/// Says once that fields of a name are dropped, and nothing where another worker is just saying
/// something: the next such field says it. Returns whether it was said.
fn tell(told: &Mutex<Vec<Box<str>>>, name: &str) -> bool {
    let mut told = match told.try_lock() {
        Ok(told) => told,
        Err(std::sync::TryLockError::Poisoned(told)) => PoisonError::into_inner(told),
        Err(std::sync::TryLockError::WouldBlock) => return false,
    };
    let name = name.get(..NAME_BYTES_MAX).unwrap_or(name);
    let is_told = told.iter().any(|known| known.eq_ignore_ascii_case(name));
    if is_told || told.len() >= NAMES_MAX {
        return false;
    }
    told.push(name.into());
    tracing::warn!(
        name,
        "header fields of this name are dropped, since servers read its punctuation as dashes; \
         --underscores-in-headers passes them on"
    );
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::{NAME_BYTES_MAX, NAMES_MAX, tell};

    #[test]
    fn the_log_tells_of_each_name_once_and_of_so_many() {
        let told = Mutex::default();
        assert!(tell(&told, "X_User"));
        assert!(!tell(&told, "x_user"));
        let said = (0..1_000).filter(|number| tell(&told, &format!("x_{number}")));
        assert_eq!(said.count(), NAMES_MAX - 1);
        let long = Mutex::default();
        assert!(tell(&long, &"x_".repeat(10_000)));
        assert_eq!(long.lock().unwrap()[0].len(), NAME_BYTES_MAX);
    }
}
