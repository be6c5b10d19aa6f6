//! The reasons that a description of an API server or its credentials cannot be used, in words
//! that repeat nothing of them: a value in the wrong place may be a token or a key.

use std::error::Error;

use kube::client::AuthError;
use kube::config::{InferConfigError, KubeconfigError, LoadDataError};

/// The reason that a kubeconfig cannot be used.
pub(super) fn of_kubeconfig(error: &KubeconfigError) -> String {
    let data = |name: &str, error: &LoadDataError| format!("{name} {}", of_data(error));
    match error {
        KubeconfigError::CurrentContextNotSet => "it names no current context".to_owned(),
        KubeconfigError::LoadContext(_) => "it has no context of the name that is used".to_owned(),
        KubeconfigError::LoadClusterOfContext(_) => {
            "it has no cluster of the name in its context".to_owned()
        }
        KubeconfigError::FindPath => "there is none".to_owned(),
        KubeconfigError::ReadConfig(error, _) => format!("the file cannot be read: {error}"),
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!(
                "it is not as a kubeconfig is written, at line {}, column {}",
                at.line(),
                at.column()
            ),
            None => "it is not as a kubeconfig is written".to_owned(),
        },
        KubeconfigError::MissingClusterUrl | KubeconfigError::ParseClusterUrl(_) => {
            "clusters[].cluster.server is no URL".to_owned()
        }
        KubeconfigError::ParseProxyUrl(_) => "clusters[].cluster.proxy-url is no URL".to_owned(),
        KubeconfigError::LoadCertificateAuthority(error) => data("certificate-authority", error),
        KubeconfigError::LoadClientCertificate(error) => data("client-certificate", error),
        KubeconfigError::LoadClientKey(error) => data("client-key", error),
        KubeconfigError::ParseCertificates(_) => "a certificate in it is no PEM".to_owned(),
        // Files of several kinds, and what only other builds of the library find.
        _ => "its files do not go together".to_owned(),
    }
}

fn of_data(error: &LoadDataError) -> String {
    match error {
        LoadDataError::DecodeBase64(_) => "is no base64".to_owned(),
        LoadDataError::ReadFile(error, _) => format!("is a file that cannot be read: {error}"),
        LoadDataError::NoBase64DataOrFile => "is empty".to_owned(),
    }
}

/// The reason that no API server was found.
pub(super) fn of_inference(error: &InferConfigError) -> String {
    let source = error.source();
    let kubeconfig = source.and_then(|it| it.downcast_ref::<KubeconfigError>());
    let reason = kubeconfig.map_or_else(|| "there is none".to_owned(), of_kubeconfig);
    format!("the kubeconfig cannot be used: {reason}")
}

/// The reason that the certificates or the credentials of a client cannot be used.
pub(super) fn of_identity(error: &kube::Error) -> String {
    of_credentials(error).unwrap_or_else(|| "certificates, keys or a proxy do not hold".to_owned())
}

/// The reason that credentials cannot be used, where an error or one of its causes is about them.
pub(super) fn of_credentials(error: &(dyn Error + 'static)) -> Option<String> {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    let found = causes.find_map(|error| match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Auth(error)) => Some(error),
        _ => error.downcast_ref::<AuthError>(),
    })?;
    Some(match found {
        AuthError::AuthExecStart(error) => {
            format!("the command for credentials cannot be run: {error}")
        }
        AuthError::AuthExecRun { out, .. } => {
            format!("the command for credentials ended with {}", out.status)
        }
        AuthError::ReadTokenFile(error, _) => format!("the token's file cannot be read: {error}"),
        AuthError::InvalidBearerToken(_) => "the token has bytes that no header may".to_owned(),
        AuthError::InvalidBasicAuth(_) => "the password has bytes that no header may".to_owned(),
        _ => "the credentials cannot be used".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Access, Client};

    /// Texts that no error may repeat.
    const SECRET: &str = "s3cr3t";

    /// The error about a kubeconfig of this text.
    async fn told(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, text).unwrap();
        let access = Access::Kubeconfig {
            path,
            context: None,
        };
        let made = Client::new(&access, Vec::<Arc<str>>::new().into()).await;
        let error = with_causes(&made.err().unwrap());
        assert!(error.len() < 1 << 10, "{} bytes: {error:.200}", error.len());
        assert!(!error.contains(SECRET), "{error}");
        error
    }

    /// An error with all its causes.
    fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
        let causes = std::iter::successors(Some(error), |&error| error.source());
        let texts: Vec<String> = causes.map(ToString::to_string).collect();
        texts.join(": ")
    }

    #[tokio::test]
    async fn an_error_says_which_part_is_wrong_and_repeats_nothing_of_it() {
        let long = SECRET.repeat(50_000);
        let cluster = |server: &str, authority: &str, user: &str, context: &str| {
            format!(
                "current-context: {context}\ncontexts:\n- name: a\n  context: {{cluster: c, user: \
                 u}}\nclusters:\n- name: c\n  cluster: {{server: '{server}'{authority}}}\nusers:\n\
                 - name: u\n  user: {user}\n"
            )
        };
        let sound = "https://127.0.0.1:1";
        for (text, wanted) in [
            (format!("users: {long}\n"), "not as a kubeconfig is written"),
            (
                format!("users:\n- {{name: u, user: {long}}}\n"),
                "not as a kubeconfig is written",
            ),
            (cluster(sound, "", "{}", &long), "no context"),
            (
                cluster(&format!("https://{long} x"), "", "{}", "a"),
                "no URL",
            ),
            (
                cluster(sound, ", certificate-authority-data: '%s3cr3t'", "{}", "a"),
                "certificate-authority is no base64",
            ),
            (
                cluster(sound, ", certificate-authority: /none/s3cr3t", "{}", "a"),
                "certificate-authority is a file that cannot be read",
            ),
        ] {
            let told = told(&text).await;
            assert!(told.contains(wanted), "{wanted} is not in: {told}");
        }
        let user = format!("{{tokenFile: /none/{SECRET}}}");
        let token = told(&cluster(sound, "", &user, "a")).await;
        assert!(token.contains("file cannot be read"), "{token}");
    }
}
