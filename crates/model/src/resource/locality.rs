//! The preference among endpoints by where they and the proxy are.

use super::Endpoints;

/// The preference among endpoints by where they and the proxy are. Localities are
/// `region/zone/subzone`, of which later parts may be missing. A proxy that does not know its own
/// takes all endpoints alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalityRule {
    /// Endpoints that share more with the proxy go first: subzone, zone, region. Of other regions,
    /// the one that is written for the proxy's own goes before the rest: pairs of regions.
    Nearest(Box<[(Box<str>, Box<str>)]>),
    /// Endpoints that share more of these parts with the proxy go first; earlier parts weigh more.
    Alike(Box<[LocalityPart]>),
    /// Fixed shares for the proxies of a locality; the first that fits holds.
    Shares(Box<[LocalityShares]>),
}

/// A part of a locality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalityPart {
    /// The part: region, zone or subzone.
    pub level: LocalityLevel,
    /// The value it must have; `None` for that of the proxy.
    pub value: Option<Box<str>>,
}

/// The parts of a locality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LocalityLevel {
    /// The first part.
    Region = 1,
    /// The second.
    Zone = 2,
    /// The third.
    Subzone = 3,
}

/// The shares of localities among the requests of proxies in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalityShares {
    /// The locality of the proxies that this is for; `*` stands for any part.
    pub from: Box<str>,
    /// The localities that requests go to, with weights. Endpoints elsewhere get none.
    pub to: Box<[(Box<str>, u32)]>,
}

impl LocalityRule {
    /// The most entries of each list.
    pub const ENTRIES_MAX: usize = 256;
}

impl Endpoints {
    /// The most localities that are told apart among the endpoints of one upstream.
    pub const LOCALITIES_MAX: usize = 1_024;

    /// The locality of the endpoint with this index; `None` where it has none.
    pub fn locality(&self, index: usize) -> Option<&str> {
        let place = usize::from(self.endpoints.get(index)?.locality);
        self.localities
            .get(place.checked_sub(1)?)
            .map(|text| &**text)
    }
}
