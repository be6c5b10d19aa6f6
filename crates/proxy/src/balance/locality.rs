//! The locality of the proxy, and which endpoints that prefers.

use myriad_model::{Endpoints, LocalityLevel, LocalityPart, LocalityRule, LocalityShares};

/// The steps of nearness of one priority.
const STEPS: u8 = 5;

/// The sum of the weights within a locality, for each part of its share.
const SHARE_WEIGHT: u128 = 10_000;

/// A region, zone and subzone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    region: Box<str>,
    zone: Box<str>,
    subzone: Box<str>,
}

/// The weight and priority of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalityShare {
    /// 0 for none of the requests.
    pub weight: u32,
    /// 0 goes first.
    pub priority: u8,
}

impl Locality {
    /// Reads `region/zone/subzone`, of which later parts may be missing; `None` where all are.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/').map(Into::into);
        let mut next = || parts.next().unwrap_or_default();
        let locality = Locality {
            region: next(),
            zone: next(),
            subzone: next(),
        };
        (locality != Locality::default()).then_some(locality)
    }

    fn part(&self, level: LocalityLevel) -> &str {
        match level {
            LocalityLevel::Region => &self.region,
            LocalityLevel::Zone => &self.zone,
            LocalityLevel::Subzone => &self.subzone,
        }
    }

    /// Whether it lies in what a text with `*` says.
    fn lies_in(&self, text: &str) -> bool {
        let mut parts = text.splitn(3, '/');
        let mut fits = |own: &str, may_miss: bool| match parts.next() {
            None | Some("") => may_miss,
            Some(part) => part == "*" || part == own,
        };
        fits(&self.region, false) && fits(&self.zone, true) && fits(&self.subzone, true)
    }
}

/// The weight and priority of each endpoint for a proxy that is at `home`.
pub fn arrange(rule: &LocalityRule, home: &Locality, listed: &Endpoints) -> Vec<LocalityShare> {
    if let Some(shares) = shares(rule, home) {
        return share(shares, &groups(shares, home, listed), listed);
    }
    let step = |there: &Option<Locality>| match rule {
        LocalityRule::Nearest(regions) => Some(nearness(home, there.as_ref(), regions)),
        LocalityRule::Alike(parts) => Some(likeness(home, there.as_ref(), parts)),
        LocalityRule::Shares(_) => None,
    };
    let endpoints = listed.endpoints.iter().zip(places(home, listed));
    endpoints
        .map(|(endpoint, there)| LocalityShare {
            weight: endpoint.weight,
            priority: step(&there).map_or(endpoint.priority, |step| {
                endpoint.priority * STEPS + step.min(STEPS - 1)
            }),
        })
        .collect()
}

/// The shares that hold for a proxy that is at `home`: then the weight of an endpoint follows from
/// all that lie in its group. Without any, each is arranged by itself.
pub fn shares<'a>(rule: &'a LocalityRule, home: &Locality) -> Option<&'a LocalityShares> {
    match rule {
        LocalityRule::Shares(rules) => rules.iter().find(|rule| home.lies_in(&rule.from)),
        LocalityRule::Nearest(_) | LocalityRule::Alike(_) => None,
    }
}

/// The place of each endpoint's group among the shares; `None` for those without a share.
pub fn groups(shares: &LocalityShares, home: &Locality, listed: &Endpoints) -> Vec<Option<usize>> {
    let group = |there: Option<Locality>| {
        let there = there?;
        let at = shares.to.iter().position(|(text, _)| there.lies_in(text))?;
        let (_, share) = shares.to.get(at)?;
        (*share > 0).then_some(at)
    };
    places(home, listed).map(group).collect()
}

/// The weight of an endpoint, or of several, in a group of a share: `sum` is that of all weights in
/// the group.
pub fn weigh(weight: u64, share: u32, sum: u64) -> u64 {
    let whole = u128::from(weight) * u128::from(share) * SHARE_WEIGHT;
    u64::try_from(whole.div_ceil(u128::from(sum.max(1)))).unwrap_or(u64::MAX)
}

/// The locality of each endpoint, where it is known.
fn places(home: &Locality, listed: &Endpoints) -> impl Iterator<Item = Option<Locality>> {
    (0..listed.endpoints.len()).map(move |index| {
        let mut there = listed.locality(index).and_then(Locality::parse)?;
        // Whoever knows a zone and no region speaks of the region around it.
        if there.region.is_empty() {
            there.region.clone_from(&home.region);
        }
        Some(there)
    })
}

fn nearness(home: &Locality, there: Option<&Locality>, regions: &[(Box<str>, Box<str>)]) -> u8 {
    let there_region = there.map_or("", |there| &there.region);
    if let Some(there) = there.filter(|there| there.region == home.region) {
        return match (there.zone == home.zone, there.subzone == home.subzone) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        };
    }
    let mut regions = regions.iter();
    match regions.find(|(from, _)| *from == home.region) {
        Some((_, to)) if **to != *there_region => 4,
        _ => 3,
    }
}

fn likeness(home: &Locality, there: Option<&Locality>, parts: &[LocalityPart]) -> u8 {
    let alike = parts.iter().take_while(|part| {
        let own = home.part(part.level);
        let wanted = part.value.as_deref().unwrap_or(own);
        there.is_some_and(|there| there.part(part.level) == wanted)
    });
    u8::try_from(parts.len() - alike.count()).unwrap_or(u8::MAX)
}

fn share(
    shares: &LocalityShares,
    groups: &[Option<usize>],
    listed: &Endpoints,
) -> Vec<LocalityShare> {
    let endpoints = listed.endpoints.iter().zip(groups);
    let mut sums = vec![0_u64; shares.to.len()];
    for (endpoint, group) in endpoints.clone() {
        if let Some(sum) = group.and_then(|group| sums.get_mut(group)) {
            *sum += u64::from(endpoint.weight);
        }
    }
    let weight = |(endpoint, group): (&myriad_model::Endpoint, &Option<usize>)| {
        let share = group.and_then(|group| Some((shares.to.get(group)?.1, *sums.get(group)?)));
        let own = u64::from(endpoint.weight);
        let weight = share.map_or(0, |(share, sum)| weigh(own, share, sum));
        LocalityShare {
            weight: u32::try_from(weight).unwrap_or(u32::MAX),
            priority: endpoint.priority,
        }
    };
    endpoints.map(weight).collect()
}

#[cfg(test)]
mod tests {
    use myriad_model::{
        Endpoint, Endpoints, LocalityLevel, LocalityPart, LocalityRule, LocalityShares,
    };

    use super::{Locality, arrange};

    const HOME: &str = "eu/a/1";

    /// Endpoints in these localities; none in an empty one.
    fn endpoints(localities: &[&str]) -> Endpoints {
        let endpoint = |number: usize| Endpoint {
            locality: match localities[number] {
                "" => 0,
                _ => number as u16 + 1,
            },
            ..Endpoint::even(([10, 0, 0, number as u8], 80).into())
        };
        Endpoints {
            endpoints: (0..localities.len()).map(endpoint).collect(),
            localities: localities.iter().map(|text| (*text).into()).collect(),
            is_part: false,
        }
    }

    fn priorities(rule: &LocalityRule, localities: &[&str]) -> Vec<u8> {
        let home = Locality::parse(HOME).unwrap();
        let places = arrange(rule, &home, &endpoints(localities));
        places.iter().map(|place| place.priority).collect()
    }

    fn weights(rules: Vec<LocalityShares>, localities: &[&str]) -> Vec<u32> {
        let home = Locality::parse(HOME).unwrap();
        let rule = LocalityRule::Shares(rules.into());
        let places = arrange(&rule, &home, &endpoints(localities));
        places.iter().map(|place| place.weight).collect()
    }

    #[test]
    fn the_nearer_go_first_and_regions_by_what_is_written() {
        let localities = [
            "eu/a/1", "eu/a/2", "eu/b/1", "us/a/1", "ap/a/1", "", "/a/1", "/b",
        ];
        let nearest = LocalityRule::Nearest(Box::default());
        assert_eq!(priorities(&nearest, &localities), [0, 1, 2, 3, 3, 3, 0, 2]);
        let written = LocalityRule::Nearest([("eu".into(), "us".into())].into());
        assert_eq!(priorities(&written, &localities), [0, 1, 2, 3, 4, 4, 0, 2]);
        let elsewhere = LocalityRule::Nearest([("us".into(), "ap".into())].into());
        assert_eq!(
            priorities(&elsewhere, &localities),
            [0, 1, 2, 3, 3, 3, 0, 2]
        );
    }

    #[test]
    fn labels_are_compared_from_the_first_on() {
        let part = |level, value: Option<&str>| LocalityPart {
            level,
            value: value.map(Into::into),
        };
        let rule = LocalityRule::Alike(
            [
                part(LocalityLevel::Region, None),
                part(LocalityLevel::Zone, Some("b")),
            ]
            .into(),
        );
        let localities = ["eu/b", "eu/a", "us/b", ""];
        assert_eq!(priorities(&rule, &localities), [0, 1, 2, 2]);
    }

    #[test]
    fn shares_are_those_of_the_first_rule_that_fits() {
        let to = |pairs: &[(&str, u32)]| {
            let pairs = pairs.iter().map(|(text, share)| ((*text).into(), *share));
            pairs.collect::<Box<[_]>>()
        };
        let rules = vec![
            LocalityShares {
                from: "us/*".into(),
                to: to(&[("us/*", 100)]),
            },
            LocalityShares {
                from: "eu/a/*".into(),
                to: to(&[("eu/a/*", 80), ("eu/b/*", 20)]),
            },
        ];
        let localities = ["eu/a/1", "eu/a/2", "eu/b/1", "us/a/1", ""];
        let shares = [400_000, 400_000, 200_000, 0, 0];
        assert_eq!(weights(rules.clone(), &localities), shares);
        assert_eq!(weights(rules[..1].to_vec(), &localities), [1; 5]);
    }

    #[test]
    fn a_locality_without_parts_is_none() {
        assert_eq!(Locality::parse(""), None);
        assert_eq!(Locality::parse("//"), None);
        assert!(Locality::parse("eu").is_some() && Locality::parse("/a").is_some());
    }
}
