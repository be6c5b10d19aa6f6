//! Gateway API through the API: what is served, and what statuses say of it, so that somebody can
//! wait for it.

mod faults;
mod fire;
mod ingress;
mod leader;
mod live;
mod scene;
mod statuses;
