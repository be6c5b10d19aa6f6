//! The addresses of a Gateway: those that it has, and whether they are what it asks for.

use myriad_api::gateway::status::WantedAddress;
use myriad_source::kubernetes::status::Address;
use serde_json::{Value, json};

use crate::controller::obstacle::Obstacle;

/// The most addresses that a status shows.
const ADDRESSES_MAX: usize = 16;

/// The addresses that a Gateway shows of those that are there, and what is wrong with them.
pub(super) fn assign(
    wanted: &[WantedAddress],
    there: &[Address],
) -> (Vec<Address>, Option<Obstacle>) {
    if wanted.is_empty() {
        let obstacle = there.is_empty().then(|| {
            Obstacle::new(
                "AddressNotAssigned",
                "the Service of the proxies has no address yet",
            )
        });
        return (there.to_vec(), obstacle);
    }
    let mut shown: Vec<Address> = Vec::new();
    let (mut unusable, mut is_missing) = (Vec::new(), false);
    for wanted in wanted {
        let mut has_any = false;
        for address in there.iter().filter(|address| is_wanted(wanted, address)) {
            has_any = true;
            if !shown.contains(address) {
                shown.push(address.clone());
            }
        }
        match (has_any, &*wanted.value) {
            (true, _) => {}
            (false, "") => is_missing = true,
            (false, value) => unusable.push(value),
        }
    }
    let obstacle = if !unusable.is_empty() {
        let list = unusable.join(", ");
        let message = format!(
            "the Service of the proxies does not have {list}: ask for an address that the load \
             balancer gives and that Gateways may have (gatewayApi.deployments.addresses of the \
             chart), or for none"
        );
        Some(Obstacle::new("AddressNotUsable", message))
    } else if is_missing {
        let message = "the Service of the proxies has no address of that type";
        Some(Obstacle::new("AddressNotAssigned", message))
    } else {
        None
    };
    (shown, obstacle)
}

/// The field `addresses` of a status; null for none.
pub(super) fn field(addresses: &[Address]) -> Value {
    let entry = |address: &Address| match address {
        Address::Ip(ip) => json!({"type": "IPAddress", "value": ip.to_string()}),
        Address::Hostname(name) => json!({"type": "Hostname", "value": name}),
    };
    match addresses.is_empty() {
        true => Value::Null,
        false => addresses.iter().take(ADDRESSES_MAX).map(entry).collect(),
    }
}

fn is_wanted(wanted: &WantedAddress, address: &Address) -> bool {
    let is_any = wanted.value.is_empty();
    match (&*wanted.kind, address) {
        ("IPAddress", Address::Ip(ip)) => is_any || wanted.value.parse() == Ok(*ip),
        ("Hostname", Address::Hostname(name)) => is_any || wanted.value.eq_ignore_ascii_case(name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::status::WantedAddress;
    use myriad_source::kubernetes::status::Address;
    use serde_json::{Value, json};

    use super::{assign, field};

    fn wanted(kind: &str, value: &str) -> WantedAddress {
        WantedAddress {
            kind: kind.into(),
            value: value.into(),
        }
    }

    fn ip(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    fn reason(wanted: &[WantedAddress], there: &[Address]) -> Option<&'static str> {
        assign(wanted, there).1.map(|obstacle| obstacle.reason)
    }

    #[test]
    fn a_gateway_that_asks_for_nothing_has_all_there_are() {
        let there = [ip("192.0.2.1"), Address::Hostname("lb.example".into())];
        assert_eq!(assign(&[], &there), (there.to_vec(), None));
        assert_eq!(reason(&[], &[]), Some("AddressNotAssigned"));
        let shown = json!([
            {"type": "IPAddress", "value": "192.0.2.1"},
            {"type": "Hostname", "value": "lb.example"},
        ]);
        assert_eq!(field(&there), shown);
        assert_eq!(field(&[]), Value::Null);
    }

    #[test]
    fn an_address_that_is_asked_for_has_to_be_there_and_is_the_only_one_shown() {
        let there = [ip("192.0.2.1"), ip("2001:db8::1")];
        let one = wanted("IPAddress", "2001:db8:0::1");
        assert_eq!(
            assign(std::slice::from_ref(&one), &there),
            (vec![ip("2001:db8::1")], None)
        );
        let other = wanted("IPAddress", "192.0.2.7");
        let (shown, obstacle) = assign(&[other, one.clone(), one], &there);
        assert_eq!(shown, [ip("2001:db8::1")]);
        let obstacle = obstacle.unwrap();
        assert_eq!(obstacle.reason, "AddressNotUsable");
        assert!(obstacle.message.contains("192.0.2.7"), "{obstacle:?}");
        for (kind, value) in [
            ("Hostname", "lb.example"),
            ("NamedAddress", "a"),
            ("IPAddress", "x"),
        ] {
            let found = reason(&[wanted(kind, value)], &there);
            assert_eq!(found, Some("AddressNotUsable"), "{kind} {value}");
        }
    }

    #[test]
    fn an_address_of_some_type_is_any_of_that() {
        let there = [ip("192.0.2.1"), Address::Hostname("lb.example".into())];
        let any = [wanted("IPAddress", "")];
        assert_eq!(assign(&any, &there), (vec![ip("192.0.2.1")], None));
        assert_eq!(reason(&any, &there[1..]), Some("AddressNotAssigned"));
        let both = [wanted("Hostname", "LB.example"), wanted("Hostname", "")];
        assert_eq!(assign(&both, &there), (there[1..].to_vec(), None));
    }
}
