//! How a DestinationRule chooses among endpoints.

use std::time::Duration;

use crate::istio::Names;
use crate::istio::reading::{Map, message};
use crate::istio::scalar::words;

message! {
    /// The choice of an endpoint.
    pub struct LoadBalancer {
        simple: Option<SimpleBalancer> = "simple",
        consistent_hash: Option<ConsistentHash> = "consistentHash" | "consistent_hash",
        locality: Option<LocalityBalancer> = "localityLbSetting" | "locality_lb_setting",
        zone_aware: Option<ZoneAwareBalancer> = "zoneAwareLbSetting" | "zone_aware_lb_setting",
        /// The former form of `warmup`.
        warmup_duration: Option<Duration> = "warmupDurationSecs" | "warmup_duration_secs",
        warmup: Option<Warmup> = "warmup",
    }
    one_of [simple = "simple", consistent_hash = "consistentHash"]
    one_of [locality = "localityLbSetting", zone_aware = "zoneAwareLbSetting"]
}

words! {
    /// A balancer without settings.
    pub enum SimpleBalancer {
        Unspecified = 0 "UNSPECIFIED",
        /// The former name of `LEAST_REQUEST`.
        LeastConn = 1 "LEAST_CONN",
        Random = 2 "RANDOM",
        Passthrough = 3 "PASSTHROUGH",
        RoundRobin = 4 "ROUND_ROBIN",
        LeastRequest = 5 "LEAST_REQUEST",
    }
}

message! {
    /// Equal requests to equal endpoints.
    #[derive(Eq)]
    pub struct ConsistentHash {
        http_header_name: Option<Box<str>> = "httpHeaderName" | "http_header_name",
        http_cookie: Option<HttpCookie> = "httpCookie" | "http_cookie",
        use_source_ip: Option<bool> = "useSourceIp" | "use_source_ip",
        http_query_parameter_name: Option<Box<str>> =
            "httpQueryParameterName" | "http_query_parameter_name",
        ring_hash: Option<RingHash> = "ringHash" | "ring_hash",
        maglev: Option<Maglev> = "maglev",
        /// The former form of `ringHash.minimumRingSize`.
        minimum_ring_size: u64 = "minimumRingSize" | "minimum_ring_size",
    }
    one_of [
        http_header_name = "httpHeaderName",
        http_cookie = "httpCookie",
        use_source_ip = "useSourceIp",
        http_query_parameter_name = "httpQueryParameterName"
    ]
    one_of [ring_hash = "ringHash", maglev = "maglev"]
}

message! {
    /// A ring of hashes.
    #[derive(Copy, Eq)]
    pub struct RingHash {
        /// Points on the ring; 0 means 1024.
        minimum_ring_size: u64 = "minimumRingSize" | "minimum_ring_size",
    }
}

message! {
    /// A table of hashes.
    #[derive(Copy, Eq)]
    pub struct Maglev {
        /// Entries, a prime number; 0 means 65537.
        table_size: u64 = "tableSize" | "table_size",
    }
}

message! {
    /// A cookie that is hashed, and made where a request has none.
    #[derive(Eq)]
    pub struct HttpCookie {
        name: Box<str> = "name" required,
        path: Box<str> = "path",
        /// None: no cookie is made. Zero: one that ends with the browser.
        ttl: Option<Duration> = "ttl",
        attributes: Box<[CookieAttribute]> = "attributes",
    }
}

message! {
    /// A further attribute of a cookie that is made.
    #[derive(Eq)]
    pub struct CookieAttribute {
        name: Box<str> = "name" required,
        value: Box<str> = "value",
    }
}

message! {
    /// Endpoints that are new get less at first.
    pub struct Warmup {
        duration: Duration = "duration" required,
        /// Percent of the weight to begin with.
        minimum_percent: Option<f64> = "minimumPercent" | "minimum_percent",
        aggression: Option<f64> = "aggression",
    }
}

message! {
    /// Which localities are preferred.
    #[derive(Eq)]
    pub struct LocalityBalancer {
        distribute: Box<[Distribute]> = "distribute",
        failover: Box<[Failover]> = "failover",
        /// Labels, as `key` or `key=value`, the weightiest first.
        failover_priority: Names = "failoverPriority" | "failover_priority",
        enabled: Option<bool> = "enabled",
    }
}

message! {
    /// Shares of localities.
    #[derive(Eq)]
    pub struct Distribute {
        /// `region/zone/subzone`, where `*` stands for any.
        from: Box<str> = "from",
        /// Percent by locality.
        to: Map<u32> = "to",
    }
}

message! {
    /// Where traffic of a region goes when its endpoints are not healthy.
    #[derive(Eq)]
    pub struct Failover {
        from: Box<str> = "from",
        to: Box<str> = "to",
    }
}

message! {
    /// The same zone first, in proportion to its share of endpoints.
    #[derive(Eq)]
    pub struct ZoneAwareBalancer {
        enabled: Option<bool> = "enabled",
        failover: Box<[Failover]> = "failover",
        failover_priority: Names = "failoverPriority" | "failover_priority",
        min_cluster_size: Option<u32> = "minClusterSize" | "min_cluster_size",
    }
}
