//! Answers of authorities, looked at before anybody acts on them: a URL in one is a URL, and short,
//! a document is short, and nobody is told to wait for ever. Whatever does not hold is no answer.

use bytes::Bytes;
use http::header::{HeaderValue, LOCATION, RETRY_AFTER};
use http::{Response, Uri};
use serde_json::Value;

/// The most bytes of a URL of an authority, of which some are kept for as long as their orders.
const URL_BYTES_MAX: usize = 2 << 10;

/// The most bytes of a document: of all but a certificate.
pub(super) const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// The longest that an authority may want to be left alone, in seconds.
pub(super) const RETRY_AFTER_MAX: u64 = 86_400;

/// The members of directories and of orders that are URLs.
const URLS: [&str; 6] = [
    "newNonce",
    "newAccount",
    "newOrder",
    "renewalInfo",
    "finalize",
    "certificate",
];

/// Why something is no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("it leads to what is no URL of at most 2 KiB that begins with https://")]
    Location,
    #[error("its {0} is no URL of at most 2 KiB that begins with https://")]
    Url(&'static str),
    #[error("it answers with a document of more than 64 KiB")]
    TooLong,
    #[error("it answers with a list where an object belongs")]
    List,
}

/// Whether an authority may be asked at a URL.
pub(super) fn is_url(text: &str) -> bool {
    let is_https = |uri: Uri| {
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        uri.scheme_str() == Some("https") && has_host
    };
    text.len() <= URL_BYTES_MAX && text.parse::<Uri>().is_ok_and(is_https)
}

/// An answer that may be acted on.
///
/// # Errors
/// It may not.
pub(super) fn checked(mut response: Response<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
    let headers = response.headers_mut();
    let location = headers.get(LOCATION);
    if location.is_some_and(|it| !it.to_str().is_ok_and(is_url)) {
        return Err(NoAnswer::Location);
    }
    let again = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok());
    // A date has a year of four digits.
    let again = again.and_then(|it| it.trim().parse::<u64>().ok());
    if again.is_some_and(|again| again > RETRY_AFTER_MAX) {
        headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_MAX));
    }
    let body = response.body();
    match body.trim_ascii_start().first() {
        Some(b'[') => return Err(NoAnswer::List),
        Some(b'{') if body.len() > DOCUMENT_BYTES_MAX => return Err(NoAnswer::TooLong),
        Some(b'{') => {
            // Nobody gets anything out of one that cannot be read.
            if let Ok(document) = serde_json::from_slice(body) {
                look_at(&document)?;
            }
        }
        // A certificate, or nothing.
        _ => {}
    }
    Ok(response)
}

fn look_at(document: &Value) -> Result<(), NoAnswer> {
    let is_bad = |url: Option<&Value>| {
        let url = url.and_then(Value::as_str);
        url.is_some_and(|url| !is_url(url))
    };
    if let Some(name) = URLS.into_iter().find(|name| is_bad(document.get(name))) {
        return Err(NoAnswer::Url(name));
    }
    let list = |name: &str| document.get(name).and_then(Value::as_array);
    if list("authorizations").is_some_and(|urls| urls.iter().any(|url| is_bad(Some(url)))) {
        return Err(NoAnswer::Url("authorizations"));
    }
    if list("challenges").is_some_and(|all| all.iter().any(|it| is_bad(it.get("url")))) {
        return Err(NoAnswer::Url("challenges"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Response;
    use serde_json::{Value, json};

    use super::{DOCUMENT_BYTES_MAX, NoAnswer, URL_BYTES_MAX, URLS, checked, is_url};

    const URL: &str = "https://ca.example/1";

    fn of(body: impl Into<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        checked(Response::new(body.into()))
    }

    #[test]
    fn a_url_is_https_parses_and_is_short() {
        let padded = |bytes: usize| format!("{URL}{}", "x".repeat(bytes - URL.len()));
        for good in [URL, "https://[::1]:14000/dir?x=y", &padded(URL_BYTES_MAX)] {
            assert!(is_url(good), "{good}");
        }
        for bad in [
            "",
            "https://no uri/",
            "http://ca.example/1",
            "ftp://ca.example/1",
            "https:///1",
            "/1",
            "ca.example",
            &padded(URL_BYTES_MAX + 1),
        ] {
            assert!(!is_url(bad), "{bad}");
        }
    }

    #[test]
    fn every_url_of_an_answer_is_looked_at_before_anybody_asks_there() {
        for name in URLS {
            let document = |url: &str| of(json!({ name: url }).to_string());
            assert!(document(URL).is_ok(), "{name}");
            let refused = document("https://no uri/").expect_err(name);
            assert_eq!(refused, NoAnswer::Url(name));
        }
        let document = |document: Value| of(document.to_string()).err();
        let order = |url: &str| document(json!({"authorizations": [URL, url]}));
        assert_eq!(order(URL), None);
        assert_eq!(order("x"), Some(NoAnswer::Url("authorizations")));
        let authorization = |url: &str| document(json!({"challenges": [{"url": url}]}));
        assert_eq!(authorization(URL), None);
        assert_eq!(authorization("x"), Some(NoAnswer::Url("challenges")));
        // One that is not there, or is nothing, is not wrong.
        assert_eq!(document(json!({"certificate": null, "meta": {}})), None);
        let leading = |location: &str| {
            let response = Response::builder().header("location", location);
            checked(response.body(Bytes::new()).unwrap()).err()
        };
        assert_eq!(leading(URL), None);
        assert_eq!(leading("/1"), Some(NoAnswer::Location));
        let long = format!("{URL}{}", "x".repeat(URL_BYTES_MAX));
        assert_eq!(leading(&long), Some(NoAnswer::Location));
    }

    #[test]
    fn a_document_is_short_and_an_object_and_a_certificate_may_be_long() {
        let padded = |bytes: usize| format!("{{}}{}", " ".repeat(bytes - 2));
        assert!(of(padded(DOCUMENT_BYTES_MAX)).is_ok());
        let long = of(padded(DOCUMENT_BYTES_MAX + 1));
        assert_eq!(long.err(), Some(NoAnswer::TooLong));
        let hidden = of(format!("\r\n\t {}", padded(DOCUMENT_BYTES_MAX)));
        assert_eq!(hidden.err(), Some(NoAnswer::TooLong));
        assert_eq!(of(" [\"pending\"]").err(), Some(NoAnswer::List));
        assert!(of("-".repeat(DOCUMENT_BYTES_MAX + 1)).is_ok());
        assert!(of("{").is_ok() && of("").is_ok());
    }

    #[test]
    fn nobody_is_told_to_wait_for_longer_than_a_day() {
        let told = |again: &str| {
            let response = Response::builder().header("retry-after", again);
            let response = checked(response.body(Bytes::new()).unwrap()).unwrap();
            let told = response.headers().get("retry-after").unwrap();
            told.to_str().unwrap().to_owned()
        };
        for (said, meant) in [
            ("120", "120"),
            ("86400", "86400"),
            ("86401", "86400"),
            ("18446744073709551615", "86400"),
            (" +18446744073709551615 ", "86400"),
            (
                "Fri, 31 Dec 9999 23:59:59 GMT",
                "Fri, 31 Dec 9999 23:59:59 GMT",
            ),
        ] {
            assert_eq!(told(said).trim(), meant, "{said}");
        }
    }
}
