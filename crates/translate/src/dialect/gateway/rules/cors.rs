//! Which other origins may ask.

use myriad_api::gateway::CorsFilter;
use myriad_model::{Cors, is_token};

use super::fault::{CORRECT, RuleFaults};
use crate::resolve::sendable::authority;

/// The longest list of names that clients are told.
const LIST_BYTES_MAX: usize = 8 << 10;

/// The wildcard of origins, methods and header fields.
const ANY: &str = "*";

/// Reads a filter.
pub(super) fn read(written: &CorsFilter, field: &str, faults: &mut RuleFaults) -> Cors {
    let credentials = written.allow_credentials.unwrap_or(false);
    let mut origins: Vec<Box<str>> = Vec::with_capacity(written.allow_origins.len());
    for (at, origin) in written.allow_origins.iter().enumerate() {
        match read_origin(origin) {
            Some(origin) => origins.push(origin.into()),
            None => faults.omit(
                format!("{field}.allowOrigins[{at}]"),
                "is no origin, so it allows none",
                "write an origin such as https://a.example.com or https://*.example.com, or *",
            ),
        }
    }
    let mut list = |written: &[Box<str>], end: &str| {
        let field = format!("{field}.{end}");
        joined(written, &field, faults)
    };
    Cors {
        origins: origins.into(),
        methods: list(&written.allow_methods, "allowMethods"),
        headers_allowed: list(&written.allow_headers, "allowHeaders"),
        headers_exposed: match credentials {
            // To clients with credentials it is the name of a header field.
            true => list(&without_any(&written.expose_headers), "exposeHeaders"),
            false => list(&written.expose_headers, "exposeHeaders"),
        },
        credentials,
        age_max_s: u32::try_from(written.max_age().as_secs()).unwrap_or(u32::MAX),
        origin_patterns: Box::default(),
        forwards_unmatched: false,
        echoes_wildcards: true,
        exposes_in_preflights: true,
    }
}

fn without_any(names: &[Box<str>]) -> Vec<Box<str>> {
    names
        .iter()
        .filter(|name| ***name != *ANY)
        .cloned()
        .collect()
}

/// An origin as clients name it: without a port that is the usual one of its scheme. A wildcard
/// stands for the whole host, or for its first labels.
fn read_origin(text: &str) -> Option<&str> {
    if text == ANY {
        return Some(text);
    }
    let (scheme, named) = text.split_once("://")?;
    let usual = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let is_host = match named.strip_prefix(ANY) {
        Some(rest) => {
            let is_end = rest.is_empty() || rest.starts_with(['.', ':']);
            is_end && authority(&format!("a{rest}")).is_some()
        }
        None => authority(named).is_some_and(|(host, _)| !host.is_empty()),
    };
    (is_host && !named.ends_with(':')).then(|| text.strip_suffix(usual).unwrap_or(text))
}

/// Names as clients are told them, as far as they fit.
fn joined(names: &[Box<str>], field: &str, faults: &mut RuleFaults) -> Box<str> {
    let (mut text, mut beyond) = (String::new(), 0);
    for (at, name) in names.iter().enumerate() {
        if !is_token(name) {
            let message = "is no name that can be sent, so it has no effect";
            faults.omit(format!("{field}[{at}]"), message, CORRECT);
            continue;
        }
        if text.len() + name.len() + 2 > LIST_BYTES_MAX {
            beyond += 1;
            continue;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(name);
    }
    if beyond > 0 {
        faults.omit(
            field,
            format!(
                "is longer than {LIST_BYTES_MAX} bytes, so {beyond} of its names have no effect"
            ),
            "write fewer or shorter ones",
        );
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::{CorsFilter, RouteFilter};
    use myriad_model::Cors;

    use super::super::tests::http_rule;
    use super::{LIST_BYTES_MAX, RuleFaults, read, read_origin};

    fn filter(text: &str) -> CorsFilter {
        let rule = http_rule(&format!("filters: [{{type: CORS, cors: {text}}}]"));
        match rule.filters.first() {
            Some(RouteFilter::Cors(written)) => (**written).clone(),
            other => panic!("{other:?}"),
        }
    }

    fn cors(text: &str) -> Cors {
        let mut faults = RuleFaults::default();
        let cors = read(&filter(text), "f", &mut faults);
        assert!(faults.told().is_empty(), "{text}: {faults:?}");
        cors
    }

    #[test]
    fn a_filter_says_all_that_clients_are_told() {
        let found = cors(
            "{allowOrigins: ['https://www.foo.com', 'https://*.bar.com'], \
             allowMethods: [GET, OPTIONS], allowHeaders: [x-1, X-2], exposeHeaders: [x-3, x-4], \
             allowCredentials: true, maxAge: 3600}",
        );
        let expected = Cors {
            origins: ["https://www.foo.com", "https://*.bar.com"]
                .map(Into::into)
                .into(),
            methods: "GET, OPTIONS".into(),
            headers_allowed: "x-1, X-2".into(),
            headers_exposed: "x-3, x-4".into(),
            credentials: true,
            age_max_s: 3_600,
            origin_patterns: Box::default(),
            forwards_unmatched: false,
            echoes_wildcards: true,
            exposes_in_preflights: true,
        };
        assert_eq!(found, expected);
        let empty = cors("{}");
        assert_eq!((empty.age_max_s, empty.credentials), (5, false));
        assert!(empty.origins.is_empty() && empty.methods.is_empty());
    }

    #[test]
    fn a_wildcard_exposes_nothing_to_clients_with_credentials() {
        let exposed = |credentials: bool| {
            let text = format!("{{exposeHeaders: ['*', x-a], allowCredentials: {credentials}}}");
            cors(&text).headers_exposed
        };
        assert_eq!(&*exposed(false), "*, x-a");
        assert_eq!(&*exposed(true), "x-a");
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host_that_may_be_a_wildcard() {
        for (text, origin) in [
            ("*", "*"),
            ("https://a.example", "https://a.example"),
            ("https://a.example:443", "https://a.example"),
            ("http://a.example:443", "http://a.example:443"),
            ("http://*.a.example:80", "http://*.a.example"),
            ("https://*.a.example:8443", "https://*.a.example:8443"),
            ("https://*", "https://*"),
            ("https://*:8443", "https://*:8443"),
            ("http://192.0.2.1", "http://192.0.2.1"),
        ] {
            assert_eq!(read_origin(text), Some(origin), "{text}");
        }
        for text in [
            "",
            "a.example",
            "ftp://a.example",
            "https://",
            "https://:443",
            "https://a.example:",
            "https://a.example/",
            "https://*a.example",
            "https://**",
            "https://a.*.example",
            "https://a.example\r\nx: y",
            "null",
        ] {
            assert_eq!(read_origin(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_left_out_and_named() {
        let mut faults = RuleFaults::default();
        let written = filter(
            "{allowOrigins: ['https://a', b], allowMethods: ['A B', PUT], allowHeaders: ['x y']}",
        );
        let found = read(&written, "f", &mut faults);
        assert_eq!((found.origins.len(), &*found.methods), (1, "PUT"));
        assert!(found.headers_allowed.is_empty() && faults.dropping().is_none());
        let fields: Vec<&str> = faults.told().iter().map(|it| &*it.field).collect();
        let expected = [
            "f.allowOrigins[1]",
            "f.allowMethods[0]",
            "f.allowHeaders[0]",
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn lists_are_bounded() {
        let names: Vec<Box<str>> = (0..64)
            .map(|at| format!("x-{at:02}-{}", "y".repeat(200)).into())
            .collect();
        let written = CorsFilter {
            allow_headers: names.into(),
            ..CorsFilter::default()
        };
        let mut faults = RuleFaults::default();
        let found = read(&written, "f", &mut faults);
        assert!(found.headers_allowed.len() <= LIST_BYTES_MAX);
        assert_eq!(found.headers_allowed.split(", ").count(), 39);
        let fault = &faults.told()[0];
        assert_eq!(fault.field, "f.allowHeaders");
        assert!(
            fault.message.contains("25 of its names"),
            "{}",
            fault.message
        );
    }
}
