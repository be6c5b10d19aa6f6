//! Processes that act as a service account, as pods do, instead of as the cluster's owner.

use std::path::PathBuf;

use super::Cluster;

impl Cluster {
    /// Writes a kubeconfig that has a token of this account and reaches the API at this URL.
    ///
    /// # Panics
    /// Where there is no such account.
    pub async fn kubeconfig_of(&self, namespace: &str, account: &str, server: &str) -> PathBuf {
        let own = self.kubectl(&["config", "view", "--output=json"]).await;
        let own: serde_json::Value = serde_json::from_str(&own).expect("JSON");
        let line = ["create", "token", account, "--namespace", namespace];
        let token = self.kubectl(&line).await;
        let authority = &own["clusters"][0]["cluster"]["certificate-authority"];
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "story",
                "cluster": {"server": server, "certificate-authority": authority},
            }],
            "users": [{"name": account, "user": {"token": token.trim()}}],
            "contexts": [{"name": "story", "context": {"cluster": "story", "user": account}}],
            "current-context": "story",
        });
        let path = self.path(&format!("{namespace}.{account}.kubeconfig"));
        std::fs::write(&path, kubeconfig.to_string()).expect("a file");
        path
    }

    /// The address of the API from every place in the cluster's network.
    pub fn server(&self) -> &'static str {
        "https://10.244.255.1:6443"
    }
}
