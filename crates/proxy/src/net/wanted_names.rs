//! Names of which a peer's certificate has to hold one, read once for all handshakes.
//!
//! Each name of a certificate is looked up, so that long lists on either side do not multiply.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use rustls::pki_types::ServerName;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// The most subject alternative names of a certificate; one that has more holds no wanted name.
const NAMES_MAX: usize = 1_024;

/// A list of names, by what certificates hold of them.
#[derive(Debug, Default)]
pub(crate) struct WantedNames {
    /// All as they are written.
    texts: HashSet<Box<str>>,
    /// All in lower case.
    hosts: HashSet<Box<str>>,
    /// Names of servers, by each name that a server's certificate may have for it: the name, and
    /// the wildcard above it.
    servers: HashMap<Box<str>, ServerName<'static>>,
    /// Addresses, by their bytes.
    addresses: HashMap<Box<[u8]>, IpAddr>,
}

impl WantedNames {
    /// The names of a list.
    pub(crate) fn new(list: &[Box<str>]) -> Self {
        let mut names = WantedNames::default();
        for text in list {
            names.texts.insert(text.clone());
            names.hosts.insert(text.to_ascii_lowercase().into());
            if let Ok(address) = text.parse::<IpAddr>() {
                let bytes: Box<[u8]> = match address {
                    IpAddr::V4(address) => address.octets().into(),
                    IpAddr::V6(address) => address.octets().into(),
                };
                names.addresses.insert(bytes, address);
            } else {
                names.add_server(text);
            }
        }
        names
    }

    fn add_server(&mut self, text: &str) {
        let Ok(name) = ServerName::try_from(text) else {
            return;
        };
        let name = name.to_owned();
        let lower = text.to_ascii_lowercase();
        let host = lower.strip_suffix('.').unwrap_or(&lower);
        // No certificate is good for all names of a top-level domain.
        if let Some((_, above)) = host.split_once('.')
            && above.contains('.')
        {
            let wildcard = format!("*.{above}").into();
            self.servers.entry(wildcard).or_insert_with(|| name.clone());
        }
        self.servers.insert(host.into(), name);
    }

    /// Whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Whether a text is in the list as it is.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.texts.contains(text)
    }

    /// Whether a client's certificate holds one of them.
    pub(crate) fn are_held(&self, certificate: &X509Certificate<'_>) -> bool {
        let mut names = alternatives(certificate).iter();
        names.any(|name| match name {
            GeneralName::DNSName(name) => self.hosts.contains(&*name.to_ascii_lowercase()),
            GeneralName::URI(text) | GeneralName::RFC822Name(text) => self.has(text),
            GeneralName::IPAddress(octets) => self.addresses.contains_key(*octets),
            _ => false,
        })
    }

    /// The first of a server's names in its certificate that is one of them, or covers one.
    pub(crate) fn server(&self, certificate: &X509Certificate<'_>) -> Option<ServerName<'static>> {
        let mut names = alternatives(certificate).iter();
        names.find_map(|name| match name {
            GeneralName::DNSName(name) => self.servers.get(&*name.to_ascii_lowercase()).cloned(),
            GeneralName::IPAddress(octets) => {
                let address = self.addresses.get(*octets);
                address.map(|address| ServerName::from(*address))
            }
            _ => None,
        })
    }
}

/// The subject alternative names of a certificate; none of one that has more than may be.
pub(crate) fn alternatives<'a, 'b>(certificate: &'a X509Certificate<'b>) -> &'a [GeneralName<'b>] {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return &[];
    };
    let names = extension.value.general_names.as_slice();
    match names.len() {
        0..=NAMES_MAX => names,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};
    use rustls::pki_types::ServerName;
    use x509_parser::certificate::X509Certificate;
    use x509_parser::prelude::FromDer;

    use super::{NAMES_MAX, WantedNames};

    fn wanted(list: &[&str]) -> WantedNames {
        let list: Vec<Box<str>> = list.iter().map(|it| (*it).into()).collect();
        WantedNames::new(&list)
    }

    fn certificate(names: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn held(wanted: &WantedNames, der: &[u8]) -> (bool, Option<ServerName<'static>>) {
        let (_, parsed) = X509Certificate::from_der(der).unwrap();
        (wanted.are_held(&parsed), wanted.server(&parsed))
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn server(name: &str) -> Option<ServerName<'static>> {
        Some(ServerName::try_from(name).unwrap().to_owned())
    }

    #[test]
    fn each_kind_of_name_is_found_as_it_is_compared() {
        let list = wanted(&["A.Example.com", "spiffe://Mesh/a", "m@x", "10.0.0.1", "::1"]);
        let address = |text: &str| SanType::IpAddress(text.parse().unwrap());
        let uri = |text: &str| SanType::URI(text.try_into().unwrap());
        let mail = |text: &str| SanType::Rfc822Name(text.try_into().unwrap());
        let host = server("A.Example.com");
        for (name, is_held, covers) in [
            (dns("a.example.COM"), true, host.clone()),
            (dns("*.example.com"), false, host),
            (dns("*.com"), false, None),
            (dns("b.example.com"), false, None),
            (dns("10.0.0.1"), true, None),
            (uri("spiffe://Mesh/a"), true, None),
            (uri("spiffe://mesh/a"), false, None),
            (mail("m@x"), true, None),
            (mail("M@x"), false, None),
            (address("10.0.0.1"), true, server("10.0.0.1")),
            (address("10.0.0.2"), false, None),
            (address("::1"), true, server("::1")),
        ] {
            let told = format!("{name:?}");
            let found = held(&list, &certificate(vec![dns("other"), name]));
            assert_eq!(found, (is_held, covers), "{told}");
        }
        assert!(!list.is_empty() && wanted(&[]).is_empty());
    }

    /// A list of 1,000 addresses was read again for each of a certificate's names.
    #[test]
    fn a_list_is_read_once_and_names_of_certificates_are_bounded() {
        let addresses: Vec<String> = (0..1_000)
            .map(|number| format!("10.0.{}.{}", number / 250, number % 250))
            .collect();
        let texts: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let list = wanted(&texts);
        assert_eq!((list.addresses.len(), list.servers.len()), (1_000, 0));
        let of = |count: usize| {
            let mut names = vec![dns("a.example"); count - 1];
            names.push(SanType::IpAddress("10.0.3.249".parse().unwrap()));
            held(&list, &certificate(names))
        };
        assert_eq!(of(NAMES_MAX), (true, server("10.0.3.249")));
        assert_eq!(of(NAMES_MAX + 1), (false, None));
    }
}
