//! Examples of providers and rate limits.

use std::time::Duration;

use crate::wire::decode;
use crate::{
    CheckBody, CheckProtocol, Cors, HttpCheck, NameMatch, PathReading, Policy, Processing,
    Provider, RateLimit, Underscores, Value,
};

/// A policy with everything of a rate limit.
pub(super) fn limited(policy: Policy) -> Policy {
    let limit = RateLimit {
        name: "VirtualService/ns/a".into(),
        requests: 100,
        interval: Duration::from_secs(60),
        burst: 20,
        is_per_client: true,
        exempt: ["10.0.0.0/8".parse().unwrap()].into(),
        is_at_once: false,
    };
    let cors = policy.cors.map(|cors| {
        Box::new(Cors {
            forwards_unmatched: true,
            ..*cors
        })
    });
    Policy {
        cors,
        rate_limits: [limit].into(),
        underscores: Underscores::Dropped,
        path_reading: PathReading::Decoded,
        ..policy
    }
}

/// A processor.
fn processor() -> Provider {
    Provider {
        protocol: CheckProtocol::Process(Processing {
            tells_response: true,
        }),
        ..over_http()
    }
}

/// A provider over HTTP with everything set.
pub(super) fn over_http() -> Provider {
    let check = HttpCheck {
        path_prefix: "/check".into(),
        request: [NameMatch::Exact("cookie".into())].into(),
        additional: [("x-a".into(), "b".into())].into(),
        upstream_on_allow: [NameMatch::Start("x-auth-".into())].into(),
        downstream_on_allow: [NameMatch::End("-id".into())].into(),
        downstream_on_deny: [NameMatch::Exact("set-cookie".into())].into(),
    };
    Provider {
        upstream: "ns/authorizer:80".into(),
        protocol: CheckProtocol::Http(Box::new(check)),
        timeout: Duration::from_secs(600),
        fail_open: true,
        error_status: 503,
        body: Some(CheckBody {
            bytes_max: 1_024,
            allows_part: true,
            is_raw: true,
        }),
        authority: "authorizer.ns.svc.cluster.local".into(),
        reroutes: true,
        told: Box::default(),
    }
}

#[test]
fn a_processor_comes_back_as_it_went() {
    let resource = super::resource(Value::Provider(Box::new(processor())));
    assert_eq!(decode(&super::encoded(&resource)).as_ref(), Ok(&resource));
}
