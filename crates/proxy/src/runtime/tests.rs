//! Stories: a proxy on port 0, resources made by hand, and clients that speak raw bytes.

<<<<<<< HEAD
mod allocations;
=======
mod challenges;
>>>>>>> ca7a06e7 (Give the answers to challenges of authorities as resources, by any proxy)
mod checks;
mod clients;
mod endpoints;
mod explained;
mod floods;
mod held;
mod http1;
mod http2;
mod inquiries;
mod interim;
mod introduced;
mod life;
mod limits;
mod listener_quota;
mod loops;
mod memory;
mod mesh;
mod noise;
mod overload;
mod paths;
mod plain_http2;
mod policies;
mod processors;
mod recorded;
mod retries;
mod routes;
mod silent;
mod smuggling;
mod streams;
mod tls;
mod told;
mod trusted;
mod tunnels;
mod turns;
mod upstreams;
mod websocket;
mod windows;
mod world;
