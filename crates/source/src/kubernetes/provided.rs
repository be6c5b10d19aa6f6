//! Secrets that are provided beside the objects which ask for them: read as they are, created as a
//! whole, and changed by patches.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::client::{CallError, Client};
use super::path::escape;

/// The path where a process asks for its own rights.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

impl Client {
    /// A Secret as the API server has it, in JSON.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn secret_json(&self, namespace: &str, name: &str) -> Result<Bytes, CallError> {
        self.call(Method::GET, &place(namespace, name), None).await
    }

    /// Creates a Secret, which is given whole.
    ///
    /// # Errors
    /// [`CallError::Conflict`] where there is one already; see [`CallError`].
    pub async fn create_secret_json(
        &self,
        namespace: &str,
        secret: &Value,
    ) -> Result<(), CallError> {
        let body = Some(("application/json", secret.to_string().into_bytes()));
        self.call(Method::POST, &collection(namespace), body)
            .await?;
        Ok(())
    }

    /// Changes a Secret by a merge patch (RFC 7396), which names the version that it rests on.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if somebody else has written it since; see [`CallError`].
    pub async fn patch_secret_json(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), CallError> {
        let body = Some((
            "application/merge-patch+json",
            patch.to_string().into_bytes(),
        ));
        self.call(Method::PATCH, &place(namespace, name), body)
            .await?;
        Ok(())
    }

    /// Whether this process may do something with all Secrets of a namespace.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn may_with_secrets(&self, verb: &str, namespace: &str) -> Result<bool, CallError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "namespace": namespace,
                "verb": verb,
                "resource": "secrets",
            }},
        });
        let body = Some(("application/json", review.to_string().into_bytes()));
        let answer = self.call(Method::POST, REVIEWS, body).await?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|_| CallError::Lost("the answer is no review of rights".to_owned()))?;
        Ok(answer["status"]["allowed"] == true)
    }
}

fn collection(namespace: &str) -> String {
    format!("/api/v1/namespaces/{}/secrets", escape(namespace))
}

fn place(namespace: &str, name: &str) -> String {
    format!("{}/{}", collection(namespace), escape(name))
}
