//! Names: which domain a handshake meets, and which route a request takes.

pub mod access_policies;
pub mod captured;
pub mod certificate;
pub mod challenge;
pub mod claims;
pub mod condition;
pub mod credentials;
pub mod downstream_connection;
pub mod edit;
pub mod entry;
pub mod explain;
pub mod host;
pub mod identity;
pub mod index;
pub mod keys;
pub mod leaf;
pub mod namespace;
pub mod on_demand;
pub mod parting;
pub mod sections;
pub mod shown_certificate;
pub mod stream_route;
pub mod tables;
pub mod telemetry;
pub mod text;
pub mod trust;
