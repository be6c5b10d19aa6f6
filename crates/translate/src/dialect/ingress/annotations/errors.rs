//! Errors of endpoints that pages of another Service take the place of.

use std::collections::BTreeSet;

use super::Options;
use super::sheet::Sheet;

/// The name of the annotation that says whose pages.
pub(crate) const BACKEND: &str = "default-backend";

/// The name of the annotation that says which errors.
const STATUSES: &str = "custom-http-errors";

/// Errors and whose pages take their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    /// The statuses.
    pub statuses: BTreeSet<u16>,
    /// The Service.
    pub service: Box<str>,
    /// Its port; none for the usual one.
    pub port: Option<u16>,
}

/// Reads all of it. One of the annotations alone means nothing.
pub(super) fn read(sheet: &mut Sheet<'_>, options: &mut Options) {
    let has_statuses = sheet.text(STATUSES).is_some();
    let has_backend = sheet.text(BACKEND).is_some();
    let expected = match has_backend {
        true => "write statuses from 400 to 599, separated by commas",
        false => "name the Service that has the pages in the annotation default-backend",
    };
    let statuses = sheet.read(STATUSES, expected, |text| {
        statuses(text).filter(|_| has_backend)
    });
    let expected = match has_statuses {
        true => "write the name of a Service, or such as errors:8080",
        false => "name statuses in the annotation custom-http-errors: it means nothing without",
    };
    let backend = sheet.read(BACKEND, expected, |text| {
        backend(text).filter(|_| has_statuses)
    });
    let errors = statuses.zip(backend);
    options.errors = errors.map(|(statuses, (service, port))| {
        Box::new(Errors {
            statuses,
            service,
            port,
        })
    });
}

fn statuses(text: &str) -> Option<BTreeSet<u16>> {
    let all = text.split(',').map(|part| part.trim().parse().ok());
    let all: BTreeSet<u16> = all.collect::<Option<_>>()?;
    let is_error = |status: &u16| (400..=599).contains(status);
    all.iter().all(is_error).then_some(all)
}

fn backend(text: &str) -> Option<(Box<str>, Option<u16>)> {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port.parse().ok().filter(|port| *port > 0)?)),
        None => (text, None),
    };
    let mut bytes = name.bytes();
    let is_name =
        bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    (is_name && !name.is_empty()).then(|| (name.into(), port))
}

#[cfg(test)]
mod tests {
    use super::{backend, statuses};

    #[test]
    fn statuses_are_of_errors_and_backends_are_services() {
        let read = |text| statuses(text).map(|all| all.into_iter().collect::<Vec<_>>());
        assert_eq!(read("503, 404,404"), Some(vec![404, 503]));
        for text in ["", "200", "404,", "404;503", "600"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(backend("errors"), Some(("errors".into(), None)));
        assert_eq!(backend("errors:81"), Some(("errors".into(), Some(81))));
        for text in ["", "a.b", "a/b", "a:0", "a:b"] {
            assert_eq!(backend(text), None, "{text}");
        }
    }
}
