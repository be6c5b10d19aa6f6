//! The data plane.
//!
//! **Does** accept connections, pick certificates and routes by name, and pass requests on to
//! endpoints.
//! **Knows** resources, and what happened to requests; one immutable set of tables per request.
//! **Never** sees an object that people wrote, decides what a resource means, or does work that
//! grows with the number of domains.

mod admission;
pub mod balance;
pub mod codec;
pub mod failure;
pub mod http;
pub mod limits;
mod local;
pub mod mesh;
mod net;
pub mod pattern;
pub mod policy;
pub mod random;
pub mod route;
pub mod runtime;
pub mod tcp;
pub mod telemetry;
pub mod tls;
pub mod udp;
pub mod upstream;

pub use balance::locality::Locality;
pub use codec::proxy_header::Introductions;
pub use limits::table::markdown as limits_markdown;
pub use limits::{Limits, PathRule};
pub use net::border::BorderSettings;
pub use net::names::{Found, NameError, NameSettings, Names};
pub use route::identity::Identity;
pub use runtime::{
    Applied, Inherited, Proxy, Receipt, Role as SocketRole, Settings, Sockets, Workload,
};
pub use telemetry::request_id::RequestIds;
pub use telemetry::top::{TOP_ROWS_MAX, TopCount, TopReader, TopRow, TopSeries};
pub use tls::demand::{DEMANDS_UNANSWERED_MAX, Demand, Demanded};
pub use tls::tickets::{TicketKeys, TicketSecret};
