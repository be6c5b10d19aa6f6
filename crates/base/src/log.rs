//! Human logs on standard error.

mod libraries;
mod panics;
pub mod sparse;
pub mod suppressed;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use libraries::FewOfLibraries;

/// The levels that a filter may name alone.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging. `filter` is a level or a list of `target=level`, as in `info,myriad=debug`.
/// Every line has a time; colours are for terminals, unless `NO_COLOR` is set. Of lines of
/// libraries and of panics there are few in a time.
///
/// # Errors
/// The text of the filter that could not be read; logging then runs at level `info`.
pub fn start(filter: &str) -> Result<(), String> {
    let parsed = parse(filter);
    let failure = parsed.as_ref().err().cloned();
    let filter = parsed.unwrap_or_else(|_| EnvFilter::new(quiet("info")));
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    // A second start, as in tests that run several processes' worth in one, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(!is_plain && std::io::stderr().is_terminal())
        .with_target(false)
        .finish()
        .with(FewOfLibraries::default())
        .try_init();
    panics::bound();
    failure.map_or(Ok(()), Err)
}

/// Reads a filter. A word alone must be a level: the library would take any other for a module
/// whose lines are wanted, and so silence all the rest.
fn parse(filter: &str) -> Result<EnvFilter, String> {
    let words = filter.split(',').map(str::trim);
    let is_alone = |word: &&str| !word.is_empty() && !word.contains(['=', '[', ']', '{', '}']);
    let mut alone = words.filter(is_alone);
    if let Some(word) = alone.find(|word| !LEVELS.iter().any(|it| it.eq_ignore_ascii_case(word))) {
        return Err(format!(
            "{word:?} is not one of {} and not TARGET=LEVEL",
            LEVELS.join(", ")
        ));
    }
    EnvFilter::try_new(quiet(filter)).map_err(|error| error.to_string())
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

    #[test]
    fn a_word_that_is_no_level_is_an_error_and_not_silence() {
        for filter in ["verbose", "info,verbose", "myriad=verbose", "a=b=c"] {
            assert!(parse(filter).is_err(), "{filter}");
        }
        let problem = parse("verbose").unwrap_err();
        assert!(
            problem.contains("\"verbose\" is not one of off, error"),
            "{problem}"
        );
        for filter in [
            "info",
            "WARN",
            "off",
            "info,myriad=debug",
            "warn,h2=debug",
            "",
        ] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
    }
}
