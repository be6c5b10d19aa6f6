//! The data plane.
//!
//! **Does** accept connections, pick certificates and routes by name, and pass requests on to
//! endpoints.
//! **Knows** resources, and what happened to requests; one immutable set of tables per request.
//! **Never** sees an object that people wrote, decides what a resource means, or does work that
//! grows with the number of domains.

pub mod balance;
pub mod http;
pub mod mesh;
pub mod net;
pub mod policy;
pub mod route;
pub mod runtime;
pub mod tcp;
pub mod tls;
pub mod upstream;

pub use balance::locality::Locality;
pub use net::border::BorderSettings;
pub use net::limits::Limits;
pub use net::limits::table::markdown as limits_markdown;
pub use net::names::NameSettings;
pub use net::path::PathRule;
pub use net::proxy_header::Introductions;
pub use net::request_id::RequestIds;
pub use route::identity::Identity;
pub use runtime::{
    Applied, Inherited, Proxy, Receipt, Role as SocketRole, Settings, Sockets, Workload,
};
pub use tls::tickets::{TicketKeys, TicketSecret};
