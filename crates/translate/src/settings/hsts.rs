//! The demand to come by HTTPS alone: `Strict-Transport-Security` (RFC 6797, section 6.1).

use std::fmt;

/// A wish that browsers come to a host by HTTPS alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hsts {
    /// The time for which they do, in seconds; 0 undoes what they were asked before.
    pub age_max_s: u32,
    /// Whether it holds for all hosts below as well.
    pub includes_subdomains: bool,
    /// Whether makers of browsers may put the host into the lists that these come with.
    pub is_preloaded: bool,
}

impl Hsts {
    /// Reads it as the field has it: `max-age=31536000; includeSubDomains; preload`.
    pub fn parse(text: &str) -> Option<Hsts> {
        let mut age_max_s = None;
        let mut includes_subdomains = false;
        let mut is_preloaded = false;
        for directive in text.split(';').map(str::trim) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            let has_value = name.len() < directive.len();
            match name.to_ascii_lowercase().as_str() {
                "max-age" if age_max_s.is_none() => age_max_s = Some(seconds(value)?),
                "includesubdomains" if !has_value && !includes_subdomains => {
                    includes_subdomains = true;
                }
                "preload" if !has_value && !is_preloaded => is_preloaded = true,
                _ => return None,
            }
        }
        Some(Hsts {
            age_max_s: age_max_s?,
            includes_subdomains,
            is_preloaded,
        })
    }
}

fn seconds(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Hsts {
    /// The value of the field.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "max-age={}", self.age_max_s)?;
        if self.includes_subdomains {
            out.write_str("; includeSubDomains")?;
        }
        if self.is_preloaded {
            out.write_str("; preload")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Hsts;

    #[test]
    fn it_is_read_as_the_field_has_it_and_written_in_one_way() {
        for (text, written) in [
            ("max-age=31536000", Some("max-age=31536000")),
            ("max-age=0", Some("max-age=0")),
            (
                "preload ;MAX-AGE=60;includesubdomains",
                Some("max-age=60; includeSubDomains; preload"),
            ),
            ("", None),
            ("includeSubDomains", None),
            ("max-age=", None),
            ("max-age=+1", None),
            ("max-age=4294967296", None),
            ("max-age=1; max-age=2", None),
            ("max-age=1; preload=no", None),
            ("max-age=1; other", None),
            ("max-age=1;", None),
            ("max-age=1\r\nX: y", None),
        ] {
            let read = Hsts::parse(text).map(|hsts| hsts.to_string());
            assert_eq!(read.as_deref(), written, "{text:?}");
        }
    }
}
