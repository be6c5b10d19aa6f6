//! Human logs on standard error.

use tracing_subscriber::EnvFilter;

/// Starts logging. `filter` is a level or a list of `target=level`, as in `info,myriad=debug`.
///
/// # Errors
/// The text of the filter that could not be read; logging then runs at level `info`.
pub fn start(filter: &str) -> Result<(), String> {
    let parsed = EnvFilter::try_new(quiet(filter));
    let failure = parsed.as_ref().err().map(ToString::to_string);
    let filter = parsed.unwrap_or_else(|_| EnvFilter::new(quiet("info")));
    // A second start, as in tests that run several processes' worth in one, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .try_init();
    failure.map_or(Ok(()), Err)
}

/// The filter without the warnings of the HTTP/2 library, which any client can cause as many of
/// as it likes; who names the library in the filter has them.
fn quiet(filter: &str) -> String {
    match filter.contains("h2") {
        true => filter.to_owned(),
        false => format!("h2=error,{filter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_write_no_log_through_a_library() {
        let filter = EnvFilter::try_new(quiet("info,myriad=debug")).unwrap();
        assert_eq!(filter.to_string(), "myriad=debug,h2=error,info");
        let asked = EnvFilter::try_new(quiet("warn,h2=debug")).unwrap();
        assert_eq!(asked.to_string(), "h2=debug,warn");
        assert!(EnvFilter::try_new(quiet("loud=very=much")).is_err());
    }
}
