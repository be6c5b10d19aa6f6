//! The names of a workload. Certificates of the mesh state them beside the identity, so that peers
//! can report them.
//!
//! They are written by the signer, who knows the workload's Pod, and are believed as far as the
//! certificate is. They name, and never admit: policies look at the identity alone.

/// The names that a workload goes by; empty where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadNames {
    /// The object that runs it, a Deployment for instance.
    pub workload: Box<str>,
    /// Its label `app`.
    pub app: Box<str>,
    /// Its label `version`.
    pub version: Box<str>,
    /// The service that it is part of, as Istio calls it canonical.
    pub service: Box<str>,
    /// The revision of that.
    pub revision: Box<str>,
}

/// The tag of a text in DER.
const UTF8_STRING: u8 = 0x0c;

impl WorkloadNames {
    /// The extension of certificates that holds them: an arc below 2.25, where nobody has to
    /// register, and never critical, so that a peer that does not know it ignores it.
    pub const OID: [u64; 3] = [2, 25, 0x6d79_7269_6164_0001];

    /// The longest name in bytes; a longer one counts as none.
    pub const NAME_BYTES_MAX: usize = 253;

    /// The content of the extension: the names as lines of one text.
    pub fn to_der(&self) -> Vec<u8> {
        let names = [
            &self.workload,
            &self.app,
            &self.version,
            &self.service,
            &self.revision,
        ];
        let lines = names.map(|name| if is_name(name) { &**name } else { "" });
        let text = lines.join("\n");
        let mut der = vec![UTF8_STRING];
        // At most 5 x 253 bytes and 4 line ends, so two bytes hold any length.
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        match length.to_be_bytes() {
            [0, low @ ..0x80] => der.push(low),
            [0, low] => der.extend([0x81, low]),
            both => {
                der.push(0x82);
                der.extend(both);
            }
        }
        der.extend(text.as_bytes());
        der
    }

    /// Reads the content of an extension; `None` where it is something else.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (UTF8_STRING, rest) = der.split_first().map(|(tag, rest)| (*tag, rest))? else {
            return None;
        };
        let (length, text) = match rest {
            [0x81, length, text @ ..] => (u16::from(*length), text),
            [0x82, high, low, text @ ..] => (u16::from_be_bytes([*high, *low]), text),
            [length @ ..=0x7f, text @ ..] => (u16::from(*length), text),
            _ => return None,
        };
        if usize::from(length) != text.len() {
            return None;
        }
        let mut lines = std::str::from_utf8(text).ok()?.split('\n');
        let mut next = || {
            let line = lines.next()?;
            (line.is_empty() || is_name(line)).then(|| Box::from(line))
        };
        let names = WorkloadNames {
            workload: next()?,
            app: next()?,
            version: next()?,
            service: next()?,
            revision: next()?,
        };
        lines.next().is_none().then_some(names)
    }
}

/// Whether a text may be a name: it becomes a label, and must not end a line.
fn is_name(text: &str) -> bool {
    text.len() <= WorkloadNames::NAME_BYTES_MAX && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::WorkloadNames;

    fn names(workload: &str) -> WorkloadNames {
        WorkloadNames {
            workload: workload.into(),
            app: "cart".into(),
            version: "v1".into(),
            service: "cart".into(),
            revision: "v1".into(),
        }
    }

    #[test]
    fn names_come_out_as_they_went_in() {
        let longest = "a".repeat(WorkloadNames::NAME_BYTES_MAX);
        // DER has one form for each length: in itself, in one byte behind it, or in two.
        let middle = "a".repeat(150);
        for (name, header) in [("cart-v1", 23), (&middle, 0x81), (&longest, 0x82)] {
            let der = names(name).to_der();
            assert_eq!(der[1], header);
            assert_eq!(WorkloadNames::from_der(&der), Some(names(name)));
        }
        let none = WorkloadNames::default();
        assert_eq!(WorkloadNames::from_der(&none.to_der()), Some(none));
    }

    #[test]
    fn what_is_no_name_is_none() {
        for bad in ["a\nb", "a\u{7f}", &"a".repeat(254)] {
            let read = WorkloadNames::from_der(&names(bad).to_der());
            assert_eq!(read, Some(names("")), "{bad:?}");
        }
        let good = names("cart").to_der();
        for at in 0..good.len() {
            assert_eq!(WorkloadNames::from_der(&good[..at]), None);
        }
        let mut more = good;
        more.extend(b"\nx");
        assert_eq!(WorkloadNames::from_der(&more), None);
        more[1] += 2;
        assert_eq!(WorkloadNames::from_der(&more), None, "a line too many");
    }
}
