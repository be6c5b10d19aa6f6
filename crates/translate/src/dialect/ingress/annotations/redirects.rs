//! Redirects, fixed answers and cross-origin answers.

use myriad_model::Cors;

use super::sheet::Sheet;
use super::{Options, values};

/// The methods that ingress-nginx allows where nothing is said.
const CORS_METHODS: &str = "GET, PUT, POST, DELETE, PATCH, OPTIONS";
const CORS_HEADERS: &str = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,\
                            Cache-Control,Content-Type,Range,Authorization";
const CORS_AGE_S: u32 = 1_728_000;

/// Reads all of them.
pub(super) fn read(sheet: &mut Sheet<'_>, options: &mut Options) {
    let switch = "write \"true\" or \"false\"";
    if let Some(redirect) = sheet.read("ssl-redirect", switch, values::boolean) {
        options.ssl_redirect = redirect;
    }
    if let Some(redirect) = sheet.read("force-ssl-redirect", switch, values::boolean) {
        options.force_ssl_redirect = redirect;
    }
    let expected = "write a path that starts with '/'";
    options.app_root = sheet.read("app-root", expected, values::path);
    options.redirect = read_redirect(sheet);
    options.respond = read_respond(sheet);
    options.cors = sheet
        .flag("enable-cors")
        .then(|| read_cors(sheet))
        .flatten();
}

fn read_redirect(sheet: &mut Sheet<'_>) -> Option<(u16, Box<str>)> {
    let expected =
        "write a URL such as https://www.example.com/ or https://www.example.com$request_uri";
    let temporal = sheet.read_closing("temporal-redirect", expected, values::location);
    let permanent = sheet.read_closing("permanent-redirect", expected, values::location);
    let code = sheet.read(
        "permanent-redirect-code",
        "write 301, 302, 303, 307 or 308",
        |value| match value.parse() {
            Ok(code @ (301 | 302 | 303 | 307 | 308)) => Some(code),
            _ => None,
        },
    );
    let permanent = permanent.map(|location| (code.unwrap_or(301), location));
    temporal.map(|location| (302, location)).or(permanent)
}

fn read_respond(sheet: &mut Sheet<'_>) -> Option<(u16, Box<str>)> {
    let expected = "write a status from 200 to 599";
    let status = sheet.read("respond-status", expected, |value| match value.parse() {
        Ok(status @ 200..=599) => Some(status),
        _ => None,
    });
    let body = sheet.text("respond");
    (status.is_some() || body.is_some())
        .then(|| (status.unwrap_or(200), body.unwrap_or_default().into()))
}

/// The rules for other origins; none where the origins cannot be read: an answer for every origin
/// in their place would open what was meant for some.
fn read_cors(sheet: &mut Sheet<'_>) -> Option<Box<Cors>> {
    let origins = match sheet.text("cors-allow-origin") {
        None => ["*".into()].into(),
        Some(_) => {
            let expected = "write \"*\", or origins such as https://*.example.com";
            sheet.read("cors-allow-origin", expected, values::origins)?
        }
    };
    let list = "write names separated by commas";
    let methods = sheet.read("cors-allow-methods", list, values::tokens);
    let headers = sheet.read("cors-allow-headers", list, values::tokens);
    let exposed = sheet.read("cors-expose-headers", list, values::tokens);
    let switch = "write \"true\" or \"false\"";
    let credentials = sheet.read("cors-allow-credentials", switch, values::boolean);
    let age = "write a number of seconds";
    let age = sheet.read("cors-max-age", age, |value| value.parse().ok());
    Some(Box::new(Cors {
        origins,
        methods: methods.unwrap_or_else(|| CORS_METHODS.into()),
        headers_allowed: headers.unwrap_or_else(|| CORS_HEADERS.into()),
        headers_exposed: exposed.unwrap_or_default(),
        credentials: credentials.unwrap_or(sheet.text("cors-allow-credentials").is_none()),
        age_max_s: age.unwrap_or(CORS_AGE_S),
        origin_patterns: Box::default(),
        forwards_unmatched: false,
        echoes_wildcards: false,
        exposes_in_preflights: false,
    }))
}
