//! Which names in a directory hold objects.

use std::sync::Arc;

/// The link whose swap publishes a new version of a mounted ConfigMap or Secret.
pub(crate) const DATA_LINK: &str = "..data";

/// Whether a name is never looked at. Names that begin with a dot are editors' temporary files
/// (`.#x.yaml`, `.x.yaml.swp`), version control, and the inner layout of mounted ConfigMaps,
/// which is read through its visible links.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

/// Whether a file of this name is read. Backups (`x.yaml~`, `x.yaml.bak`, `4913`, `sedAbC123`)
/// end otherwise, so they need no rule of their own.
pub(crate) fn holds_objects(name: &str) -> bool {
    !is_hidden(name)
        && name.rsplit_once('.').is_some_and(|(stem, ending)| {
            !stem.is_empty() && matches!(ending, "yaml" | "yml" | "json")
        })
}

/// Whether the file is read as a stream of JSON values instead of YAML documents.
pub(crate) fn is_json(path: &str) -> bool {
    path.ends_with(".json")
}

/// The last part of a path.
pub(crate) fn last_part(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The path of an entry of a directory.
pub(crate) fn join(directory: &str, name: &str) -> Arc<str> {
    let mut path = String::with_capacity(directory.len() + 1 + name.len());
    path.push_str(directory);
    if !directory.ends_with('/') {
        path.push('/');
    }
    path.push_str(name);
    path.into()
}

/// The owner of a path: the entry of the root that is a directory and that it lies in, or the root
/// for its own files.
pub(crate) fn owner(root: &Arc<str>, path: &str, is_directory: bool) -> Arc<str> {
    let below = path.strip_prefix(&**root);
    let below = below.unwrap_or_default().trim_start_matches('/');
    match below.split_once('/') {
        Some((first, _)) => join(root, first),
        None if is_directory && !below.is_empty() => join(root, below),
        None => root.clone(),
    }
}

/// Whether `path` lies below `directory`, at any depth.
pub(crate) fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| directory.ends_with('/') && !rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_yaml_and_json_files_hold_objects() {
        for name in ["a.yaml", "a.yml", "a.json", "a.b.yaml", "a~.yaml"] {
            assert!(holds_objects(name), "{name}");
        }
        for name in [
            "a.yaml~",
            ".a.yaml",
            ".#a.yaml",
            "#a.yaml#",
            ".a.yaml.swp",
            "4913",
            "sedAbC123",
            "a.yaml.bak",
            "a.txt",
            "yaml",
            ".yaml",
            "..data",
            "a.YAML",
            "",
        ] {
            assert!(!holds_objects(name), "{name}");
        }
    }

    #[test]
    fn a_directory_is_above_its_entries_and_not_above_its_namesakes() {
        assert!(is_below("a/b/c.yaml", "a/b"));
        assert!(is_below("/x", "/"));
        assert!(!is_below("a/bc/c.yaml", "a/b"));
        assert!(!is_below("a/b", "a/b"));
        assert_eq!(&*join("a", "b"), "a/b");
        assert_eq!(&*join("/", "b"), "/b");
    }
}
