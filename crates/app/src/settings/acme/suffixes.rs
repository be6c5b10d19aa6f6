//! The file of the list of public suffixes.

use std::path::Path;

use myriad_base::file;
use myriad_pki::acme::{SUFFIXES_BYTES_MAX, Suffixes};

/// The suffixes of a file, which is read once; none of their own where no file is named.
pub(super) fn read(path: Option<&Path>, problems: &mut Vec<String>) -> Suffixes {
    let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else {
        return Suffixes::default();
    };
    let text = file::whole(path, SUFFIXES_BYTES_MAX).map_err(|error| error.to_string());
    let read = text.and_then(|text| Suffixes::parse(&text).map_err(|error| error.to_string()));
    read.unwrap_or_else(|problem| {
        problems.push(format!(
            "--acme-suffixes {}: {problem}; the list is at https://publicsuffix.org/list/",
            path.display()
        ));
        Suffixes::default()
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use myriad_pki::acme::SUFFIXES_BYTES_MAX;

    use super::read;

    #[test]
    fn names_are_counted_by_the_list_of_a_file_and_by_their_shape_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, "// a list\nexample\napp.example\n").unwrap();
        let mut problems = Vec::new();
        let name = "www.shop.app.example";
        let suffixes = read(Some(&path), &mut problems);
        assert_eq!(suffixes.registered_domain(name), "shop.app.example");
        for none in [None, Some(Path::new(""))] {
            let suffixes = read(none, &mut problems);
            assert_eq!(suffixes.registered_domain(name), "app.example");
        }
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn a_file_that_is_no_list_is_told_of_with_its_name_and_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let length = usize::try_from(SUFFIXES_BYTES_MAX).unwrap();
        for (text, told) in [
            ("com\n<html>\n".to_owned(), "line 2"),
            ("\n".to_owned(), "no rule"),
            ("\n".repeat(length), "too large"),
        ] {
            std::fs::write(&path, text).unwrap();
            let mut problems = Vec::new();
            read(Some(&path), &mut problems);
            assert_eq!(problems.len(), 1);
            assert!(problems[0].contains(told), "{problems:?}");
            assert!(problems[0].starts_with("--acme-suffixes /"), "{problems:?}");
        }
        let mut problems = Vec::new();
        read(Some(&path.join("nothing")), &mut problems);
        assert_eq!(problems.len(), 1);
    }
}
