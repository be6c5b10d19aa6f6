//! The problems of settings as they are told: a file of settings may say anything, in any length.

use myriad_api::finding::cut;
use myriad_api::one_line;

/// The most problems that are told at once.
const PROBLEMS_MAX: usize = 100;

/// The first problems, each as one line of at most 1 KiB, and how many there are beside them.
pub(crate) fn told(problems: Vec<String>) -> Vec<String> {
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    let first = problems.into_iter().take(PROBLEMS_MAX);
    // Escapes make a text longer, so that it is cut before and behind.
    let mut told: Vec<String> = first.map(|it| cut(one_line(&cut(it)))).collect();
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn a_problem_is_one_line_of_a_kibibyte_and_there_are_a_hundred_at_most() {
        let long = format!(
            "--gateways: name is {}, no name",
            "\u{1b}[2J\n".repeat(100_000)
        );
        let told_long = told(vec![long]).concat();
        assert!(told_long.len() <= 1 << 10, "{} bytes", told_long.len());
        assert!(!told_long.chars().any(char::is_control), "{told_long:?}");
        assert!(told_long.starts_with("--gateways: name is \\u{1b}[2J\\n"));
        assert!(told_long.ends_with("no name"), "{told_long}");

        let many = (0..100).map(|at| at.to_string());
        assert_eq!(told(many.collect()).len(), 100);
        let many = told((0..5_000).map(|at| at.to_string()).collect());
        assert_eq!(
            (many.len(), &*many[99], &*many[100]),
            (101, "99", "and 4900 more")
        );
    }
}
