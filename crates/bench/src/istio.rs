//! The published setup of Istio's ingress gateway: workspaces, domains and paths by number.

mod certificates;
mod documents;
mod envoy;
mod filters;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use certificates::Authority;

pub use certificates::Keys;
pub use envoy::{
    address, bootstrap, cluster, extend, manager, secured, speak_http2, typed, unlimited,
    virtual_host,
};
pub use filters::{Filters, MESH_FILE, Mode};

/// Settings of `generate`.
#[derive(Clone, Debug, clap::Args)]
pub struct GenerateArgs {
    /// The objects that are generated.
    #[arg(value_enum)]
    shape: Shape,
    #[command(flatten)]
    setup: Setup,
    /// The address of the endpoint of all Services.
    #[arg(long, default_value = "127.0.0.1:9080")]
    endpoint: SocketAddr,
    /// The filters that requests meet beside TLS and the routes.
    #[arg(long, value_enum, default_value = "nofilters")]
    mode: Mode,
    /// The service that is asked for each request, in modes that have one.
    #[arg(long, default_value = "127.0.0.1:9081")]
    authorizer: SocketAddr,
    /// The directory that the objects are written into.
    #[arg(long)]
    out: PathBuf,
    /// Also write, into this file, a static bootstrap of Envoy that serves the same routes.
    #[arg(long)]
    envoy: Option<PathBuf>,
    /// The address that Envoy listens on.
    #[arg(long, default_value = "127.0.0.1:8444")]
    envoy_listen: SocketAddr,
}

/// The objects that can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// A Gateway with TLS and a VirtualService for each domain.
    Istio,
}

/// How large the setup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct Setup {
    /// Workspaces: a namespace with a Service each.
    #[arg(long, default_value_t = 10)]
    pub workspaces: u32,
    /// Domains in each workspace, with a Gateway, a Secret and a VirtualService each.
    #[arg(long, default_value_t = 100)]
    pub domains: u32,
    /// Exact paths of each domain.
    #[arg(long, default_value_t = 100)]
    pub paths: u32,
}

/// One domain of the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    workspace: u32,
    number: u32,
}

/// A certificate chain and its key, in PEM but for what is said.
pub struct Credential {
    /// The leaf in DER.
    leaf: Vec<u8>,
    chain: String,
    key: String,
}

/// A domain with what it takes to serve it.
pub struct Served {
    domain: Domain,
    credential: Credential,
}

/// The first path of every domain.
pub const FIRST_PATH: &str = "/path-0";

/// The Gateway with a server for each domain, as VirtualServices name it.
const SHARED_GATEWAY: &str = "istio-system/edge";

/// Runs the command.
///
/// # Errors
/// A file cannot be written.
pub fn run(args: &GenerateArgs) -> anyhow::Result<()> {
    let Shape::Istio = args.shape;
    let all = args.setup.make()?;
    let filters = Filters::new(args.mode, args.authorizer)?;
    args.setup
        .write_with(&all, args.endpoint, &args.out, &filters)?;
    if let Some(file) = &args.envoy {
        let config = bootstrap(&args.setup, &all, args.envoy_listen, args.endpoint);
        write(file, &serde_json::to_string(&config)?)?;
    }
    Ok(())
}

impl Setup {
    /// Its domains, workspace by workspace.
    pub fn all(&self) -> impl Iterator<Item = Domain> {
        let domains = self.domains;
        (0..self.workspaces)
            .flat_map(move |workspace| (0..domains).map(move |number| Domain { workspace, number }))
    }

    /// Makes a certificate for each domain.
    ///
    /// # Errors
    /// There is no domain or no path, or the cryptographic library refuses.
    pub fn make(&self) -> anyhow::Result<Vec<Served>> {
        self.make_with(Keys::P256)
    }

    /// The same with keys of that kind.
    ///
    /// # Errors
    /// The errors of [`Setup::make`].
    pub fn make_with(&self, keys: Keys) -> anyhow::Result<Vec<Served>> {
        ensure!(self.workspaces > 0, "there is a workspace");
        ensure!(self.domains > 0 && self.paths > 0, "there is a route");
        let authority = Authority::new(keys)?;
        self.all()
            .map(|domain| Served::new(domain, &authority))
            .collect()
    }

    /// Makes `count` domains that do not exist, spread over the workspaces.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn make_more(&self, count: u32) -> anyhow::Result<Vec<Served>> {
        let authority = Authority::new(Keys::P256)?;
        let more = (0..count).map(|turn| Domain {
            workspace: turn % self.workspaces,
            number: self.domains + turn / self.workspaces,
        });
        more.map(|domain| Served::new(domain, &authority)).collect()
    }

    /// Writes the objects with one Gateway for all, which is the file that is returned.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_shared(
        &self,
        all: &[Served],
        endpoint: SocketAddr,
        to: &Path,
    ) -> anyhow::Result<PathBuf> {
        self.write(&[], endpoint, to)?;
        for served in all {
            write(
                &to.join(served.domain.file()),
                &served.routes(self.paths, true, "/"),
            )?;
        }
        let domains: Vec<_> = all.iter().map(|served| served.domain).collect();
        let gateway = to.join("edge.yaml");
        write(&gateway, &shared_gateway(&domains))?;
        Ok(gateway)
    }

    /// Writes the objects: a folder for each workspace, a file for each domain.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, all: &[Served], endpoint: SocketAddr, to: &Path) -> anyhow::Result<()> {
        self.write_with(all, endpoint, to, &Filters::default())
    }

    /// The same with what a mode adds.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_with(
        &self,
        all: &[Served],
        endpoint: SocketAddr,
        to: &Path,
        filters: &Filters,
    ) -> anyhow::Result<()> {
        for workspace in 0..self.workspaces {
            let folder = to.join(documents::namespace(workspace));
            std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let text = documents::workspace(workspace, endpoint);
            write(&folder.join("service.yaml"), &text)?;
        }
        for served in all {
            let path = to.join(served.domain.file());
            let objects = match filters.is_plain_too {
                true => served.objects_plain_too(self.paths),
                false => served.objects(self.paths),
            };
            write(&path, &filters.dress(objects))?;
        }
        filters.write(to)
    }
}

impl Served {
    fn new(domain: Domain, authority: &Authority) -> anyhow::Result<Served> {
        let credential = authority.sign(&domain.host())?;
        Ok(Served { domain, credential })
    }

    /// Which domain it is.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The leaf of its certificate, in DER.
    pub fn leaf(&self) -> &[u8] {
        &self.credential.leaf
    }

    /// Its certificate, that of the issuer, and its key, in PEM.
    pub fn bundle(&self) -> String {
        format!("{}{}", self.credential.chain, self.credential.key)
    }

    /// Its objects: Gateway, VirtualService and Secret.
    pub fn objects(&self, paths: u32) -> String {
        documents::domain(self, paths, false)
    }

    /// The same with a Gateway that serves it without TLS as well.
    pub fn objects_plain_too(&self, paths: u32) -> String {
        documents::domain(self, paths, true)
    }

    /// Its VirtualService and its Secret, below its own or the shared Gateway; the first path
    /// is rewritten to `first`.
    pub fn routes(&self, paths: u32, is_shared: bool, first: &str) -> String {
        let own = format!("d{}", self.domain.number);
        let gateway = if is_shared { SHARED_GATEWAY } else { &own };
        documents::routes(self, paths, gateway, first)
    }
}

impl Domain {
    /// The host that clients ask for.
    pub fn host(self) -> String {
        format!("d{}.w{}.scale.test", self.number, self.workspace)
    }

    /// The file of its objects, below the directory of the setup.
    pub fn file(self) -> PathBuf {
        let folder = PathBuf::from(documents::namespace(self.workspace));
        folder.join(format!("d{}.yaml", self.number))
    }
}

/// The Gateway that all domains share, with a server for each.
pub fn shared_gateway(domains: &[Domain]) -> String {
    documents::gateway("istio-system", "edge", domains)
}

/// A path of any domain.
pub fn path(number: u32) -> String {
    format!("/path-{number}")
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests;
