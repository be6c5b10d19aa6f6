//! Stories on real nodes: the image, the chart and injected proxies with a kubelet.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may read a clock and start tasks"
)]

#[path = "node/drain.rs"]
mod drain;
#[path = "node/egress.rs"]
mod egress;
#[path = "node/memory.rs"]
mod memory;
#[path = "node/newcomer.rs"]
mod newcomer;
#[path = "node/rollout.rs"]
mod rollout;
#[path = "node/scaling.rs"]
mod scaling;
#[path = "node/scene.rs"]
mod scene;
#[path = "node/sidecar.rs"]
mod sidecar;
