//! `networking.istio.io` ServiceEntry and WorkloadEntry.

use super::object::Spec;
use super::reading::{Map, message};
use super::scalar::words;
use super::sidecar::LabelSelector;
use super::{Labels, Names};
use crate::ObjectKind;

message! {
    /// The spec of a ServiceEntry.
    pub struct ServiceEntrySpec {
        hosts: Names = "hosts" required,
        /// Addresses or CIDR blocks.
        addresses: Names = "addresses",
        ports: Box<[EntryPort]> = "ports",
        location: Location = "location",
        resolution: Resolution = "resolution",
        endpoints: Box<[WorkloadEntrySpec]> = "endpoints",
        /// Pods and WorkloadEntries that are its endpoints.
        workload_selector: Option<LabelSelector> = "workloadSelector" | "workload_selector",
        /// Namespaces that see it, `.` for its own, `*` or nothing for all.
        export_to: Names = "exportTo" | "export_to",
        /// Names of which the endpoints' certificates must hold one.
        subject_alt_names: Names = "subjectAltNames" | "subject_alt_names",
    }
}

message! {
    /// A port of a ServiceEntry.
    #[derive(Eq)]
    pub struct EntryPort {
        number: u16 = "number" required,
        /// HTTP, HTTPS, GRPC, HTTP2, MONGO, TCP or TLS, in any case; empty means TCP.
        protocol: Box<str> = "protocol",
        name: Box<str> = "name" required,
        /// Port of the endpoints; 0 means `number`.
        target_port: u16 = "targetPort" | "target_port",
    }
}

words! {
    /// Whether a service is part of the mesh.
    pub enum Location {
        MeshExternal = 0 "MESH_EXTERNAL",
        MeshInternal = 1 "MESH_INTERNAL",
    }
}

words! {
    /// How the endpoints of a service are found.
    pub enum Resolution {
        None = 0 "NONE",
        Static = 1 "STATIC",
        Dns = 2 "DNS",
        DnsRoundRobin = 3 "DNS_ROUND_ROBIN",
        DynamicDns = 4 "DYNAMIC_DNS",
    }
}

message! {
    /// The spec of a WorkloadEntry, and an endpoint of a ServiceEntry.
    #[derive(Eq)]
    pub struct WorkloadEntrySpec {
        /// IP address, DNS name or `unix:///path`.
        address: Box<str> = "address",
        /// Numbers by the names of the service's ports.
        ports: Map<u16> = "ports",
        /// Labels of a WorkloadEntry; the labels of its object complete them.
        labels: Labels = "labels",
        network: Box<str> = "network",
        /// `region/zone/subzone`.
        locality: Box<str> = "locality",
        /// 0 means 1.
        weight: u32 = "weight",
        service_account: Box<str> = "serviceAccount" | "service_account",
    }
}

impl Spec for ServiceEntrySpec {
    const KIND: ObjectKind = ObjectKind::ServiceEntry;
}

impl Spec for WorkloadEntrySpec {
    const KIND: ObjectKind = ObjectKind::WorkloadEntry;

    fn take_labels(&mut self, labels: Labels) {
        if !labels.is_empty() {
            let own = std::mem::take(&mut self.labels);
            // Of equal keys the first is kept.
            self.labels = own.iter().chain(labels.iter()).cloned().collect();
        }
    }
}
