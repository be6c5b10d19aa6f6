//! Copies of requests for further backends.

use myriad_api::gateway::RequestMirror;
use myriad_model::{Mirror, Share};

use super::fault::RuleFaults;
use super::kit::{RuleKit, upstream_of};
use crate::dialect::gateway::backend_problem::BackendUse;
use crate::engine::Unit;

/// The most copies of a request, by the filters of a rule and of one of its backends.
pub(super) const MIRRORS_MAX: usize = 8;

/// The millionths of all requests.
const ALL_PPM: u32 = 1_000_000;

/// Reads a filter, of whose copies `left` may yet be made. Nothing, where no copies are made.
pub(super) fn read(
    written: &RequestMirror,
    (field, used): (&str, BackendUse),
    left: &mut usize,
    kit: &mut RuleKit<'_>,
    faults: &mut RuleFaults,
) -> Option<(Unit, Mirror)> {
    let share = share(written, field, faults)?;
    let of_backend = format!("{field}.backendRef");
    let reference = (&*of_backend, &written.backend);
    let backend = kit.find(reference, used, "no copies are made", faults)?;
    if share.ppm() == 0 {
        return None;
    }
    let Some(rest) = left.checked_sub(1) else {
        faults.omit(
            field,
            format!(
                "is beyond the {MIRRORS_MAX} copies that a rule and one of its backends may make, \
                 so it makes none"
            ),
            "remove filters",
        );
        return None;
    };
    *left = rest;
    let (unit, upstream) = upstream_of(&backend);
    let mirror = Mirror {
        upstream,
        share,
        authority: Box::default(),
        omits_body: false,
        keeps_authority: true,
    };
    Some((unit, mirror))
}

/// The share of requests that is copied; nothing, where it is none.
fn share(written: &RequestMirror, field: &str, faults: &mut RuleFaults) -> Option<Share> {
    let ppm = match (written.percent, &written.fraction) {
        (Some(percent), _) => percent.saturating_mul(ALL_PPM / 100),
        (None, Some(fraction)) => {
            let (part, whole) = (u64::from(fraction.numerator), fraction.denominator());
            let whole = u64::from(whole.max(1));
            let rounded = (part * u64::from(ALL_PPM) + whole / 2) / whole;
            u32::try_from(rounded).unwrap_or(u32::MAX)
        }
        (None, None) => ALL_PPM,
    };
    let share = Share::from_ppm(ppm);
    if share.is_none() {
        faults.drop(
            format!("{field}.fraction"),
            "is more than all requests",
            "write a numerator that is not above the denominator",
        );
    }
    share
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::{MirrorFraction, RequestMirror};

    use super::super::tests::TestKit;
    use super::{BackendUse, MIRRORS_MAX, RuleFaults, read, share};

    fn to(name: &str) -> RequestMirror {
        let mut mirror = RequestMirror::default();
        mirror.backend.name = name.into();
        mirror.backend.port = Some(80);
        mirror
    }

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        let fraction = |numerator: u32, denominator: Option<u32>| RequestMirror {
            fraction: Some(MirrorFraction {
                numerator,
                denominator,
            }),
            ..to("copy")
        };
        let percent = |percent: u32| RequestMirror {
            percent: Some(percent),
            ..to("copy")
        };
        for (written, ppm) in [
            (to("copy"), Some(1_000_000)),
            (percent(0), Some(0)),
            (percent(35), Some(350_000)),
            (percent(100), Some(1_000_000)),
            (fraction(25, Some(50)), Some(500_000)),
            (fraction(1, None), Some(10_000)),
            (fraction(2, Some(3)), Some(666_667)),
            (fraction(1, Some(2_147_483_647)), Some(0)),
            (
                fraction(2_147_483_647, Some(2_147_483_647)),
                Some(1_000_000),
            ),
            (fraction(3, Some(2)), None),
        ] {
            let mut faults = RuleFaults::default();
            let found = share(&written, "f", &mut faults).map(|share| share.ppm());
            assert_eq!(found, ppm, "{written:?}");
            assert_eq!(faults.dropping().is_some(), ppm.is_none());
        }
    }

    #[test]
    fn a_backend_that_is_not_there_gets_no_copies_and_is_told() {
        let mut kit = TestKit::default();
        let (mut left, mut faults) = (MIRRORS_MAX, RuleFaults::default());
        let mut mirror = |written: &RequestMirror, faults: &mut RuleFaults| {
            let place = ("filters[0].requestMirror", BackendUse::Http);
            kit.with(|kit| read(written, place, &mut left, kit, faults))
        };
        let (_, found) = mirror(&to("copy"), &mut faults).expect("a mirror");
        assert_eq!(found.upstream.as_str(), "shop/copy:80");
        assert!(found.keeps_authority && faults.told().is_empty());
        let none = RequestMirror {
            percent: Some(0),
            ..to("copy")
        };
        assert!(mirror(&none, &mut faults).is_none() && faults.told().is_empty());
        assert!(mirror(&to("missing"), &mut faults).is_none());
        let fault = &faults.told()[0];
        assert_eq!(fault.field, "filters[0].requestMirror.backendRef");
        assert!(fault.message.ends_with("no such port: no copies are made"));
        assert!(faults.dropping().is_none() && faults.unresolved().count() == 1);
        assert_eq!(left, MIRRORS_MAX - 1);
    }

    #[test]
    fn copies_are_bounded() {
        let mut kit = TestKit::default();
        let (mut left, mut faults) = (MIRRORS_MAX, RuleFaults::default());
        let place = ("f", BackendUse::Grpc);
        let made = (0..MIRRORS_MAX + 2)
            .filter_map(|_| kit.with(|kit| read(&to("copy"), place, &mut left, kit, &mut faults)));
        assert_eq!(made.count(), MIRRORS_MAX);
        assert_eq!((faults.told().len(), left), (2, 0));
        assert!(faults.told()[0].message.contains("beyond the 8 copies"));
    }
}
