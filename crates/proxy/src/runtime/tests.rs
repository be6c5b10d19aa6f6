//! Stories: a proxy on port 0, resources made by hand, and clients that speak raw bytes.

mod checks;
mod clients;
mod endpoints;
mod floods;
mod http1;
mod http2;
mod interim;
mod introduced;
mod life;
mod limits;
mod memory;
mod mesh;
mod noise;
mod overload;
mod policies;
mod processors;
mod recorded;
mod retries;
mod routes;
mod smuggling;
mod streams;
mod tls;
mod upstreams;
mod websocket;
mod windows;
mod world;
