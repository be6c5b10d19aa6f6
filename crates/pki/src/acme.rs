//! Certificates of public authorities, by ACME (RFC 8555).
//!
//! [`Desk`] decides what is done next for which certificate and keeps no clock, no file and no
//! connection: it is told what is wanted, what time it is and what came of each step, and whoever
//! runs it carries the steps out. [`clerk`] is the part of a step that the authority sees.

mod budget;
mod chain;
pub mod clerk;
mod desk;
mod directory;
mod domains;
mod issuer;
mod open;
mod order;
mod registered;
mod renewal;
mod solver;
mod spent;
mod suffixes;
mod turns;

pub use budget::Budget;
pub use chain::{ChainError, IssuedChain, check_chain};
pub use desk::{
    Bounds, CertificateWish, Desk, DeskCounts, Effect, StepOutcome, StepTrouble, Task, TaskStep,
    TroubleNotice,
};
pub use issuer::{AcmeIssuer, Binding, BindingKey, ChallengeKind, Directory, KeyKind};
pub use order::{
    Challenge, DnsRecord, ORDER_BYTES_MAX, Order, OrderKey, OrderStage, OrderTextError, PlacedOrder,
};
pub use renewal::{HeldCertificate, RenewalWindow};
pub use solver::{DnsSolver, DnsWebhook, TsigAlgorithm, TsigKey, TsigSecret};
pub use spent::SpentBudget;
pub use suffixes::{SUFFIXES_BYTES_MAX, Suffixes, SuffixesError};

/// The most names of one certificate: the fewest that a large authority takes.
pub const NAMES_MAX: usize = 100;

/// Milliseconds since the epoch.
pub type Millis = i64;

pub(crate) const SECOND: Millis = 1_000;
pub(crate) const MINUTE: Millis = 60 * SECOND;
pub(crate) const HOUR: Millis = 60 * MINUTE;
pub(crate) const DAY: Millis = 24 * HOUR;
