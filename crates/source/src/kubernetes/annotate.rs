//! Annotations of our own on objects of tenants.

use http::Method;
use myriad_api::ObjectKey;
use myriad_base::clock;
use serde_json::json;

use super::client::{CallError, Client};
use super::lease::Claim;
use super::path;

/// How often an object is read again because somebody else wrote it meanwhile.
const ATTEMPTS_MAX: u32 = 5;

impl Client {
    /// Gives an object an annotation, while `claim` holds: that which `decide` says for the object
    /// as it is read, in JSON; none leaves it as it is. Returns whether anything was written.
    ///
    /// # Errors
    /// See [`CallError`]; [`CallError::Conflict`] if others write it all the time.
    pub async fn annotate(
        &self,
        claim: &Claim,
        key: &ObjectKey,
        (name, decide): (&str, impl Fn(&[u8]) -> Option<String>),
    ) -> Result<bool, CallError> {
        let namespace = Some(key.namespace()).filter(|it| !it.is_empty());
        let collection = self.collection(key.kind, namespace);
        let object = format!("{collection}/{}", path::escape(key.name()));
        for _ in 0..ATTEMPTS_MAX {
            if !claim.holds(clock::now()) {
                return Ok(false);
            }
            let read = self.call(Method::GET, &object, None).await?;
            let Some(value) = decide(&read) else {
                return Ok(false);
            };
            let known: serde_json::Value = serde_json::from_slice(&read)
                .map_err(|_| CallError::Lost("the answer is not what the API promises".into()))?;
            let patch = json!({"metadata": {
                "resourceVersion": known["metadata"]["resourceVersion"],
                "annotations": {name: value},
            }});
            // Reading took time: ask again, directly before the write.
            if !claim.holds(clock::now()) {
                return Ok(false);
            }
            let body = patch.to_string().into_bytes();
            let body = Some(("application/merge-patch+json", body));
            match self.call(Method::PATCH, &object, body).await {
                Ok(_) => return Ok(true),
                Err(CallError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Conflict)
    }
}
