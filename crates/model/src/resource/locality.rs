//! Which endpoints are preferred by where they and the proxy are.

use super::Endpoints;

/// Which endpoints are preferred by where they and the proxy are. Localities are
/// `region/zone/subzone`, of which later parts may be missing. A proxy that does not know its own
/// takes all endpoints alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalityRule {
    /// Those that share more with the proxy go first: subzone, zone, region. Of other regions, the
    /// one that is written for the proxy's own goes before the rest: pairs of regions.
    Nearest(Box<[(Box<str>, Box<str>)]>),
    /// Those that share more of these with the proxy go first, from the first on.
    Alike(Box<[LocalityPart]>),
    /// Fixed shares for the proxies of a locality; the first that fits holds.
    Shares(Box<[LocalityShares]>),
}

/// A part of a locality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalityPart {
    /// Which.
    pub level: LocalityLevel,
    /// What it has to be; none for what that of the proxy is.
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
    /// Where such proxies are; `*` stands for any part.
    pub from: Box<str>,
    /// Where requests go, and how many in relation to the others. Endpoints elsewhere get none.
    pub to: Box<[(Box<str>, u32)]>,
}

impl LocalityRule {
    /// The most entries of each list.
    pub const ENTRIES_MAX: usize = 256;
}

impl Endpoints {
    /// The most localities that are told apart among the endpoints of one upstream.
    pub const LOCALITIES_MAX: usize = 1_024;

    /// Where the endpoint of a number in the list is.
    pub fn locality(&self, index: usize) -> Option<&str> {
        let place = usize::from(self.endpoints.get(index)?.locality);
        self.localities
            .get(place.checked_sub(1)?)
            .map(|text| &**text)
    }
}
