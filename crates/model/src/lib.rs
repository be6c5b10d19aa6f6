//! The resources that proxies obey, and the arithmetic of their change.
//!
//! **Does** name, encode, hash and compare resources; keep snapshots that share structure, the
//! digest tree over them, and deltas cut into commits.
//! **Knows** what a resource means once translation has decided it, and its wire form.
//! **Never** reads an object that people wrote, a socket, a file, a clock or a thread.

pub mod delta;
pub mod digest;
pub mod host;
pub mod name;
pub mod percent;
pub mod position;
pub mod reach;
pub mod regex;
pub mod resource;
pub mod sealed;
pub mod secrecy;
pub mod snapshot;
pub mod token;
pub mod tree;
pub mod variables;
pub mod wire;
pub mod workload;
pub mod writer;

pub use delta::{COMMIT_BYTES_MAX, COMMIT_RESOURCES_MAX, Change, Commit, Delta};
pub use digest::Digest;
pub use host::{Host, HostError};
pub use name::{Key, Kind, Name, NewerKind, Origin, OriginKind};
pub use percent::unescape;
pub use position::{Moment, Position};
pub use reach::{Extent, Reach, Unreachable};
pub use regex::{PROXY_READ_STEPS_MAX, READ_STEPS_MAX, RegexFault, RegexText};
pub use resource::{
    ALTERNATIVES_MAX, Abort, AbortAnswer, AccessAction, AccessCheck, AccessLog, AccessMatcher,
    AccessPolicy, AccessRule, AccessSubject, AccessTest, Action, Affinity, AnswerMemory, Attribute,
    Authenticate, Authorize, BY_NAME_MAX, BadHash, Balancer, CLIENT_AUTH_PARTS_MAX, Capture,
    CaptureDirection, Certificate, CertificateDemand, CertificateNeed, ChallengeAnswer,
    ChallengeForm, CheckBody, CheckProtocol, CipherSuite, ClaimHeader, ClientAuth, ClientAuthMode,
    Condition, ConditionStep, Cors, Delay, Dns, DnsMode, DnsName, Domain, Draft, Endpoint,
    Endpoints, ErrorPages, Fault, FormatPart, HashBalancer, HashCookie, HashPart, HashSource,
    HashTable, HeaderEdit, HeaderEdits, HttpCheck, Inquiry, Keepalive, KeyEncoding, Label, Limits,
    Listener, ListenerProtocol, Literal, LocalityLevel, LocalityPart, LocalityRule, LocalityShares,
    LogFormat, LogMember, LogSink, MeshTls, Metric, MetricAction, MetricRule, Mirror, MutualTls,
    NameMatch, Outlier, PathForm, PathMatch, PathReading, PathRewrite, PathView, Ping, Policy,
    PrivateKey, Processing, Protocol, Provider, ProxyProtocol, RateLimit, Redirect, RedirectParts,
    RedirectPath, RedirectTarget, Relation, Resource, ResourcePlace, Respond, Retry, RetryBudget,
    RetryConditions, Rewrite, Route, RouteView, Routes, Row, SameSite, Setting, Share, ShareAnswer,
    ShareFilters, Source, SourceRanges, SpanTag, StreamRoute, TRUST_PARTS_MAX, TRUST_SUBJECT_MAX,
    TagValue, Telemetry, Test, TextForm, TlsRedirect, TlsSettings, TlsVersion, TokenIssuer,
    TokenKeys, TraceProtocol, Tracing, Trust, Tunnel, Underscores, Upstream, UpstreamOptions,
    UpstreamTls, Users, Value, ValueMatch, Warmup, WeightedUpstream, divide, in_order,
    is_demandable, on_demand_host, on_demand_name,
};
pub use sealed::{Form, Sealed, SealedArc, Sealer, Version};
pub use snapshot::{Changes, Snapshot, TreeChild};
pub use token::{is_lower_token, is_token, is_token_byte};
pub use tree::{Entry, Tree};
pub use wire::WireError;
pub use workload::WorkloadNames;
pub use writer::Writer;
