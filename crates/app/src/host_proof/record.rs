//! The texts by which owners of zones say whose a host is, as they are read: by the same words as
//! [`myriad_translate::proof_text`] writes.

use std::collections::BTreeSet;

/// The most texts of one name that are read, and the most bytes of one.
const TEXTS_MAX: usize = 32;
const TEXT_BYTES_MAX: usize = 1_024;

/// The longest name of a namespace.
const NAMESPACE_BYTES_MAX: usize = 63;

/// The namespaces that texts name for an installation.
pub(super) fn named(texts: &[Box<[u8]>], installation: &str) -> BTreeSet<Box<str>> {
    let texts = texts.iter().take(TEXTS_MAX);
    let texts = texts.filter_map(|text| std::str::from_utf8(text).ok());
    let named = texts.filter_map(|text| read(text, installation));
    named.map(Box::from).collect()
}

/// The namespace that one text names for an installation. What else it says is for others.
fn read<'a>(text: &'a str, installation: &str) -> Option<&'a str> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let (mut of, mut namespace) = (None, None);
    for part in text.split(';') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let place = match key.trim() {
            "installation" => &mut of,
            "namespace" => &mut namespace,
            _ => continue,
        };
        // Of two it is not known which is meant.
        if place.replace(value.trim()).is_some() {
            return None;
        }
    }
    let is_ours = of?.eq_ignore_ascii_case(installation);
    namespace.filter(|namespace| is_ours && is_namespace(namespace))
}

fn is_namespace(text: &str) -> bool {
    let is_ours = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=NAMESPACE_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_ours)
}

#[cfg(test)]
mod tests {
    use myriad_translate::proof_text;

    use super::named;

    fn found(texts: &[&str]) -> Vec<String> {
        let texts = texts.iter().map(|text| text.as_bytes().into());
        let texts: Vec<Box<[u8]>> = texts.collect();
        let named = named(&texts, "edge.example");
        named.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_text_names_a_namespace_for_one_installation() {
        let own = proof_text("edge.example", "shop");
        assert_eq!(found(&[&own]), ["shop"]);
        assert_eq!(
            found(&[" Namespace=x", "v=spf1 -all", &own, &own]),
            ["shop"]
        );
        let spaced = "namespace = blog ; installation= EDGE.example; since=2026";
        assert_eq!(found(&[&own, spaced]), ["blog", "shop"]);
        let other = proof_text("other.example", "shop");
        let two = format!("{own};namespace=thief");
        let long = format!("{own};{}", "x".repeat(2_000));
        for text in [
            "",
            "shop",
            "namespace=shop",
            "installation=edge.example",
            "installation=edge.example;namespace=",
            "installation=edge.example;namespace=a/b",
            &other,
            &two,
            &long,
        ] {
            assert!(found(&[text]).is_empty(), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_and_texts_beyond_the_bound_name_nobody() {
        let broken: Box<[u8]> = b"installation=edge.example;namespace=\xff"
            .as_slice()
            .into();
        assert!(named(&[broken], "edge.example").is_empty());
        let own = proof_text("edge.example", "shop");
        let many: Vec<&str> = std::iter::repeat_n("x", 32).chain([&*own]).collect();
        assert!(found(&many).is_empty());
        assert_eq!(found(&many[1..]), ["shop"]);
    }
}
