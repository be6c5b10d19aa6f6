//! Faults in a cluster, of which users notice nothing: stories against the real parts,
//! in a cluster whose servers may be killed.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may read a clock and start tasks"
)]

#[path = "faults/clock.rs"]
mod clock;
#[path = "faults/disk.rs"]
mod disk;
#[path = "faults/emptied.rs"]
mod emptied;
#[path = "faults/leaders.rs"]
mod leaders;
#[path = "faults/replicas.rs"]
mod replicas;
#[path = "faults/scene.rs"]
mod scene;
#[path = "faults/schema.rs"]
mod schema;
#[path = "faults/servers.rs"]
mod servers;
