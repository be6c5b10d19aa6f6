//! The objects that every dialect refers to: Services and ServiceEntries with their endpoints and
//! rules, certificates and authorities, and claims to hosts.

pub mod certificate;
mod claim;
mod client_tls;
pub mod destination_rule;
mod exports;
pub mod facts;
pub mod hash_by;
mod lent;
mod locality;
mod merged;
pub mod names;
mod notes;
mod open_secrets;
pub mod opened;
mod options;
mod policy_problem;
pub mod reader;
mod rule_facts;
pub mod sendable;
pub mod service_entry;
mod shade;
mod spoken;
mod subset;
pub mod trust;
pub mod units;
pub mod upstream;

pub use claim::{Claim, Claims, EVERYBODY, suffix_of, twin};
pub use exports::{EXPORT_TO, exported_to};
pub use facts::SharedFact;
pub use lent::CREDENTIAL_NAMESPACES;
pub use merged::Merged;
pub use notes::notes;
pub use options::{of_policy as options, table_of};
pub use shade::{Above, Deed, Namespaces, Shade, has_default, open_to};
pub use spoken::Spoken;

use crate::engine::Dialect;

/// The rules that the engine has for objects that every dialect refers to.
pub const SHARED: Dialect = Dialect {
    touch: facts::touch,
    found_under: facts::found_under,
    roots: |settings, roots| roots.extend(units::roots(settings)),
    ..Dialect::BLANK
};
