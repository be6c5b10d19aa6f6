//! Stories: a proxy on port 0, resources made by hand, and clients that speak raw bytes.

mod checks;
mod clients;
mod endpoints;
mod http1;
mod http2;
mod life;
mod memory;
mod mesh;
mod policies;
mod processors;
mod recorded;
mod retries;
mod routes;
mod streams;
mod tls;
mod upstreams;
mod world;
