//! The clock of a machine jumps. Only the wall clock does: nothing may rest on it but what is
//! written for people and how long certificates hold.

use std::path::PathBuf;
use std::process::Command;

use myriad_e2e::cluster::{Cluster, Launch, Servers};

use crate::scene::Scene;

/// Adds to the wall clock of one process as many seconds as a file says.
const SHIFTED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME && result == 0) {
        char seconds[32] = {0};
        int file = open(getenv("SHIFTED_BY"), O_RDONLY);
        if (file >= 0 && read(file, seconds, sizeof seconds - 1) > 0)
            now->tv_sec += atol(seconds);
        close(file);
    }
    return result;
}
"#;

#[tokio::test]
async fn clocks_that_jump_are_not_noticed_by_users() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let clock = Clock::build(cluster);
    // The controller makes its certificate while its clock is fast, and then that is put right.
    clock.shift_by(1800);
    let controller = clock.show(cluster.controller_launch(0)).start();
    cluster.ready(&controller).await;
    clock.shift_by(0);
    cluster.provide_trust("proxy", "myriad").await;
    let proxy = clock.show(cluster.proxy_launch(0, "proxy")).start();
    cluster.ready(&proxy).await;

    let traffic = scene.traffic();
    for (number, seconds) in [1800, -1800, 0].into_iter().enumerate() {
        clock.shift_by(seconds);
        let host = format!("jump-{number}.test");
        scene.apply(&[&host]).await;
        traffic.add(&host).await;
    }
    traffic.go_on(100).await;
    traffic.stop().assert_flawless();
}

/// A wall clock that the processes of a story share.
struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Compiles what shifts it; the program itself is compiled with the same compiler in part.
    fn build(cluster: &Cluster) -> Clock {
        let (source, library) = (cluster.path("clock.c"), cluster.path("clock.so"));
        std::fs::write(&source, SHIFTED_CLOCK).expect("a file");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]);
        compile.arg(&library).arg(&source).arg("-ldl");
        assert!(compile.status().expect("cc starts").success());
        Clock {
            library,
            file: cluster.path("clock"),
        }
    }

    fn shift_by(&self, seconds: i64) {
        let aside = self.file.with_extension("new");
        std::fs::write(&aside, seconds.to_string()).expect("a file");
        std::fs::rename(&aside, &self.file).expect("a rename");
    }

    fn show(&self, launch: Launch) -> Launch {
        let launch = launch.environment("LD_PRELOAD", self.library.display());
        launch.environment("SHIFTED_BY", self.file.display())
    }
}
