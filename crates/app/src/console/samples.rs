//! Samples of a metric, read from the text that a scraper gets.

/// The most labels of a sample that are read.
const LABELS_MAX: usize = 64;

/// A sample.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    labels: Vec<(String, String)>,
    /// Its value.
    pub(super) value: f64,
}

impl Sample {
    /// The value of a label; empty where it has none.
    pub(super) fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

/// The samples of a metric of a name.
pub(super) fn samples(text: &str, name: &'static str) -> impl Iterator<Item = Sample> {
    named(text, move |known| known == name).map(|(_, sample)| sample)
}

/// The samples of all metrics whose names are wanted, each with its name.
pub(super) fn named(
    text: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&str, Sample)> {
    text.lines().filter_map(move |line| {
        let (name, rest) = line.split_at_checked(line.find(['{', ' '])?)?;
        if !is_wanted(name) {
            return None;
        }
        let sample = match rest.strip_prefix('{') {
            Some(labels) => read(labels)?,
            None => Sample {
                labels: Vec::new(),
                value: rest.strip_prefix(' ')?.parse().ok()?,
            },
        };
        Some((name, sample))
    })
}

/// Labels behind their brace, and the value.
fn read(text: &str) -> Option<Sample> {
    let (mut labels, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(value) = rest.strip_prefix("} ") {
            let value = value.split(' ').next()?.parse().ok()?;
            return Some(Sample { labels, value });
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (value, behind) = unquote(quoted)?;
        if labels.len() < LABELS_MAX {
            labels.push((name.to_owned(), value));
        }
        rest = behind;
    }
}

/// A text behind its quote, and what follows its end.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::samples;

    #[test]
    fn samples_are_read_with_their_labels_whatever_these_hold() {
        let text = "# HELP a b\na_total 3\na_total_b 4\n\
                    a_total{b=\"c\",d=\"e\\\"}\\\\,\\n\"} 2.5\na_total{b=\"\n# EOF\n";
        let found: Vec<_> = samples(text, "a_total").collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].value, found[0].label("b")), (3.0, ""));
        assert_eq!((found[1].value, found[1].label("b")), (2.5, "c"));
        assert_eq!(found[1].label("d"), "e\"}\\,\n");
    }
}
