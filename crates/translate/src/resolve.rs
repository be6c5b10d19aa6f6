//! The objects that every dialect refers to: Services and ServiceEntries with their endpoints and
//! rules, certificates and authorities, and claims to hosts.

mod algorithm;
pub(crate) mod authorities;
pub(crate) mod authority_names;
pub(crate) mod backend_tls;
mod below;
pub(crate) mod certificate;
mod claim;
pub(crate) mod client_fields;
mod client_tls;
pub(crate) mod destination_rule;
pub(crate) mod entry_owner;
mod exports;
pub(crate) mod facts;
pub(crate) mod hash_by;
mod issuer;
mod lent;
mod locality;
pub(crate) mod losers;
mod merged;
pub(crate) mod names;
mod notes;
mod open_secrets;
pub(crate) mod opened;
mod options;
mod policy_problem;
mod policy_texts;
pub(crate) mod proof;
pub(crate) mod reader;
mod rule_facts;
pub(crate) mod sendable;
pub(crate) mod service_entry;
mod several;
mod shade;
mod spoken;
mod subset;
pub(crate) mod trust;
pub(crate) mod units;
pub(crate) mod upstream;
mod wish;

pub(crate) use below::{Found, Provided, wildcard_above};
pub(crate) use claim::{Claim, Claims, EVERYBODY, suffix_of, twin};
pub(crate) use exports::{EXPORT_TO, exported_to};
pub(crate) use facts::SharedFact;
pub(crate) use issuer::{is_issuer_ours, is_pairing, issuer_name, no_issuer};
pub(crate) use lent::{CREDENTIAL_NAMESPACES, ISSUER};
pub(crate) use merged::Merged;
pub(crate) use notes::notes;
pub(crate) use options::{of_policy as options, table_of};
pub(crate) use several::{SEVERAL_MAX, Several};
pub(crate) use shade::{Above, Deed, Namespaces, Shade, has_default, open_to};
pub(crate) use spoken::Spoken;
pub(crate) use wish::{second_secret, too_long, wish, wish_second};

use crate::engine::Dialect;

/// The rules that the engine has for objects that every dialect refers to.
pub(crate) const SHARED: Dialect = Dialect {
    touch: facts::touch,
    found_under: facts::found_under,
    roots: |settings, roots| roots.extend(units::roots(settings)),
    ..Dialect::BLANK
};
