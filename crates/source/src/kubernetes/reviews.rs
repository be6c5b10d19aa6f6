//! Reviews by the API server of somebody who shows a token: whose it is, and what that one may do.

use http::Method;
use serde_json::{Value, json};

use super::client::{CallError, Client};

/// The path where tokens are reviewed.
const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// The path where rights are.
const RIGHTS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The verdict on somebody who shows a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenVerdict {
    /// Nobody's that the API server knows.
    Unknown,
    /// Somebody's who may not.
    Forbidden,
    /// Somebody's who may.
    Allowed,
}

impl Client {
    /// Whether whoever a token is of may get a path that is no resource's.
    ///
    /// # Errors
    /// See [`CallError`]. No error holds the token.
    pub async fn review(&self, token: &str, path: &str) -> Result<TokenVerdict, CallError> {
        let asked = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token },
        });
        let status = self.ask(TOKENS, &asked).await?;
        if status["authenticated"] != true || !status["user"].is_object() {
            return Ok(TokenVerdict::Unknown);
        }
        let asked = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": rights(&status["user"], path),
        });
        let status = self.ask(RIGHTS, &asked).await?;
        Ok(
            match status["allowed"] == true && status["denied"] != true {
                true => TokenVerdict::Allowed,
                false => TokenVerdict::Forbidden,
            },
        )
    }

    /// The status of a review.
    async fn ask(&self, path: &str, review: &Value) -> Result<Value, CallError> {
        let body = Some(("application/json", review.to_string().into_bytes()));
        let answer = self.call(Method::POST, path, body).await?;
        let mut answer: Value = serde_json::from_slice(&answer)
            .map_err(|_| CallError::Lost("the answer is no review".to_owned()))?;
        let status = answer.get_mut("status").map(Value::take);
        Ok(status.unwrap_or_default())
    }
}

/// The question about the rights of a user, as a review of a token has it.
fn rights(user: &Value, path: &str) -> Value {
    json!({
        "user": user["username"],
        "uid": user["uid"],
        "groups": user["groups"],
        "extra": user["extra"],
        "nonResourceAttributes": { "path": path, "verb": "get" },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::rights;

    #[test]
    fn rights_are_asked_for_the_whole_user() {
        let user = json!({
            "username": "system:serviceaccount:shop:reader",
            "uid": "1",
            "groups": ["system:serviceaccounts"],
            "extra": {"a/b": ["c"]},
        });
        let asked = rights(&user, "/myriad/console");
        assert_eq!(asked["user"], user["username"]);
        assert_eq!(asked["groups"], user["groups"]);
        assert_eq!(asked["extra"], user["extra"]);
        let attributes = json!({"path": "/myriad/console", "verb": "get"});
        assert_eq!(asked["nonResourceAttributes"], attributes);
        // Nothing that is missing becomes a right.
        assert_eq!(rights(&json!({}), "/a")["groups"], json!(null));
    }
}
