//! Directories and roots that are swapped by links, as kubelet does with a mounted ConfigMap.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{World, one_file, service};

/// A ConfigMap as kubelet mounts it, in its `version`.
fn publish(mount: &Path, version: u16, names: &[&str]) {
    let data = format!("..2026_{version}");
    fs::create_dir(mount.join(&data)).expect("a directory");
    for name in names {
        let file = mount.join(&data).join(format!("{name}.yaml"));
        fs::write(file, service(name, version)).expect("a file");
    }
    symlink(&data, mount.join("..data_tmp")).expect("a link");
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).expect("a rename");
    for name in names {
        let link = mount.join(format!("{name}.yaml"));
        if fs::symlink_metadata(&link).is_err() {
            symlink(format!("..data/{name}.yaml"), link).expect("a link");
        }
    }
}

#[tokio::test]
async fn a_swap_of_a_mounted_configmap_is_one_batch() {
    let mut world = World::open("", |home| {
        fs::create_dir(home.join("mount")).expect("a directory");
        publish(&home.join("mount"), 1, &["a", "b", "c"]);
    })
    .await;
    world.check(&[("a", 1), ("b", 1), ("c", 1)]);
    let read = world.files_read();

    publish(&world.path("mount"), 2, &["a", "b", "c"]);
    fs::remove_dir_all(world.path("mount/..2026_1")).expect("a removal");
    let batch = world.only_batch().await;
    assert_eq!(batch.changes.len(), 3);
    assert_eq!(
        world.files_read() - read,
        3 + 1,
        "three files and the marker"
    );
    world.check(&[("a", 2), ("b", 2), ("c", 2)]);

    publish(&world.path("mount"), 3, &["a", "b"]);
    world.remove("mount/c.yaml");
    world.batches().await;
    while world.ports.contains_key("c") {
        world.next().await;
    }
    world.check(&[("a", 3), ("b", 3)]);
}

#[tokio::test]
async fn a_swap_of_a_linked_directory_is_one_batch() {
    let mut world = World::open("root", |home| {
        for (version, names) in [(1, ["a", "b"]), (2, ["a", "c"])] {
            let directory = home.join(format!("v{version}/sub"));
            fs::create_dir_all(&directory).expect("a directory");
            for name in names {
                let text = service(name, version);
                fs::write(directory.join(format!("{name}.yaml")), text).expect("a file");
            }
        }
        fs::create_dir(home.join("root")).expect("a directory");
        symlink("../v1", home.join("root/current")).expect("a link");
    })
    .await;
    world.check(&[("a", 1), ("b", 1)]);
    symlink("../v2", world.path("root/.next")).expect("a link");
    world.rename("root/.next", "root/current");
    world.only_batch().await;
    world.check(&[("a", 2), ("c", 2)]);
    let read = world.files_read();
    world.write("v1/sub/a.yaml", &service("a", 9));
    assert!(world.batches().await.is_empty());
    assert_eq!(
        world.files_read() - read,
        1,
        "the old target is watched no more, so only the marker is read"
    );
    world.write("v2/sub/a.yaml", &service("a", 3));
    world.only_batch().await;
    world.check(&[("a", 3), ("c", 2)]);
}

#[tokio::test]
async fn the_root_may_be_a_link_that_is_swapped() {
    let mut world = World::open("current/sub", |home| {
        for version in [1, 2] {
            let directory = home.join(format!("v{version}/sub"));
            fs::create_dir_all(&directory).expect("a directory");
            fs::write(directory.join("a.yaml"), service("a", version)).expect("a file");
        }
        symlink("v1", home.join("current")).expect("a link");
    })
    .await;
    world.check(&[("a", 1)]);
    symlink("v2", world.path("next")).expect("a link");
    world.rename("next", "current");
    world.next().await;
    world.check(&[("a", 2)]);
    world.write("v2/sub/a.yaml", &service("a", 3));
    world.next().await;
    world.check(&[("a", 3)]);
}

#[tokio::test]
async fn a_root_that_is_moved_away_keeps_its_objects_and_may_return() {
    let mut world = World::open("root", |home| {
        fs::create_dir(home.join("root")).expect("a directory");
        one_file(&home.join("root"));
    })
    .await;
    world.rename("root", "elsewhere");
    world.next().await;
    assert_eq!(world.ports.len(), 1);
    assert_eq!(world.findings["root"].len(), 1);
    world.write("elsewhere/a.yaml", &service("a", 2));
    world.rename("elsewhere", "root");
    while world.ports["a"] != 2 || !world.findings.is_empty() {
        world.next().await;
    }
    world.write("root/a.yaml", &service("a", 3));
    world.next().await;
    world.check(&[("a", 3)]);
}
