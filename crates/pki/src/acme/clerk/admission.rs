//! Whether an order that an authority has is the one that it was asked for: as many proofs as it
//! has names at most, of its own names alone, by tokens that are some.

use std::net::IpAddr;

use instant_acme::{AuthorizedIdentifier, Error, Identifier, Order};

use super::trouble::StepError;
use super::words::cut;

/// The most bytes of the URL of an order, which is kept with it.
const URL_BYTES_MAX: usize = 2 << 10;

/// Refuses an order with a URL that is too long to be kept, or with more authorizations than it
/// has names.
pub(super) fn admit(order: &mut Order, names: &[Box<str>]) -> Result<(), StepError> {
    if order.url().len() > URL_BYTES_MAX {
        let words = format!("the URL of its order has more than {URL_BYTES_MAX} bytes");
        return Err(Error::Other(words.into()).into());
    }
    let (count, most) = (order.state().authorizations.len(), names.len());
    match count > most {
        true => Err(StepError::Refused(format!(
            "it wants {count} proofs for an order of {most} names"
        ))),
        false => Ok(()),
    }
}

/// The name of an order that an authorization is about, as the order has it.
pub(super) fn own_name<'a>(
    names: &'a [Box<str>],
    found: &AuthorizedIdentifier<'_>,
) -> Result<&'a str, StepError> {
    let is_it = |name: &str| match found.identifier {
        Identifier::Dns(host) if found.wildcard => {
            let below = name.strip_prefix("*.");
            below.is_some_and(|below| below.eq_ignore_ascii_case(host))
        }
        Identifier::Dns(host) => name.eq_ignore_ascii_case(host),
        Identifier::Ip(ip) => !found.wildcard && name.parse::<IpAddr>().is_ok_and(|it| it == *ip),
        _ => false,
    };
    let mut names = names.iter().map(|name| &**name);
    let own = names.find(|name| is_it(name));
    own.ok_or_else(|| {
        let words = format!("it wants a proof of a name that was not ordered: {found}");
        StepError::Refused(cut(words))
    })
}

#[cfg(test)]
mod tests {
    use instant_acme::Identifier;

    use super::own_name;

    #[test]
    fn a_name_is_found_as_it_was_ordered_and_no_other_is_one_of_the_order() {
        let names = ["*.b.example", "a.example", "192.0.2.7", "2001:DB8:0::7"];
        let names: Vec<Box<str>> = names.map(Box::from).into();
        let dns = |host: &str| Identifier::Dns(host.to_owned());
        let ip = |ip: &str| Identifier::Ip(ip.parse().unwrap());
        for (found, is_wildcard, own) in [
            (dns("a.example"), false, Some("a.example")),
            (dns("A.Example"), false, Some("a.example")),
            (dns("b.example"), true, Some("*.b.example")),
            (ip("192.0.2.7"), false, Some("192.0.2.7")),
            (ip("2001:db8::7"), false, Some("2001:DB8:0::7")),
            (dns("a.example"), true, None),
            (dns("b.example"), false, None),
            (dns("victim.example"), false, None),
            (dns(""), false, None),
            (ip("192.0.2.7"), true, None),
            (ip("192.0.2.8"), false, None),
            (
                Identifier::HardwareModule("a.example".to_owned()),
                false,
                None,
            ),
        ] {
            let known = own_name(&names, &found.authorized(is_wildcard)).ok();
            assert_eq!(known, own, "{found:?} {is_wildcard}");
        }
    }
}
