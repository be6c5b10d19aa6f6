//! A certificate that a client has shown where any may be.

use std::cell::OnceCell;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The bytes of a line of PEM.
const LINE_BYTES: usize = 64;

/// A certificate that a client has shown, whatever became of it. Nothing but its verdict says
/// whether what it tells is so.
pub struct ShownCertificate {
    /// The result of verifying it.
    pub verdict: CertificateVerdict,
    /// Its subject (RFC 2253), in ASCII.
    pub subject: Box<str>,
    /// The places in the subject where common names begin.
    pub common_names: Box<[usize]>,
    /// Its issuer (RFC 2253), in ASCII.
    pub issuer: Box<str>,
    der: Box<[u8]>,
    escaped: OnceCell<Box<str>>,
}

/// The result of verifying a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateVerdict {
    /// It is valid, and of an authority that is trusted.
    Verified,
    /// No authority that is trusted has signed it.
    UnknownAuthority,
    /// It is not valid, and why.
    Failed(&'static str),
}

impl ShownCertificate {
    /// A certificate in DER, whose names are not known yet.
    pub fn new(verdict: CertificateVerdict, der: &[u8]) -> Self {
        ShownCertificate {
            der: der.into(),
            ..ShownCertificate::unread(verdict)
        }
    }

    /// A certificate of which nothing is told but the verdict.
    pub fn unread(verdict: CertificateVerdict) -> Self {
        ShownCertificate {
            verdict,
            subject: Box::default(),
            common_names: Box::default(),
            issuer: Box::default(),
            der: Box::default(),
            escaped: OnceCell::new(),
        }
    }

    /// It in PEM, percent-encoded but for what is unreserved (RFC 3986, section 2.3), written once
    /// for all requests; empty where nothing is told of it.
    pub fn escaped(&self) -> &str {
        self.escaped.get_or_init(|| match self.der.is_empty() {
            true => Box::default(),
            false => escape(&pem(&self.der)).into(),
        })
    }
}

fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in STANDARD.encode(der).as_bytes().chunks(LINE_BYTES) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{CertificateVerdict, ShownCertificate};

    #[test]
    fn a_certificate_is_told_as_one_line_of_escaped_pem() {
        let shown = ShownCertificate::new(CertificateVerdict::Verified, &[0xfb; 50]);
        let expected = format!(
            "-----BEGIN%20CERTIFICATE-----%0A{}%0A%2B%2Fs%3D%0A-----END%20CERTIFICATE-----%0A",
            "%2B%2Fv7".repeat(16)
        );
        assert_eq!(shown.escaped(), expected);
        let unread = ShownCertificate::unread(CertificateVerdict::Failed("x"));
        assert_eq!(unread.escaped(), "");
    }
}
