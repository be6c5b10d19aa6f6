//! The walls, each with its reason.

/// A member of the workspace and what it may know.
pub(super) struct Wall {
    /// The package.
    pub(super) name: &'static str,
    /// The folder in the workspace.
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

/// The kind of a member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is part of the program that people run.
    Product,
    /// It serves the project itself; nothing of the product depends on it, not even a test.
    Tool,
}

/// More crates than this would be crates that have not earned their manifest.
pub(super) const MEMBERS_MAX: usize = 16;

/// Below this many production lines the shares of the crates say nothing.
pub(super) const SHARE_FROM_LINES: usize = 15_000;

/// The modules of a crate from the lowest to the highest. A module may name those of lower rows
/// and itself; modules in one row are blind to each other.
pub(super) struct Order {
    /// The folder of the modules.
    pub(super) source: &'static str,
    pub(super) rows: &'static [&'static [&'static str]],
}

/// The crates whose modules have an order.
pub(super) const ORDERS: &[Order] = &[
    Order {
        source: "crates/proxy/src/",
        rows: &[
            &["failure", "limits", "random"],
            &["codec", "pattern"],
            &["net", "telemetry"],
            &["admission"],
            &["balance", "local"],
            &["upstream"],
            &["route"],
            &["policy"],
            &["http", "tls", "tcp", "udp"],
            &["mesh"],
            &["runtime"],
        ],
    },
    Order {
        source: "crates/app/src/",
        rows: &[
            &["activation", "dedicated", "metrics", "otlp", "top"],
            &[
                "catalog", "cli", "gateways", "holdings", "limits", "live", "log_file", "mesh",
                "obtained", "problems", "process", "resident", "restart", "rivals", "signals",
                "told", "wishes",
            ],
            &[
                "ask",
                "board",
                "completions",
                "stated",
                "tenants",
                "tickets",
                "tokens",
            ],
            &["confirm", "history"],
            &["control", "descriptors", "settings", "status"],
            &["acme", "check", "explain", "greeting", "trace"],
            &["console", "diff", "why"],
            &["host_proof", "pages"],
            &["controller", "follower", "serve"],
        ],
    },
    Order {
        source: "crates/translate/src/",
        rows: &[
            &["limit", "regex", "view", "workload_names"],
            &["settings", "store"],
            &["engine"],
            &["resolve"],
            &["dialect"],
            &["mesh_config"],
        ],
    },
];

/// Files that still name each other in a circle, a row for each cycle. A row may lose files; none
/// may join, and no row may be added.
pub(super) const KNOWN_CYCLES: &[&[&str]] = &[
    &[
        "crates/proxy/src/http/upstream/h1.rs",
        "crates/proxy/src/http/upstream/h2.rs",
        "crates/proxy/src/http/upstream/mirror.rs",
        "crates/proxy/src/http/upstream/retry.rs",
    ],
    &[
        "crates/proxy/src/tls/accept.rs",
        "crates/proxy/src/tls/gate.rs",
        "crates/proxy/src/tls/hello.rs",
    ],
    &[
        "crates/source/src/kubernetes/client.rs",
        "crates/source/src/kubernetes/definitions.rs",
    ],
    &[
        "crates/sync/src/transport/server.rs",
        "crates/sync/src/transport/service.rs",
    ],
];

const RUN_TIME: &str = "tokio";

/// The crates that measurements and stories may see: every crate of the product, and
/// the library of the tools, which is the last.
const PRODUCT_AND_LAB: &[&str] = &[
    "myriad",
    "myriad-admin",
    "myriad-api",
    "myriad-base",
    "myriad-model",
    "myriad-pki",
    "myriad-proxy",
    "myriad-sidecar",
    "myriad-source",
    "myriad-sync",
    "myriad-translate",
    LAB,
];

/// Every crate that ends up in the program.
const PRODUCT: &[&str] = match PRODUCT_AND_LAB.split_last() {
    Some((_, product)) => product,
    None => &[],
};

/// The library that the tools share.
const LAB: &str = "myriad-lab";

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
        name: "myriad-sidecar",
        folder: "crates/sidecar",
        kind: Kind::Product,
        sees: &["myriad-admin", "myriad-base"],
        never: &[
            "kube",
            "k8s-openapi",
            "tonic",
            "myriad-api",
            "myriad-model",
            "myriad-proxy",
            "myriad-sync",
            "myriad-translate",
        ],
        // Its commands run as they are, and only show what went wrong.
        never_directly: &[],
        reason: "a Pod is prepared for a proxy that is not there yet: nothing of it is known here",
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
        sees: PRODUCT_AND_LAB,
        never: &[],
        never_directly: &[],
        reason: "it measures the program and is no part of it",
    },
    Wall {
        name: "myriad-e2e",
        folder: "crates/e2e",
        kind: Kind::Tool,
        sees: PRODUCT_AND_LAB,
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
        name: LAB,
        folder: "crates/lab",
        kind: Kind::Tool,
        sees: &[],
        never: &[RUN_TIME, "hyper", "kube"],
        never_directly: &[],
        reason: "it starts what tests need before anything of the product is built",
    },
    Wall {
        name: "xtask",
        folder: "xtask",
        kind: Kind::Tool,
        sees: &[LAB],
        never: &[RUN_TIME],
        never_directly: &[],
        reason: "it must build, quickly, when nothing else does",
    },
];

/// The wall of a package.
pub(super) fn wall(name: &str) -> Option<&'static Wall> {
    WALLS.iter().find(|wall| wall.name == name)
}
