//! Distinguished names as text (RFC 2253), as OpenSSL writes them by that flag: the last part
//! first, in ASCII, and what might be taken for another part escaped.

use std::fmt::Write as _;

use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The name of the attribute that is a common name.
const COMMON: &str = "CN";

/// The attributes that have names, by their numbers.
const NAMED: [(&str, &str); 16] = [
    ("2.5.4.3", COMMON),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.42", "GN"),
    ("2.5.4.97", "organizationIdentifier"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
];

/// A distinguished name as text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DistinguishedText {
    /// The text, in ASCII.
    pub text: String,
    /// The places in it where common names begin.
    pub common_names: Vec<usize>,
}

impl DistinguishedText {
    /// The text of a name.
    pub fn of(name: &X509Name<'_>) -> Self {
        let mut made = DistinguishedText::default();
        let mut parts: Vec<_> = name.iter_rdn().collect();
        parts.reverse();
        for part in parts {
            for (number, attribute) in part.iter().enumerate() {
                if !made.text.is_empty() {
                    made.text.push(if number > 0 { '+' } else { ',' });
                }
                made.add(attribute);
            }
        }
        made
    }

    fn add(&mut self, attribute: &AttributeTypeAndValue<'_>) {
        let number = attribute.attr_type().to_id_string();
        let named = NAMED.iter().find(|(known, _)| **known == *number);
        let name = named.map_or(&*number, |(_, name)| *name);
        if name == COMMON {
            self.common_names.push(self.text.len());
        }
        self.text.push_str(name);
        self.text.push('=');
        match decoded(attribute.attr_value()) {
            Some(value) => escape(&value, &mut self.text),
            None => {
                self.text.push('#');
                for byte in attribute.as_slice() {
                    let _ = write!(self.text, "{byte:02X}");
                }
            }
        }
    }
}

/// A value as text; none where it is no text.
fn decoded(value: &Any<'_>) -> Option<String> {
    let bytes = value.as_bytes();
    match value.tag() {
        Tag::Utf8String
        | Tag::PrintableString
        | Tag::Ia5String
        | Tag::NumericString
        | Tag::VisibleString => std::str::from_utf8(bytes).ok().map(Into::into),
        Tag::T61String => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => {
            let pairs = bytes.chunks_exact(2);
            let units = pairs.filter_map(|pair| pair.try_into().ok().map(u16::from_be_bytes));
            String::from_utf16(&units.collect::<Vec<u16>>()).ok()
        }
        _ => None,
    }
}

/// Adds a value so that nothing in it ends it, or is other than printable ASCII.
fn escape(value: &str, text: &mut String) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        let is_edge = (byte == b' ' && (at == 0 || at == last)) || (byte == b'#' && at == 0);
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => {
                if is_edge {
                    text.push('\\');
                }
                text.push(char::from(byte));
            }
            _ => {
                let _ = write!(text, "\\{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use x509_parser::certificate::X509Certificate;
    use x509_parser::prelude::FromDer;

    use super::{DistinguishedText, escape};

    fn subject(parts: &[(DnType, &str)]) -> DistinguishedText {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let (_, parsed) = X509Certificate::from_der(made.der()).unwrap();
        DistinguishedText::of(parsed.subject())
    }

    #[test]
    fn the_last_part_comes_first_and_no_value_makes_a_part_of_its_own() {
        let made = subject(&[
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "Acme,CN=admin"),
            (DnType::CommonName, "ann"),
        ]);
        assert_eq!(made.text, r"CN=ann,O=Acme\,CN=admin,C=DE");
        assert_eq!(made.common_names, [0]);
        let made = subject(&[
            (DnType::CommonName, "ann"),
            (DnType::CustomDnType(vec![1, 2, 3]), "x"),
        ]);
        assert_eq!(made.text, "1.2.3=x,CN=ann");
        assert_eq!(made.common_names, ["1.2.3=x,".len()]);
        assert_eq!(subject(&[]), DistinguishedText::default());
    }

    #[test]
    fn values_are_printable_ascii_with_what_ends_them_escaped() {
        for (value, written) in [
            ("a b", "a b"),
            (" #a ", r"\ #a\ "),
            ("#a#", r"\#a#"),
            ("a\r\nb: c", r"a\0D\0Ab: c"),
            ("a\"b\\<>;+", r#"a\"b\\\<\>\;\+"#),
            ("ü", r"\C3\BC"),
            ("", ""),
        ] {
            let mut text = String::new();
            escape(value, &mut text);
            assert_eq!(text, written);
        }
    }
}
