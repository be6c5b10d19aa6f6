//! Gateway API: the definitions of its kinds, its official suite, and images of the programs that
//! the suite leads requests to.
//!
//! The suite names images of a registry. They are made here, of the sources that they are made of
//! there, and go by whatever names the manifests have.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::image::Image;
use crate::tool::{self, Tool};

/// The version of the API and of its suite, which `tools/gateway-api` requires.
pub const GATEWAY_API_VERSION: &str = "1.6.3";

/// The definitions of its kinds with the experimental ones, kept like a program.
pub const GATEWAY_API_DEFINITIONS: Tool = Tool {
    name: "gateway-api-definitions",
    version: GATEWAY_API_VERSION,
};

const MODULE: &str = "sigs.k8s.io/gateway-api";
/// The folder of the definitions, in the module.
const DEFINITIONS: &str = "config/crd/experimental";
const SUITE_MODULE: &str = "sigs.k8s.io/gateway-api/conformance";
/// The folder where both are pinned, below the workspace.
const FOLDER: &str = "tools/gateway-api";

const ISTIO: &str = "istio.io/istio";
const ISTIO_FOLDER: &str = "tools/echo-advanced";
/// The folder of the certificate that Istio's image has, in its module.
const ISTIO_CERTIFICATE: &str = "tests/testdata/certs/dns";

/// Flags by which a program needs no libraries.
const STATIC: [&str; 4] = ["-tags", "netgo,osusergo", "-ldflags", "-s -w"];

/// A program whose image the suite names.
struct Backend {
    /// The image as the suite names it, but for the tag.
    repository: &'static str,
    /// The archive of the image, kept like a program.
    archive: Tool,
    /// Adds all that is in the image; the second folder is for what is built.
    furnish: fn(&Path, &Path, &mut Image) -> Result<()>,
}

const BACKENDS: [Backend; 3] = [
    Backend {
        repository: "registry.k8s.io/gateway-api/echo-basic",
        archive: Tool {
            name: "gateway-api-echo-basic",
            version: GATEWAY_API_VERSION,
        },
        furnish: furnish_echo_basic,
    },
    // Istio's, which has no releases as a module.
    Backend {
        repository: "registry.k8s.io/gateway-api/echo-advanced",
        archive: Tool {
            name: "gateway-api-echo-advanced",
            version: "0.0.0-20260423205519-b01690e6db7d",
        },
        furnish: furnish_echo_advanced,
    },
    Backend {
        repository: "registry.k8s.io/coredns/coredns",
        archive: Tool {
            name: "gateway-api-coredns",
            version: "1.14.1",
        },
        furnish: furnish_coredns,
    },
];

/// An image that the suite needs.
pub struct SuiteImage {
    /// The archive.
    pub archive: PathBuf,
    /// The name of the image in the archive.
    pub name: String,
    /// The names that the manifests of the suite have for it.
    pub names: BTreeSet<String>,
}

/// The file with the definitions, which is fetched where it is not there yet.
///
/// # Errors
/// It cannot be had.
pub fn definitions(root: &Path, cache: &Path) -> Result<PathBuf> {
    GATEWAY_API_DEFINITIONS.provide(cache, |to| {
        let folder = tool::download_go(&root.join(FOLDER), MODULE)?.join(DEFINITIONS);
        fs::create_dir_all(to.join("bin"))?;
        let file = to.join("bin").join(GATEWAY_API_DEFINITIONS.name);
        Ok(fs::write(file, tool::documents(&folder)?)?)
    })
}

/// Builds the program that runs the suite. It is ours around the official tests, so that Go looks
/// each time whether it has changed.
///
/// # Errors
/// It is not built.
pub fn build_suite(root: &Path, to: &Path) -> Result<()> {
    tool::build_go(&root.join(FOLDER), ".", &["-ldflags", "-s -w"], to)
}

/// The images that the suite names, which are made where they are not there yet.
///
/// # Errors
/// One cannot be made, or the suite names one that nothing is known of.
pub fn images(root: &Path, cache: &Path) -> Result<Vec<SuiteImage>> {
    let suite = tool::download_go(&root.join(FOLDER), SUITE_MODULE)?;
    let mut named = BTreeSet::new();
    for folder in ["base", "mesh", "tests"] {
        add_named(&suite.join(folder), &mut named)?;
    }
    let mut images = Vec::new();
    for backend in &BACKENDS {
        let (names, others) = named.into_iter().partition(|name| backend.is_named(name));
        named = others;
        images.push(SuiteImage {
            archive: backend.provide(root, cache)?,
            name: backend.name(),
            names,
        });
    }
    if let Some(name) = named.first() {
        bail!("the suite names the image {name}, and nothing says what is in it");
    }
    Ok(images)
}

/// Adds the images that the manifests of a folder name.
fn add_named(folder: &Path, named: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            add_named(&path, named)?;
        } else if path.extension().is_some_and(|it| it == "yaml") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            named.extend(images_in(&text).map(str::to_owned));
        }
    }
    Ok(())
}

/// The images that a manifest names.
fn images_in(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("- ").unwrap_or(line);
        Some(line.strip_prefix("image:")?.trim())
    })
}

impl Backend {
    fn is_named(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.repository);
        rest.is_some_and(|rest| rest.starts_with(':'))
    }

    /// The name of the image in the archive.
    fn name(&self) -> String {
        format!("myriad.dev/{}:{}", self.archive.name, self.archive.version)
    }

    fn provide(&self, root: &Path, cache: &Path) -> Result<PathBuf> {
        self.archive.provide(cache, |to| {
            let built = tempfile::tempdir()?;
            let mut image = Image::new()?;
            (self.furnish)(root, built.path(), &mut image)?;
            image.write(&self.name(), &to.join("bin").join(self.archive.name))
        })
    }
}

fn furnish_echo_basic(root: &Path, built: &Path, image: &mut Image) -> Result<()> {
    let program = built.join("echo-basic");
    let package = "sigs.k8s.io/gateway-api/conformance/echo-basic";
    tool::build_go(&root.join(FOLDER), package, &STATIC, &program)?;
    image.file(&program, "/echo-basic")?;
    image.set("--user=65532:65532");
    image.set(r#"--entrypoint=["/echo-basic"]"#);
    Ok(())
}

/// The server runs as a user whose connections are led to the proxy, and the suite runs the client
/// in its containers.
fn furnish_echo_advanced(root: &Path, built: &Path, image: &mut Image) -> Result<()> {
    let module = root.join(ISTIO_FOLDER);
    for name in ["client", "server"] {
        let program = built.join(name);
        let package = format!("istio.io/istio/pkg/test/echo/cmd/{name}");
        tool::build_go(&module, &package, &STATIC, &program)?;
        image.file(&program, &format!("/usr/local/bin/{name}"))?;
    }
    let certificate = tool::download_go(&module, ISTIO)?.join(ISTIO_CERTIFICATE);
    image.file(&certificate.join("cert-chain.pem"), "/cert.crt")?;
    image.file(&certificate.join("key.pem"), "/cert.key")?;
    image.set("--user=1338:1338");
    image.set("--env=PATH=/usr/local/bin:/usr/bin:/bin");
    image.set(r#"--entrypoint=["/usr/local/bin/server"]"#);
    Ok(())
}

fn furnish_coredns(root: &Path, built: &Path, image: &mut Image) -> Result<()> {
    let program = built.join("coredns");
    tool::build_go(&root.join("tools/coredns"), "./backend", &STATIC, &program)?;
    image.file(&program, "/coredns")?;
    image.set(r#"--entrypoint=["/coredns"]"#);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_are_required() {
        let required = |go_mod: &str, module: &str, version: &str| {
            let wanted = format!("{module} v{version}");
            let mut lines = go_mod.lines().map(str::trim);
            lines.any(|line| line.strip_prefix("require ").unwrap_or(line) == wanted)
        };
        let go_mod = include_str!("../../../tools/gateway-api/go.mod");
        for module in [MODULE, SUITE_MODULE] {
            assert!(required(go_mod, module, GATEWAY_API_VERSION), "{module}");
        }
        let [_, advanced, coredns] = &BACKENDS;
        let go_mod = include_str!("../../../tools/echo-advanced/go.mod");
        assert!(required(go_mod, ISTIO, advanced.archive.version));
        let go_mod = include_str!("../../../tools/coredns/go.mod");
        let module = "github.com/coredns/coredns";
        assert!(required(go_mod, module, coredns.archive.version));
    }

    #[test]
    fn an_image_is_known_by_its_name_without_the_tag() {
        let text = "containers:\n- image: registry.k8s.io/gateway-api/echo-basic:v1\n\
                    - name: a\n  image:  registry.k8s.io/gateway-api/echo-basic-other:v2\n\
                      imagePullPolicy: Never\n";
        let images: Vec<&str> = images_in(text).collect();
        let [known, other] = images[..] else {
            panic!("{images:?}");
        };
        let is_named = |name| BACKENDS.iter().filter(|it| it.is_named(name)).count();
        assert_eq!((is_named(known), is_named(other)), (1, 0));
    }

    #[test]
    fn images_are_found_in_folders_below() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("mesh")).expect("a folder");
        for (name, text) in [
            ("a.yaml", "image: x:1"),
            ("mesh/b.yaml", "image: y:1"),
            ("c.go", "image: z:1"),
        ] {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let mut named = BTreeSet::new();
        add_named(folder.path(), &mut named).expect("read");
        assert_eq!(named, ["x:1", "y:1"].map(str::to_owned).into());
    }
}
