//! The bounds on what one namespace may make proxies hold.

/// The points on the rings of a DestinationRule beyond the bound of its namespace.
pub(crate) const REDUCED_POINTS: u32 = 64;

/// The bytes of texts that a row of a route table has and counts for nothing more: headers,
/// bodies, origins, lists of networks and all else that each host repeats.
pub(crate) const ROW_TEXT_BYTES: usize = 512;

/// The bytes of texts beyond [`ROW_TEXT_BYTES`] that count for one row more, if they are begun.
const MORE_TEXT_BYTES: usize = 256;

/// The bytes of a Secret that count for one certificate, begun ones too, and of authorities of
/// several objects together.
pub(crate) const CERTIFICATE_BYTES: u64 = 4 << 10;

/// The most entries of a list of names that have an effect, such as the namespaces of `exportTo`,
/// of which every host of an object asks.
pub(crate) const NAMES_MAX: usize = 256;

/// The most labels that choose workloads, of a selector or a subset: no workload has more.
pub(crate) const SELECTOR_LABELS_MAX: usize = 256;

/// The entries of a list of names that have an effect: the first ones.
pub(crate) fn first_names(written: &[Box<str>]) -> &[Box<str>] {
    written.get(..NAMES_MAX).unwrap_or(written)
}

/// The rows that one with these bytes of texts counts for beside itself. No row has more than
/// [`ROW_TEXT_BYTES`] for each that it counts for, so that the bound of rows is one of memory.
pub(crate) const fn text_rows(bytes: usize) -> usize {
    bytes
        .saturating_sub(ROW_TEXT_BYTES)
        .div_ceil(MORE_TEXT_BYTES)
}

/// A quantity that namespaces are bounded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holding {
    /// Rows of route tables: paths of Ingresses, matches of VirtualServices on each host, at least
    /// one for each, and hosts of Gateways' servers; for
    /// a regex one more for each KiB that it may take once it is compiled, and for long texts as
    /// many as [`text_rows`] says. Each port of a Service beyond the first few is several.
    Routes,
    /// Addresses with a port of EndpointSlices, or the ports of those without addresses, of
    /// ServiceEntries for each of their hosts, and of WorkloadEntries.
    Endpoints,
    /// Secrets, once for each begun 4 KiB of what is kept of them, and in the same measure the
    /// authorities of several objects that an object of the namespace names together.
    Certificates,
    /// Points of hash rings and places of Maglev tables in DestinationRules.
    HashSlots,
    /// Bytes of memory that objects of Istio's API take, which are kept as they were read, and
    /// those of other kinds beyond what each may take for nothing. Services, ConfigMaps and Pods
    /// count for some, however small they are, and routes of Gateway API for their places.
    ObjectBytes,
    /// Hosts of Ingresses, of Gateways' servers and of VirtualServices, once for each object that
    /// names one.
    Hosts,
    /// KiB that the regexes of Ingresses and VirtualServices may take once they are compiled, which
    /// count towards [`Holding::Routes`] as well.
    RegexKib,
    /// Issuers, each of which has accounts at authorities.
    Issuers,
    /// Ports of Gateways and ListenerSets but 80 and 443, once for each object that names one: each
    /// is a socket in every worker of proxies.
    Ports,
}

/// The most that one namespace may hold, and one upstream. Zero is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// See [`Holding::Routes`].
    pub routes: u64,
    /// See [`Holding::Endpoints`].
    pub endpoints: u64,
    /// See [`Holding::Certificates`].
    pub certificates: u64,
    /// See [`Holding::HashSlots`].
    pub hash_slots: u64,
    /// See [`Holding::ObjectBytes`].
    pub object_bytes: u64,
    /// The bytes of memory that findings about the objects of a namespace may count for.
    pub finding_bytes: u64,
    /// See [`Holding::Hosts`].
    pub hosts: u64,
    /// See [`Holding::RegexKib`].
    pub regex_kib: u64,
    /// See [`Holding::Issuers`].
    pub issuers: u64,
    /// See [`Holding::Ports`].
    pub ports: u64,
    /// The slots that one upstream may have, 2 to [`myriad_model::HashTable::SIZE_MAX`].
    pub upstream_hash_slots: u32,
    /// The subsets that a host may have.
    pub host_subsets: u64,
    /// The endpoints that the subsets of a host may have together, where they are more than eight
    /// times those of the host.
    pub subset_endpoints: u64,
    /// The endpoints that upstreams of one namespace may have that others have as well: those of
    /// subsets, those that selectors find, and in their measure long texts of DestinationRules.
    pub endpoint_copies: u64,
    /// The claims to hosts, ports and names that the objects of a namespace may have come to after
    /// their creation.
    pub late_claims: u64,
    /// The views that the sidecars of a namespace may have: in how many ways its workloads may
    /// differ in labels that selectors name.
    pub views: u64,
}

impl Default for Bounds {
    /// The bounds of `serve`, whose objects are of one person.
    fn default() -> Self {
        Bounds {
            routes: 0,
            endpoints: 0,
            certificates: 0,
            object_bytes: 0,
            finding_bytes: 32 << 20,
            hosts: 0,
            regex_kib: 0,
            issuers: 0,
            ports: 0,
            hash_slots: 4 << 20,
            upstream_hash_slots: 65_537,
            host_subsets: 256,
            subset_endpoints: 65_536,
            endpoint_copies: 500_000,
            late_claims: 10_000,
            views: 0,
        }
    }
}

impl Bounds {
    /// The bounds of namespaces of different people.
    pub fn of_tenants() -> Self {
        Bounds {
            routes: 250_000,
            endpoints: 250_000,
            certificates: 150_000,
            object_bytes: 256 << 20,
            issuers: 8,
            ports: 256,
            views: 1_024,
            ..Bounds::default()
        }
    }

    /// The subsets that a host may have.
    pub fn subsets_max(&self) -> usize {
        let bound = usize::try_from(self.host_subsets).unwrap_or(usize::MAX);
        match bound {
            0 => usize::MAX,
            bound => bound,
        }
    }

    /// The bytes that findings about a namespace may count for; none where they are not bounded.
    pub fn findings(&self) -> Option<u64> {
        Some(self.finding_bytes).filter(|bound| *bound > 0)
    }

    /// The copies of endpoints that a namespace may have; none where they are not bounded.
    pub fn copies(&self) -> Option<u64> {
        Some(self.endpoint_copies).filter(|bound| *bound > 0)
    }

    /// The views that the sidecars of a namespace may have; none where they are not bounded.
    pub fn views_max(&self) -> Option<u64> {
        Some(self.views).filter(|bound| *bound > 0)
    }

    /// The most that a namespace may hold; none where it is not bounded.
    pub fn get(&self, holding: Holding) -> Option<u64> {
        let bound = match holding {
            Holding::Routes => self.routes,
            Holding::Endpoints => self.endpoints,
            Holding::Certificates => self.certificates,
            Holding::HashSlots => self.hash_slots,
            Holding::ObjectBytes => self.object_bytes,
            Holding::Hosts => self.hosts,
            Holding::RegexKib => self.regex_kib,
            Holding::Issuers => self.issuers,
            Holding::Ports => self.ports,
        };
        Some(bound).filter(|bound| *bound > 0)
    }

    /// The same with another bound of a holding.
    #[must_use]
    pub fn with(mut self, holding: Holding, bound: u64) -> Self {
        let place = match holding {
            Holding::Routes => &mut self.routes,
            Holding::Endpoints => &mut self.endpoints,
            Holding::Certificates => &mut self.certificates,
            Holding::HashSlots => &mut self.hash_slots,
            Holding::ObjectBytes => &mut self.object_bytes,
            Holding::Hosts => &mut self.hosts,
            Holding::RegexKib => &mut self.regex_kib,
            Holding::Issuers => &mut self.issuers,
            Holding::Ports => &mut self.ports,
        };
        *place = bound;
        self
    }
}

impl Holding {
    /// The holdings that one namespace may have a bound of its own for. Slots are no such, since
    /// upstreams have some that no object counts for.
    pub const OF_TENANTS: [Holding; 8] = [
        Holding::Hosts,
        Holding::Routes,
        Holding::Endpoints,
        Holding::Certificates,
        Holding::RegexKib,
        Holding::ObjectBytes,
        Holding::Issuers,
        Holding::Ports,
    ];

    /// The name that its bound is set by.
    pub const fn name(self) -> &'static str {
        match self {
            Holding::Routes => "routes",
            Holding::Endpoints => "endpoints",
            Holding::Certificates => "certificates",
            Holding::HashSlots => "hash-slots",
            Holding::ObjectBytes => "object-bytes",
            Holding::Hosts => "hosts",
            Holding::RegexKib => "regex-kib",
            Holding::Issuers => "issuers",
            Holding::Ports => "ports",
        }
    }

    /// The words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Holding::Routes => "routes",
            Holding::Endpoints => "endpoints",
            Holding::Certificates => "certificates or authorities",
            Holding::HashSlots => "slots of hash tables",
            Holding::ObjectBytes => "bytes of memory for its objects",
            Holding::Hosts => "hosts",
            Holding::RegexKib => "KiB of regexes",
            Holding::Issuers => "issuers",
            Holding::Ports => "ports of Gateways",
        }
    }
}
