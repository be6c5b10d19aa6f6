//! The parts that a workload needs beside a proxy, for the proxy to stand in front of it.
//!
//! **Does** make a Pod with a proxy of one without, write the rules by which connections reach
//! that proxy, and answer kubelets in the workload's place.
//! **Knows** Pods and their annotations as JSON, nftables, and the checks of kubelets.
//! **Never** sees a resource, an object of the cluster's traffic, or a connection of the workload.

pub mod inject;
pub mod probes;
pub mod redirect;
