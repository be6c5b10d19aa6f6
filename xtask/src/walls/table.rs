//! The walls, each with its reason.

/// A member of the workspace and what it may know.
pub(super) struct Wall {
    /// The package.
    pub(super) name: &'static str,
    /// Where it lies in the workspace.
    pub(super) folder: &'static str,
    pub(super) kind: Kind,
    /// Members that it may depend on.
    pub(super) sees: &'static [&'static str],
    /// Packages that none of its normal dependencies may lead to, however far.
    pub(super) never: &'static [&'static str],
    /// Packages that it may not depend on itself, though others below it may.
    pub(super) never_directly: &'static [&'static str],
    /// Why the wall stands where it does.
    pub(super) reason: &'static str,
}

/// What a member is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is part of the program that people run.
    Product,
    /// It serves the project itself; nothing depends on it, not even a test.
    Tool,
}

/// More crates than this would be crates that have not earned their manifest.
pub(super) const MEMBERS_MAX: usize = 15;

/// Below this many production lines the shares of the crates say nothing.
pub(super) const SHARE_FROM_LINES: usize = 15_000;

/// The modules of the proxy from the lowest to the highest. A module may name those of lower
/// rows and itself; modules in one row are blind to each other.
pub(super) const PROXY_ORDER: &[&[&str]] = &[
    &["net"],
    &["balance"],
    &["upstream"],
    &["route"],
    &["policy"],
    &["http", "tls", "tcp", "udp"],
    &["mesh"],
    &["runtime"],
];

/// Where the modules of the proxy lie.
pub(super) const PROXY_SOURCE: &str = "crates/proxy/src/";

const RUN_TIME: &str = "tokio";

/// Every crate that ends up in the program, but the one that joins them.
const PRODUCT: &[&str] = &[
    "myriad",
    "myriad-admin",
    "myriad-api",
    "myriad-base",
    "myriad-model",
    "myriad-pki",
    "myriad-proxy",
    "myriad-source",
    "myriad-sync",
    "myriad-translate",
];

/// An error that nobody can match on is for the program, which only shows it.
const TYPED_ERRORS: &[&str] = &["anyhow"];

/// All members that there may be. One that does not exist yet is no violation.
pub(super) const WALLS: &[Wall] = &[
    Wall {
        name: "myriad-model",
        folder: "crates/model",
        kind: Kind::Product,
        sees: &[],
        never: &[
            RUN_TIME,
            "hyper",
            "tonic",
            "kube",
            "k8s-openapi",
            "myriad-base",
        ],
        never_directly: TYPED_ERRORS,
        reason: "resources are plain values: proxies, tools and tests use them without a run time",
    },
    Wall {
        name: "myriad-api",
        folder: "crates/api",
        kind: Kind::Product,
        sees: &[],
        never: &[
            RUN_TIME,
            "hyper",
            "tonic",
            "kube",
            "k8s-openapi",
            "myriad-base",
        ],
        never_directly: TYPED_ERRORS,
        reason: "objects are plain values with the fields that translation reads and no others",
    },
    Wall {
        name: "myriad-base",
        folder: "crates/base",
        kind: Kind::Product,
        sees: &[],
        never: &["kube"],
        never_directly: TYPED_ERRORS,
        reason: "the floor that every running crate stands on must not lean on one of them",
    },
    Wall {
        name: "myriad-source",
        folder: "crates/source",
        kind: Kind::Product,
        sees: &["myriad-api", "myriad-base"],
        never: &["myriad-model", "myriad-translate"],
        never_directly: TYPED_ERRORS,
        reason: "who fetches objects must not decide what they mean",
    },
    Wall {
        name: "myriad-translate",
        folder: "crates/translate",
        kind: Kind::Product,
        sees: &["myriad-api", "myriad-model"],
        never: &[RUN_TIME, "kube", "tonic", "myriad-base"],
        never_directly: TYPED_ERRORS,
        reason: "translation is a function: no clock, no task and no API server to wait for",
    },
    Wall {
        name: "myriad-sync",
        folder: "crates/sync",
        kind: Kind::Product,
        sees: &["myriad-model", "myriad-base"],
        never: &["myriad-api", "myriad-translate", "kube"],
        never_directly: TYPED_ERRORS,
        reason: "it carries resources without knowing where they came from",
    },
    Wall {
        name: "myriad-proxy",
        folder: "crates/proxy",
        kind: Kind::Product,
        sees: &["myriad-model", "myriad-base"],
        never: &[
            "kube",
            "k8s-openapi",
            "myriad-api",
            "myriad-translate",
            "myriad-sync",
            "myriad-pki",
        ],
        never_directly: TYPED_ERRORS,
        reason: "a request is served from resources alone: meaning has been decided before",
    },
    Wall {
        name: "myriad-pki",
        folder: "crates/pki",
        kind: Kind::Product,
        sees: &["myriad-model", "myriad-base"],
        never: &["myriad-proxy", "myriad-translate"],
        never_directly: TYPED_ERRORS,
        reason: "keys are made and signed where no request runs",
    },
    Wall {
        name: "myriad-admin",
        folder: "crates/admin",
        kind: Kind::Product,
        sees: &["myriad-base"],
        never: &["myriad-model", "myriad-api", "kube"],
        never_directly: TYPED_ERRORS,
        reason: "its pages are handed to it, so it cannot show what it was not given",
    },
    Wall {
        name: "myriad",
        folder: "crates/app",
        kind: Kind::Product,
        sees: PRODUCT,
        never: &[],
        never_directly: &[],
        reason: "the only place where siblings meet",
    },
    Wall {
        name: "myriad-bench",
        folder: "crates/bench",
        kind: Kind::Tool,
        sees: PRODUCT,
        never: &[],
        never_directly: &[],
        reason: "it measures the program and is no part of it",
    },
    Wall {
        name: "myriad-e2e",
        folder: "crates/e2e",
        kind: Kind::Tool,
        sees: PRODUCT,
        never: &[],
        never_directly: &[],
        reason: "it tells stories about the program and is no part of it",
    },
    Wall {
        name: "myriad-fuzz",
        folder: "crates/fuzz",
        kind: Kind::Tool,
        sees: PRODUCT,
        never: &[],
        never_directly: &[],
        reason: "it calls what reads untrusted bytes and is no part of the program",
    },
    Wall {
        name: "xtask",
        folder: "xtask",
        kind: Kind::Tool,
        sees: &[],
        never: &[RUN_TIME],
        never_directly: &[],
        reason: "it must build, quickly, when nothing else does",
    },
];

/// The wall of a package.
pub(super) fn wall(name: &str) -> Option<&'static Wall> {
    WALLS.iter().find(|wall| wall.name == name)
}
