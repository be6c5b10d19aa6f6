//! Human logs on standard error.

use tracing_subscriber::EnvFilter;

/// Starts logging. `filter` is a level or a list of `target=level`, as in `info,myriad=debug`.
///
/// # Errors
/// The text of the filter that could not be read; logging then runs at level `info`.
pub fn start(filter: &str) -> Result<(), String> {
    let parsed = EnvFilter::try_new(filter);
    let failure = parsed.as_ref().err().map(ToString::to_string);
    let filter = parsed.unwrap_or_else(|_| EnvFilter::new("info"));
    // A second start, as in tests that run several processes' worth in one, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .try_init();
    failure.map_or(Ok(()), Err)
}
