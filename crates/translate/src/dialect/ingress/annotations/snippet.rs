//! Snippets of nginx configuration: whether all that they say may be left out.

use std::fmt;

/// The longest snippet that is read, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// Directives that restrict nothing: response headers that are added, compression, buffers,
/// timeouts, connections, logs, caches, processes, and zones as long as nothing counts in them.
const HARMLESS: [&str; 102] = [
    "access_log",
    "add_header",
    "add_trailer",
    "aio",
    "brotli",
    "brotli_comp_level",
    "brotli_min_length",
    "brotli_types",
    "charset",
    "chunked_transfer_encoding",
    "client_body_buffer_size",
    "client_body_temp_path",
    "client_body_timeout",
    "client_header_buffer_size",
    "client_header_timeout",
    "default_type",
    "directio",
    "env",
    "error_log",
    "etag",
    "expires",
    "grpc_buffer_size",
    "grpc_connect_timeout",
    "grpc_next_upstream",
    "grpc_next_upstream_timeout",
    "grpc_next_upstream_tries",
    "grpc_read_timeout",
    "grpc_send_timeout",
    "grpc_socket_keepalive",
    "gunzip",
    "gzip",
    "gzip_comp_level",
    "gzip_http_version",
    "gzip_min_length",
    "gzip_proxied",
    "gzip_static",
    "gzip_types",
    "gzip_vary",
    "http2_push_preload",
    "keepalive_disable",
    "keepalive_requests",
    "keepalive_time",
    "keepalive_timeout",
    "large_client_header_buffers",
    "limit_conn_zone",
    "limit_req_zone",
    "lingering_close",
    "lingering_time",
    "lingering_timeout",
    "log_format",
    "log_not_found",
    "log_subrequest",
    "map_hash_bucket_size",
    "map_hash_max_size",
    "more_set_headers",
    "opentelemetry",
    "opentelemetry_operation_name",
    "output_buffers",
    "pcre_jit",
    "postpone_output",
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_cache_path",
    "proxy_connect_timeout",
    "proxy_force_ranges",
    "proxy_headers_hash_bucket_size",
    "proxy_headers_hash_max_size",
    "proxy_http_version",
    "proxy_ignore_client_abort",
    "proxy_limit_rate",
    "proxy_max_temp_file_size",
    "proxy_next_upstream",
    "proxy_next_upstream_timeout",
    "proxy_next_upstream_tries",
    "proxy_read_timeout",
    "proxy_request_buffering",
    "proxy_send_lowat",
    "proxy_send_timeout",
    "proxy_socket_keepalive",
    "proxy_temp_file_write_size",
    "reset_timedout_connection",
    "send_timeout",
    "sendfile",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "server_tokens",
    "tcp_nodelay",
    "tcp_nopush",
    "thread_pool",
    "timer_resolution",
    "types_hash_bucket_size",
    "types_hash_max_size",
    "variables_hash_bucket_size",
    "variables_hash_max_size",
    "worker_cpu_affinity",
    "worker_priority",
    "worker_processes",
    "worker_rlimit_core",
    "worker_rlimit_nofile",
    "worker_shutdown_timeout",
];

/// Fields that `proxy_set_header` may set to these values, which is what the proxy does itself.
const FIELDS: [(&str, &[&str]); 3] = [
    ("connection", &["upgrade", "$connection_upgrade"]),
    ("host", &["$host", "$http_host"]),
    ("upgrade", &["$http_upgrade"]),
];

/// Something in a snippet that may restrict access.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Restricting {
    /// A directive.
    Directive(String),
    /// More than is read.
    Length,
}

impl fmt::Display for Restricting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Restricting::Directive(directive) => write!(f, "has {directive:?}"),
            Restricting::Length => write!(f, "has more than {BYTES_MAX} bytes"),
        }
    }
}

/// The first thing that may not be left out; `None` where all may.
pub(super) fn restricting(text: &str) -> Option<Restricting> {
    match text.len() {
        0..=BYTES_MAX => first_of(text).map(Restricting::Directive),
        _ => Some(Restricting::Length),
    }
}

/// The first words about something that restricts, and about what in a snippet says so.
pub(super) fn told(what: Option<Restricting>) -> String {
    match what {
        Some(what) => format!("{what}, which may restrict access and"),
        None => "may restrict access and".to_owned(),
    }
}

/// The first directive that may not be left out.
fn first_of(text: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = skip_blank(rest);
        if rest.is_empty() {
            return None;
        }
        let mut words: Vec<String> = Vec::new();
        loop {
            rest = skip_blank(rest);
            if let Some(behind) = rest.strip_prefix(';') {
                rest = behind;
                break;
            }
            // A block holds for some requests and not for others, so it says more than it does.
            let Some((word, behind)) = word(rest) else {
                return Some(words.into_iter().next().unwrap_or_else(|| rest_of(rest)));
            };
            words.push(word);
            rest = behind;
        }
        if let Some((name, arguments)) = words.split_first()
            && !is_harmless(name, arguments)
        {
            return Some(shown(name, arguments));
        }
    }
}

fn is_harmless(name: &str, arguments: &[String]) -> bool {
    if name == "proxy_set_header" {
        let [field, value] = arguments else {
            return false;
        };
        return FIELDS.iter().any(|(known, values)| {
            field.eq_ignore_ascii_case(known)
                && values.iter().any(|it| value.eq_ignore_ascii_case(it))
        });
    }
    HARMLESS.binary_search(&name).is_ok()
}

/// A directive as people are told of it: with the field that it is about.
fn shown(name: &str, arguments: &[String]) -> String {
    match arguments.first() {
        Some(field) if name == "proxy_set_header" => format!("{name} {field}"),
        _ => name.to_owned(),
    }
}

/// The character that stands where a word was expected.
fn rest_of(rest: &str) -> String {
    rest.chars().take(1).collect()
}

fn skip_blank(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some(comment) = rest.strip_prefix('#') {
        rest = comment.split_once('\n').map_or("", |(_, behind)| behind);
        rest = rest.trim_start();
    }
    rest
}

/// A word, quoted or plain, and what is behind it; none at a brace, at the end, and where a quote
/// does not end.
fn word(text: &str) -> Option<(String, &str)> {
    let first = text.chars().next()?;
    if let '"' | '\'' = first {
        let mut is_escaped = false;
        for (at, char) in text.char_indices().skip(1) {
            match char {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                _ if char == first => {
                    return Some((text.get(1..at)?.to_owned(), text.get(at + 1..)?));
                }
                _ => {}
            }
        }
        return None;
    }
    let is_end = |char: char| char.is_whitespace() || matches!(char, ';' | '{' | '}');
    // A brace behind a dollar sign is of a variable.
    let mut is_variable = false;
    let end = text.char_indices().scan('\0', |before, (at, char)| {
        let known = std::mem::replace(before, char);
        Some((at, known, char))
    });
    let mut end = end.filter(|(_, before, char)| {
        if *char == '{' && *before == '$' {
            is_variable = true;
            return false;
        }
        if *char == '}' && is_variable {
            is_variable = false;
            return false;
        }
        is_end(*char)
    });
    let at = end.next().map_or(text.len(), |(at, _, _)| at);
    (at > 0).then(|| Some((text.get(..at)?.to_owned(), text.get(at..)?)))?
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, HARMLESS, Restricting, restricting};

    #[test]
    fn the_list_is_sorted() {
        assert!(HARMLESS.is_sorted());
    }

    #[test]
    fn what_adds_and_tunes_may_be_left_out() {
        for text in [
            "",
            "# deny all;\n",
            "add_header X-Frame-Options DENY;",
            "more_set_headers \"X-Frame-Options: deny; x\" 'b: {';\nproxy_read_timeout 5s;",
            "proxy_set_header Upgrade $http_upgrade;proxy_set_header Connection \"upgrade\";",
            "add_header X ${host}; # if (\n gzip on;",
        ] {
            assert_eq!(restricting(text), None, "{text}");
        }
    }

    #[test]
    fn whatever_else_stands_there_is_named() {
        for (text, directive) in [
            ("gzip on; deny all;", "deny"),
            ("Deny all;", "Deny"),
            ("\"deny\" all;", "deny"),
            (
                "proxy_set_header X-Forwarded-User \"\";",
                "proxy_set_header X-Forwarded-User",
            ),
            ("proxy_set_header Host evil;", "proxy_set_header Host"),
            (
                "more_clear_input_headers X-User;",
                "more_clear_input_headers",
            ),
            ("if ($x) { return 301 /login; }", "if"),
            ("rewrite ^ /login;", "rewrite"),
            ("include /etc/x;", "include"),
            ("limit_req zone=a;", "limit_req"),
            ("add_header A b; } location / { deny all;", "}"),
            ("add_header A \"b; deny all;", "add_header"),
            ("add_header A b\ndeny all", "add_header"),
            ("gzip{deny all;}", "gzip"),
        ] {
            let known = Restricting::Directive(directive.to_owned());
            assert_eq!(restricting(text), Some(known), "{text}");
        }
    }

    #[test]
    fn more_than_is_read_may_restrict() {
        let text = |bytes: usize| format!("gzip on;{}", " ".repeat(bytes - 8));
        assert_eq!(restricting(&text(BYTES_MAX)), None);
        let found = restricting(&text(BYTES_MAX + 1)).expect("too long");
        assert_eq!(found, Restricting::Length);
        assert_eq!(found.to_string(), "has more than 65536 bytes");
    }
}
