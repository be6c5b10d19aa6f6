//! `security.istio.io` AuthorizationPolicy.

use super::Names;
use super::object::Spec;
use super::reading::message;
use super::scalar::words;
use super::selector::{TargetRef, WorkloadSelector};
use crate::ObjectKind;

message! {
    /// The spec of an AuthorizationPolicy.
    pub struct AuthorizationPolicySpec {
        /// None means all workloads of the namespace.
        selector: Option<WorkloadSelector> = "selector",
        /// The former form of `targetRefs`.
        target_ref: Option<Box<TargetRef>> = "targetRef",
        target_refs: Box<[TargetRef]> = "targetRefs",
        /// Any of them must fit; none fits nothing, an empty one everything.
        rules: Box<[Rule]> = "rules",
        action: Action = "action",
        /// For CUSTOM only.
        provider: Option<Provider> = "provider",
    }
    one_of [selector = "selector", target_ref = "targetRef", target_refs = "targetRefs"]
}

words! {
    /// The outcome for requests that match.
    pub enum Action {
        Allow = 0 "ALLOW",
        Deny = 1 "DENY",
        Audit = 2 "AUDIT",
        Custom = 3 "CUSTOM",
    }
}

message! {
    /// An authorizer that the mesh's settings define.
    #[derive(Eq)]
    pub struct Provider {
        name: Box<str> = "name",
    }
}

message! {
    /// All that is set must fit.
    pub struct Rule {
        /// Any of these; empty means any source.
        from: Box<[From]> = "from",
        /// Any of these; empty means any operation.
        to: Box<[To]> = "to",
        /// Conditions that all have to hold.
        when: Box<[Condition]> = "when",
    }
}

message! {
    /// Holds a [`Source`].
    pub struct From {
        source: Option<Box<Source>> = "source",
    }
}

message! {
    /// Holds an [`Operation`].
    pub struct To {
        operation: Option<Box<Operation>> = "operation",
    }
}

message! {
    /// The sender of a request: one of each list, and none of each that starts with `not`.
    #[derive(Eq)]
    pub struct Source {
        principals: Names = "principals",
        not_principals: Names = "notPrincipals" | "not_principals",
        /// `issuer/subject` of a token.
        request_principals: Names = "requestPrincipals" | "request_principals",
        not_request_principals: Names = "notRequestPrincipals" | "not_request_principals",
        namespaces: Names = "namespaces",
        not_namespaces: Names = "notNamespaces" | "not_namespaces",
        /// `namespace/name`, or a name in the namespace of the policy.
        service_accounts: Names = "serviceAccounts" | "service_accounts",
        not_service_accounts: Names = "notServiceAccounts" | "not_service_accounts",
        /// Addresses or CIDR blocks of the peer.
        ip_blocks: Names = "ipBlocks" | "ip_blocks",
        not_ip_blocks: Names = "notIpBlocks" | "not_ip_blocks",
        /// Addresses or CIDR blocks of the client, as X-Forwarded-For or PROXY protocol tell.
        remote_ip_blocks: Names = "remoteIpBlocks" | "remote_ip_blocks",
        not_remote_ip_blocks: Names = "notRemoteIpBlocks" | "not_remote_ip_blocks",
        trust_domains: Names = "trustDomains" | "trust_domains",
        not_trust_domains: Names = "notTrustDomains" | "not_trust_domains",
    }
}

message! {
    /// The request itself: one of each list, and none of each that starts with `not`.
    #[derive(Eq)]
    pub struct Operation {
        hosts: Names = "hosts",
        not_hosts: Names = "notHosts" | "not_hosts",
        ports: Names = "ports",
        not_ports: Names = "notPorts" | "not_ports",
        methods: Names = "methods",
        not_methods: Names = "notMethods" | "not_methods",
        paths: Names = "paths",
        not_paths: Names = "notPaths" | "not_paths",
    }
}

message! {
    /// A condition on an attribute of the request.
    #[derive(Eq)]
    pub struct Condition {
        /// Such as `request.headers[x-token]`.
        key: Box<str> = "key" required,
        values: Names = "values",
        not_values: Names = "notValues" | "not_values",
    }
}

impl Spec for AuthorizationPolicySpec {
    const KIND: ObjectKind = ObjectKind::AuthorizationPolicy;
}
