//! Which hosts two patterns have in common.

use myriad_model::Host;
use myriad_model::host::Pattern;

/// Whether all that one pattern matches is matched by another. Wildcards are for one label or more.
pub(crate) fn covers(broad: &Host, narrow: &Host) -> bool {
    match (broad.pattern(), narrow.pattern()) {
        (Pattern::Any, _) => true,
        (Pattern::AnyLabels(suffix), Pattern::Exact(name)) => {
            name.strip_suffix(suffix).is_some_and(|it| !it.is_empty())
        }
        (Pattern::AnyLabels(suffix), Pattern::AnyLabels(other) | Pattern::OneLabel(other)) => {
            other.ends_with(suffix)
        }
        _ => broad == narrow,
    }
}

/// The pattern of what two of them have in common; none where that is nothing.
pub(crate) fn intersect(one: &Host, other: &Host) -> Option<Host> {
    if covers(one, other) {
        return Some(other.clone());
    }
    covers(other, one).then(|| one.clone())
}

#[cfg(test)]
mod tests {
    use myriad_model::Host;

    use super::intersect;

    fn host(text: &str) -> Host {
        Host::parse(text).expect("a host")
    }

    #[test]
    fn the_hosts_of_a_route_are_narrowed_to_those_of_its_listener() {
        let cases = [
            ("*", "*", Some("*")),
            ("*", "a.example", Some("a.example")),
            ("a.example", "*", Some("a.example")),
            ("a.example", "a.example", Some("a.example")),
            ("a.example", "b.example", None),
            ("**.example", "a.example", Some("a.example")),
            ("**.example", "b.a.example", Some("b.a.example")),
            ("**.example", "**.a.example", Some("**.a.example")),
            ("**.a.example", "**.example", Some("**.a.example")),
            ("a.example", "**.example", Some("a.example")),
            ("**.example", "**.example", Some("**.example")),
            ("**.a.example", "**.b.example", None),
            ("**.a.example", "a.example", None),
            ("**.a.example", "**.ba.example", None),
        ];
        for (listener, route, common) in cases {
            let found = intersect(&host(listener), &host(route));
            assert_eq!(found, common.map(host), "{listener} and {route}");
        }
    }
}
