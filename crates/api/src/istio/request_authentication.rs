//! `security.istio.io` RequestAuthentication.

use std::time::Duration;

use super::Names;
use super::object::Spec;
use super::reading::message;
use super::selector::{TargetRef, WorkloadSelector};
use crate::ObjectKind;

message! {
    /// The spec of a RequestAuthentication.
    pub struct RequestAuthenticationSpec {
        /// None means all workloads of the namespace.
        selector: Option<WorkloadSelector> = "selector",
        /// The former form of `targetRefs`.
        target_ref: Option<Box<TargetRef>> = "targetRef",
        target_refs: Box<[TargetRef]> = "targetRefs",
        jwt_rules: Box<[JwtRule]> = "jwtRules" | "jwt_rules",
    }
    one_of [selector = "selector", target_ref = "targetRef", target_refs = "targetRefs"]
}

message! {
    /// One issuer of tokens (RFC 7519).
    #[derive(Eq)]
    pub struct JwtRule {
        issuer: Box<str> = "issuer",
        /// Empty: any audience will do.
        audiences: Names = "audiences",
        jwks_uri: Option<Box<str>> = "jwksUri" | "jwks_uri",
        /// A set of keys (RFC 7517) as text.
        jwks: Option<Box<str>> = "jwks",
        /// Empty, like the next two: the Authorization header and the parameter `access_token`.
        from_headers: Box<[JwtHeader]> = "fromHeaders" | "from_headers",
        from_params: Names = "fromParams" | "from_params",
        from_cookies: Names = "fromCookies" | "from_cookies",
        output_payload_to_header: Box<str> =
            "outputPayloadToHeader" | "output_payload_to_header",
        forward_original_token: bool = "forwardOriginalToken" | "forward_original_token",
        output_claim_to_headers: Box<[ClaimToHeader]> =
            "outputClaimToHeaders" | "output_claim_to_headers",
        /// For fetching the keys; none means 5 s.
        timeout: Option<Duration> = "timeout",
        space_delimited_claims: Names = "spaceDelimitedClaims" | "space_delimited_claims",
    }
    one_of [jwks_uri = "jwksUri", jwks = "jwks"]
}

message! {
    /// A header that bears a token.
    #[derive(Eq)]
    pub struct JwtHeader {
        name: Box<str> = "name" required,
        /// The text before the token in the header's value, such as `Bearer `.
        prefix: Box<str> = "prefix",
    }
}

message! {
    /// A claim that is passed on.
    #[derive(Eq)]
    pub struct ClaimToHeader {
        header: Box<str> = "header" required,
        claim: Box<str> = "claim" required,
    }
}

impl Spec for RequestAuthenticationSpec {
    const KIND: ObjectKind = ObjectKind::RequestAuthentication;
}
