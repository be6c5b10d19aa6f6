//! Which of several certificates for different names answers a handshake.

use std::sync::Arc;

use myriad_model::ALTERNATIVES_MAX;

use crate::route::certificate::Parsed;
use crate::route::stream_route::specificity;

/// A certificate, and others beside it for other algorithms.
pub type WithAlternatives = (Arc<Parsed>, Box<[Arc<Parsed>]>);

/// Of certificates for different names, those for the most specific name that covers the one asked
/// for, or all where none is for it: the first, and those beside it, of which the client gets the
/// one whose algorithm it knows. None of none.
pub fn of_name(mut all: Vec<Arc<Parsed>>, name: Option<&str>) -> Option<WithAlternatives> {
    let rank = |parsed: &Parsed| {
        let names = parsed.names.iter();
        let covering = names.filter(|host| name.is_some_and(|name| host.covers(name)));
        covering.map(|host| specificity(host.pattern())).max()
    };
    let best = all.iter().map(|parsed| rank(parsed)).max()?;
    all.retain(|parsed| rank(parsed) == best);
    all.truncate(ALTERNATIVES_MAX + 1);
    let mut all = all.into_iter();
    Some((all.next()?, all.collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_model::{ALTERNATIVES_MAX, Host, KeyEncoding, PrivateKey};
    use rustls::crypto::aws_lc_rs::sign::any_supported_type;
    use rustls::sign::CertifiedKey;

    use super::of_name;
    use crate::route::certificate::Parsed;

    fn certificates(names: &[&[&str]]) -> Vec<Arc<Parsed>> {
        let key = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
        let key = PrivateKey::new(KeyEncoding::Pkcs8, key.signing_key.serialize_der().into());
        let key = any_supported_type(&key.to_der()).unwrap();
        let key = Arc::new(CertifiedKey::new(Vec::new(), key));
        let of = |names: &[&str]| Parsed {
            key: key.clone(),
            names: names.iter().map(|it| Host::parse(it).unwrap()).collect(),
        };
        names.iter().map(|names| Arc::new(of(names))).collect()
    }

    #[test]
    fn the_most_specific_name_decides_and_then_the_order() {
        let all = certificates(&[
            &["*.a.example", "c.example"],
            &["x.a.example"],
            &["*"],
            &["*.a.example"],
            &[],
        ]);
        let places = |name: Option<&str>| -> Vec<usize> {
            let (first, others) = of_name(all.clone(), name).unwrap();
            let chosen = std::iter::once(&first).chain(&others);
            let place = |it: &Arc<Parsed>| all.iter().position(|known| Arc::ptr_eq(known, it));
            chosen.filter_map(place).collect()
        };
        for (name, expected) in [
            (Some("x.a.example"), &[1][..]),
            (Some("y.a.example"), &[0, 3]),
            (Some("c.example"), &[0]),
            (Some("other.example"), &[2]),
            (None, &[0, 1, 2, 3, 4]),
        ] {
            assert_eq!(places(name), expected, "{name:?}");
        }
        assert!(of_name(Vec::new(), Some("a.example")).is_none());
    }

    #[test]
    fn no_more_are_offered_than_one_domain_may_have_for_the_same_names() {
        let many = vec![&["a.example"][..]; 64];
        let (_, others) = of_name(certificates(&many), Some("a.example")).unwrap();
        assert_eq!(others.len(), ALTERNATIVES_MAX);
    }
}
