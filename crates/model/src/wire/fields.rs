//! The descriptions of all messages, and what resources of small forms are made of.
//!
//! A new field is written in its type, in `model::resource`, and here; then
//! `UPDATE_GOLDENS=1 cargo test -p myriad-model proto` writes it into `model.proto`.

mod access_policy;
mod challenge;
mod inquiry;
mod listener;
mod options;
mod policy;
mod provider;
mod route;
mod routes;
mod telemetry;
mod upstream;

use super::codec::*;
use super::proto::{Line, Proto};
use super::raw::{Encoder, Raw, Reader};
use super::{WireError, shared};
pub(crate) use routes::{Parts, parts};

use crate::{
    AccessPolicy, BadHash, Certificate, ChallengeAnswer, Domain, Endpoints, KeyEncoding, Listener,
    Origin, OriginKind, PrivateKey, Provider, Resource, Route, Routes, StreamRoute,
    TRUST_PARTS_MAX, Telemetry, Trust, Upstream, Users, Value,
};

message! {
    /// One resource.
    Resource, resource {
        /// The lowest schema that understands this resource.
        1 schema: uint32(), of SCHEMA_UNKNOWN;
        /// The object it came from.
        2 origin: part::<Origin>("origin");
        10 value as body: one_of::<Value>("body");
    } => {
        // It has been looked at before anything else was.
        let _: u32 = schema;
        Resource { origin, value }
    }
}

/// The schema that is written until all of a resource has been, and the real one is known.
const SCHEMA_UNKNOWN: u32 = 1;

forms! {
    Value {
        10 listener: each::<Listener>() => Listener;
        11 domain: each::<Domain>() => Domain;
        12 certificate: each::<Certificate>() => Certificate;
        13 route: each::<Route>() => Route;
        14 upstream: each::<Upstream>() => Upstream;
        15 endpoints: each::<Endpoints>() => Endpoints;
        16 trust: each::<Trust>() => Trust, since 3;
        17 stream_route: each::<StreamRoute>() => StreamRoute, since 3;
        18 access_policy: each::<AccessPolicy>() => AccessPolicy, since 3;
        19 provider: each::<Provider>() => Provider, since 3;
        20 telemetry: each::<Telemetry>() => Telemetry, since 3;
        21 routes: each::<Routes>() => Routes, since 4;
        22 challenge_answer: each::<ChallengeAnswer>() => ChallengeAnswer, since 4;
    }
}

message! {
    /// The object that a resource came from.
    Origin, origin {
        1 kind: string(), of origin.kind.as_str();
        2 namespace: string(), of origin.namespace();
        3 name: string(), of origin.name();
    } => Origin {
        kind: OriginKind::from_word(&kind),
        id: shared::text(format!("{namespace}/{name}").into()),
    }
}

message! {
    /// A certificate chain and its key.
    Certificate, certificate {
        /// DER, the leaf first.
        1 chain: list(data("certificate"));
        /// DER.
        2 key: data("key"), of certificate.key.expose();
        /// 1 PKCS#8, 2 PKCS#1, 3 SEC1.
        3 encoding as key_encoding: choice::<KeyEncoding>("key encoding"),
            of certificate.key.encoding;
    } => {
        if chain.is_empty() {
            return Err(WireError::Missing("certificate"));
        }
        Certificate { chain: chain.into(), key: PrivateKey::new(encoding, key) }
    }
}

choices! {
    KeyEncoding { Pkcs8, Pkcs1, Sec1 }
}

message! {
    /// The authorities that a peer's certificate is verified against, or users.
    Trust, trust {
        /// DER; empty where there are users.
        1 roots: list_of(TRUST_PARTS_MAX, TRUST_PARTS, data("root"));
        /// DER.
        2 crls: list_of(TRUST_PARTS_MAX, TRUST_PARTS, data("revocation list"));
        /// Users whose passwords are verified; then there is nothing else.
        3 users: list_of(Users::MAX, "number of users", each::<User>()), of trust.users.expose();
    } => {
        match (roots.is_empty(), users.is_empty()) {
            (true, true) => return Err(WireError::Missing("root")),
            (true, false) if crls.is_empty() => {}
            (true, false) | (false, false) => return Err(WireError::Invalid("trust")),
            (false, true) => {}
        }
        Trust { roots: roots.into(), crls: crls.into(), users: Users::new(users) }
    }
}

message! {
    /// A user, and the hash of the password.
    User for (Box<str>, Box<str>), pair {
        1 name: required_text("user"), of pair.0;
        2 hash: string(), of pair.1;
    } => {
        // One that no password has admits nobody, and must not take the others with it.
        if matches!(Users::check_hash(&hash), Err(BadHash::Unknown | BadHash::Costly)) {
            return Err(WireError::Invalid("hash of a password"));
        }
        (name, hash)
    }
}

const TRUST_PARTS: &str = "number of roots or revocation lists";

message! {
    /// A name and a value.
    Header for (Box<str>, Box<str>), pair {
        1 name: string(), of pair.0;
        2 value: string(), of pair.1;
    } => (name, value)
}
