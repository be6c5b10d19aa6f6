use std::os::unix::fs::symlink;

use super::*;

fn list_all(root: &Path) -> (Vec<String>, Vec<String>) {
    let root: Arc<str> = root.display().to_string().into();
    let listing = list(&root, &Limits::default(), &mut |_| Ok(true));
    let below = |path: &Arc<str>| path.replace(&*root, "");
    let mut troubles: Vec<_> = listing
        .troubles
        .iter()
        .map(|(path, _)| below(path))
        .collect();
    troubles.sort();
    (listing.files.iter().map(below).collect(), troubles)
}

#[test]
fn files_are_found_at_any_depth_and_through_links() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    for sub in ["root/a/b", "root/.git", "elsewhere"] {
        fs::create_dir_all(directory.path().join(sub)).expect("directories");
    }
    for file in [
        "root/x.yaml",
        "root/a/b/y.json",
        "root/a/b/y.txt",
        "root/.git/z.yaml",
        "elsewhere/w.yml",
    ] {
        fs::write(directory.path().join(file), "").expect("a file");
    }
    symlink("../elsewhere", root.join("link")).expect("a link");
    symlink("../elsewhere/w.yml", root.join("v.yaml")).expect("a link");
    let expected = ["/a/b/y.json", "/link/w.yml", "/v.yaml", "/x.yaml"];
    assert_eq!(
        list_all(&root),
        (expected.map(String::from).to_vec(), vec![])
    );
}

#[test]
fn links_to_directories_above_are_not_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("a")).expect("a directory");
    fs::create_dir_all(root.join("b")).expect("a directory");
    fs::write(root.join("x.yaml"), "").expect("a file");
    symlink("..", root.join("a/up")).expect("a link");
    symlink("/", root.join("top")).expect("a link");
    symlink("../b", root.join("a/other")).expect("a link");
    symlink("../a", root.join("b/other")).expect("a link");
    let (files, troubles) = list_all(&root);
    assert_eq!(files, ["/x.yaml"]);
    let expected = [
        "/a/other/other",
        "/a/up",
        "/b/other/other",
        "/b/other/up",
        "/top",
    ];
    assert_eq!(troubles, expected);
}

/// Lists a root within limits, in turns. Returns the files and the paths with problems.
fn list_within(
    root: &Path,
    directories_max: usize,
    files_max: usize,
) -> (Vec<String>, Vec<String>) {
    let limits = Limits {
        directories_max,
        files_max,
        ..Limits::default()
    };
    let root: Arc<str> = root.display().to_string().into();
    let listing = list(&root, &limits, &mut |_| Ok(true));
    let below = |path: &Arc<str>| path.replace(&*root, "");
    let troubles = listing.troubles.iter().map(|(path, _)| below(path));
    assert!(listing.directories.len() <= directories_max);
    assert!(listing.files.len() <= files_max);
    (
        listing.files.iter().map(below).collect(),
        troubles.collect(),
    )
}

#[test]
fn an_owner_with_too_many_directories_or_files_keeps_nobody_from_being_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    for number in 0..300 {
        fs::create_dir_all(root.join(format!("evil/{number}"))).expect("a directory");
    }
    for owner in ["aa", "good", "zz"] {
        fs::create_dir(root.join(owner)).expect("a directory");
        fs::write(root.join(owner).join("a.yaml"), "").expect("a file");
    }
    let honest = ["/aa/a.yaml", "/good/a.yaml", "/zz/a.yaml"];
    // It has a quarter of 200, and all would have been more than that.
    let (files, troubles) = list_within(root, 200, 1_000);
    assert_eq!(
        (files, troubles),
        (honest.map(String::from).to_vec(), vec!["/evil".to_owned()])
    );
    fs::remove_dir_all(root.join("evil")).expect("no directory");
    fs::create_dir(root.join("evil")).expect("a directory");
    for number in 0..300 {
        fs::write(root.join(format!("evil/{number}.yaml")), "").expect("a file");
    }
    let (files, troubles) = list_within(root, 200, 200);
    assert_eq!(
        (files.len(), troubles),
        (50 + honest.len(), vec!["/evil".to_owned()])
    );
    assert!(
        honest
            .iter()
            .all(|file| files.iter().any(|found| found == file))
    );
    // Files in the root are the operator's.
    for number in 0..150 {
        fs::write(root.join(format!("{number}.yaml")), "").expect("a file");
    }
    let (files, _) = list_within(root, 200, 1_000);
    assert_eq!(files.len(), 150 + 250 + honest.len());
}

#[test]
fn owners_are_walked_in_turns() {
    let directory = tempfile::tempdir().expect("a directory");
    let root: Arc<str> = directory.path().display().to_string().into();
    for number in 0..1_000 {
        let path = directory.path().join(format!("evil/{number}"));
        fs::create_dir_all(path).expect("a directory");
    }
    for owner in ["aa", "good", "zz"] {
        fs::create_dir(directory.path().join(owner)).expect("a directory");
        fs::write(directory.path().join(owner).join("a.yaml"), "").expect("a file");
    }
    let mut walk = Walk::new(&root, &root, &Limits::default(), Elsewhere::default());
    let mut slices = 0;
    let mut slices_of_honest = None;
    loop {
        // Room for one turn of each of the five: the root and four owners.
        let mut slice = Slice::new(5 * TURN_ENTRIES * ENTRY_BYTES, &|| Duration::ZERO);
        let before = walk.listing.directories.len();
        let is_over = walk.step(&mut slice, &mut |_| Ok(true));
        slices += 1;
        let listed = walk.listing.directories.len() - before;
        assert!(
            listed <= 5 * TURN_ENTRIES,
            "{listed} directories in one slice"
        );
        if walk.listing.files.len() == 3 {
            slices_of_honest.get_or_insert(slices);
        }
        if is_over {
            break;
        }
    }
    assert!(slices > 3, "{slices} slices");
    assert!(
        slices_of_honest.is_some_and(|slices| slices <= 2),
        "{slices_of_honest:?}"
    );
    assert_eq!(walk.into_listing().directories.len(), 1 + 4 + 1_000);
}

#[test]
fn fans_of_links_lead_to_each_directory_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    for from in 0..8 {
        let path = root.join(format!("evil/d{from}"));
        fs::create_dir_all(&path).expect("a directory");
        fs::write(path.join("a.yaml"), "").expect("a file");
        for to in 0..8 {
            symlink(format!("../d{to}"), path.join(format!("l{to}"))).expect("a link");
        }
    }
    let (files, troubles) = list_within(root, 1_000, 1_000);
    assert_eq!((files.len(), troubles.len()), (8, 64));
    // More links than are told of are one problem more.
    for number in 0..200 {
        symlink("d0", root.join(format!("evil/l{number}"))).expect("a link");
    }
    let (files, troubles) = list_within(root, 1_000, 1_000);
    assert_eq!((files.len(), troubles.len()), (8, TROUBLES_MAX + 1));
}

#[test]
fn links_of_an_owner_stay_within_the_root_and_none_lead_to_the_kernel() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    for sub in ["root/evil/own", "elsewhere/sub", "root/good"] {
        let path = directory.path().join(sub);
        fs::create_dir_all(&path).expect("directories");
        fs::write(path.join("a.yaml"), "").expect("a file");
    }
    symlink("../../elsewhere", root.join("evil/out")).expect("a link");
    symlink("../good", root.join("evil/beside")).expect("a link");
    symlink("/proc", root.join("evil/proc")).expect("a link");
    symlink("/sys", root.join("sys")).expect("a link");
    symlink("../elsewhere", root.join("linked")).expect("a link");
    symlink("sub", directory.path().join("elsewhere/inside")).expect("a link");
    let (files, mut troubles) = list_within(&root, 1_000, 1_000);
    troubles.sort();
    let expected = [
        "/evil/beside/a.yaml",
        "/evil/own/a.yaml",
        "/good/a.yaml",
        "/linked/sub/a.yaml",
    ];
    assert_eq!(files, expected);
    let expected = ["/evil/out", "/evil/proc", "/linked/inside", "/sys"];
    assert_eq!(troubles, expected);
}
