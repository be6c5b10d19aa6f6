use std::collections::BTreeSet;

use super::*;

fn generator(certificates: Certificates) -> Generator {
    let endpoints = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    Generator::new(certificates, endpoints).unwrap()
}

#[test]
fn a_leaf_has_the_usual_size_and_each_version_is_another() {
    let generator = generator(Certificates::Unique);
    let domains = [0, 1].map(|version| generator.domain(1_999_999, version).unwrap());
    for domain in &domains {
        let size = generator.leaf(domain).len();
        assert!((560..=640).contains(&size), "{size} bytes");
    }
    assert_ne!(generator.leaf(&domains[0]), generator.leaf(&domains[1]));
}

#[test]
fn new_names_lie_among_the_existing_ones_and_have_their_length() {
    let generator = generator(Certificates::Unique);
    let existing = |index| generator.host(Generator::existing(index));
    let fresh = generator.host(Generator::fresh(500_000));
    assert!(existing(500_000) < fresh && fresh < existing(500_001));
    assert_eq!(existing(0).len(), fresh.len());
}

#[test]
fn mixed_is_nine_shared_to_one_own() {
    let generator = generator(Certificates::Mixed);
    let numbers = (0..100).map(Generator::existing);
    let own = numbers.filter(|&number| generator.domain(number, 0).unwrap().own.is_some());
    assert_eq!(own.count(), 10);
}

#[test]
fn a_domain_with_a_shared_certificate_changes_its_endpoint() {
    let generator = generator(Certificates::Wildcard);
    let versions = [0, 1].map(|version| generator.domain(7, version).unwrap().endpoint);
    let distinct: BTreeSet<_> = versions.into_iter().collect();
    assert_eq!(distinct.len(), 2);
}
