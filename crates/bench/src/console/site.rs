//! Many domains as files.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// The domains of a file and namespace.
const DOMAINS_PER_FILE: u64 = 1_000;

/// The host of a number.
pub(super) fn host(number: u64) -> String {
    format!("d{number:06}.many.example")
}

/// Writes so many domains with one endpoint.
pub(super) fn write(folder: &Path, domains: u64, endpoint: SocketAddr) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    for file in 0..domains.div_ceil(DOMAINS_PER_FILE) {
        let first = file * DOMAINS_PER_FILE;
        let last = domains.min(first + DOMAINS_PER_FILE);
        let mut text = shared(file, endpoint);
        for number in first..last {
            write!(
                text,
                "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\n\
                 metadata: {{name: d{number:06}, namespace: n{file}}}\n\
                 spec: {{rules: [{{host: {}, http: {{paths: [{{path: /, pathType: Prefix, \
                 backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}]}}\n",
                host(number)
            )?;
        }
        std::fs::write(folder.join(format!("{file:05}.yaml")), text)?;
    }
    Ok(())
}

/// The Service of a file's domains and its endpoint.
fn shared(file: u64, endpoint: SocketAddr) -> String {
    let (address, port) = (endpoint.ip(), endpoint.port());
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: n{file}}}\n\
         spec: {{ports: [{{name: web, port: 80}}]}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: web-1, namespace: n{file}, \
         labels: {{kubernetes.io/service-name: web}}}}\n\
         addressType: IPv4\nports: [{{name: web, port: {port}}}]\n\
         endpoints: [{{addresses: [{address}]}}]\n"
    )
}

#[cfg(test)]
mod tests {
    use super::{host, write};

    #[test]
    fn each_domain_is_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1_001, ([127, 0, 0, 1], 1).into()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("00000.yaml").matches("kind: Ingress").count(), 1_000);
        let last = read("00001.yaml");
        assert_eq!(last.matches("kind: Ingress").count(), 1);
        assert!(last.contains(&host(1_000)), "{last}");
    }
}
