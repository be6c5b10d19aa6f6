//! Annotations that ask for what is so anyway, which is nothing to warn of.

/// A switch that is off, or a limit that is none, as people write it.
const OFF: &[&str] = &["off", "false", "0", ""];

/// Names, and the values by which they ask for what is so anyway. Bodies are streamed both ways
/// and never written to disk, and an unset limit is none.
const SETTLED: [(&str, &[&str]); 21] = [
    ("connection-proxy-header", &["keep-alive", ""]),
    ("custom-http-errors", &[""]),
    ("default-backend", &[""]),
    ("enable-modsecurity", OFF),
    ("enable-opentelemetry", OFF),
    ("enable-opentracing", OFF),
    ("enable-owasp-core-rules", OFF),
    ("enable-rewrite-log", OFF),
    ("from-to-www-redirect", OFF),
    ("http2-push-preload", OFF),
    ("limit-connections", OFF),
    ("limit-rate", OFF),
    ("limit-rate-after", OFF),
    ("mirror-target", &[""]),
    ("proxy-buffering", OFF),
    ("proxy-http-version", &["1.1"]),
    ("proxy-max-temp-file-size", OFF),
    ("proxy-request-buffering", OFF),
    ("server-alias", &[""]),
    ("service-upstream", OFF),
    ("ssl-passthrough", OFF),
];

/// Whether an annotation asks for what is so anyway.
pub(super) fn is_settled(name: &str, value: &str) -> bool {
    let value = value.trim();
    let found = SETTLED.binary_search_by_key(&name, |(known, _)| known);
    found.is_ok_and(|at| {
        let (_, values) = SETTLED[at];
        values.iter().any(|known| known.eq_ignore_ascii_case(value))
    })
}

#[cfg(test)]
mod tests {
    use super::{SETTLED, is_settled};

    #[test]
    fn what_is_so_anyway_is_told_by_name_and_value() {
        assert!(SETTLED.is_sorted_by_key(|(name, _)| name));
        assert!(is_settled("proxy-buffering", "off") && is_settled("proxy-buffering", " Off "));
        assert!(!is_settled("proxy-buffering", "on") && !is_settled("proxy-buffer", "off"));
        assert!(is_settled("ssl-passthrough", "false") && !is_settled("ssl-passthrough", "true"));
        assert!(!is_settled("limit-rate", "100") && is_settled("limit-rate", "0"));
    }
}
