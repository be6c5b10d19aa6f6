//! Requests to the API server: objects as JSON, over connections that stay open.

use anyhow::{Context, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

/// Requests that are under way at once when many objects are written.
pub const WRITES_MAX: usize = 64;

/// A client of the API server that `KUBECONFIG` names. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
}

impl Api {
    /// A client; nothing is sent yet.
    ///
    /// # Errors
    /// There is no kubeconfig, or it cannot be used.
    pub async fn new() -> anyhow::Result<Api> {
        let config = kube::Config::infer().await?;
        let client = kube::Client::try_from(config)?;
        Ok(Api { client })
    }

    /// Sends a request, and returns what it is answered with.
    ///
    /// # Errors
    /// Any answer but success.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let bytes = match body {
            Some(value) => serde_json::to_vec(value)?,
            None => Vec::new(),
        };
        let answer = self.call_encoded(method, path, bytes).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// The same with a body that was encoded before.
    ///
    /// # Errors
    /// Any answer but success.
    pub async fn call_encoded(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<Vec<u8>> {
        let what = || format!("{method} {path}");
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(&method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .body(Body::from(body))?;
        let answer = self.client.send(request).await.with_context(what)?;
        let (head, body) = answer.into_parts();
        let bytes = body.collect().await.with_context(what)?.to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        let status = head.status;
        ensure!(status.is_success(), "{method} {path}: {status} {text}");
        Ok(bytes.into())
    }

    /// Writes an object to its path.
    ///
    /// # Errors
    /// Any answer but success.
    pub async fn write(&self, write: Write) -> anyhow::Result<()> {
        let body = write.body.unwrap_or_default();
        self.call_encoded(write.method, &write.path, body).await?;
        Ok(())
    }

    /// Does the same for each of many, so many at once.
    ///
    /// # Errors
    /// The first that failed.
    pub async fn for_each<T, F>(
        &self,
        many: impl Iterator<Item = T>,
        work: impl Fn(Api, T) -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let work = many.map(|one| work(self.clone(), one));
        let ended = stream::iter(work).buffer_unordered(WRITES_MAX);
        ended.try_collect::<()>().await
    }

    /// Starts to watch what changes from now on, in a list.
    ///
    /// # Errors
    /// Any answer but success.
    pub async fn watch(&self, list: &str) -> anyhow::Result<Events> {
        let now = format!("{list}?limit=1");
        let now = self.call(Method::GET, &now, None).await?;
        let version = now.pointer("/metadata/resourceVersion");
        let version = version.and_then(Value::as_str);
        let version = version.context("a list has a version")?;
        let path = format!("{list}?watch=1&resourceVersion={version}");
        let request = Request::builder().uri(&path).body(Body::empty())?;
        let answer = self.client.send(request).await?;
        ensure!(answer.status().is_success(), "{path}: {}", answer.status());
        Ok(Events {
            body: answer.into_body(),
            line: Vec::new(),
        })
    }
}

/// One write, ready to be sent.
#[derive(Clone, Debug)]
pub struct Write {
    /// POST, PUT, PATCH of a part that is merged into what is there, or DELETE.
    pub method: Method,
    /// The list of the kind, or the object in it.
    pub path: String,
    /// The object in JSON.
    pub body: Option<Vec<u8>>,
}

/// The events of a watch.
pub struct Events {
    body: Body,
    line: Vec<u8>,
}

impl Events {
    /// Takes the names of the objects that arrive next; `None` at the end.
    ///
    /// # Errors
    /// The connection breaks.
    pub async fn next(&mut self) -> anyhow::Result<Option<Vec<String>>> {
        let objects = self.next_objects().await?;
        let name_of = |object: &Value| {
            let name = object.pointer("/metadata/name")?.as_str()?;
            Some(name.to_owned())
        };
        Ok(objects.map(|objects| objects.iter().filter_map(name_of).collect()))
    }

    /// Takes the objects themselves.
    ///
    /// # Errors
    /// The connection breaks.
    pub async fn next_objects(&mut self) -> anyhow::Result<Option<Vec<Value>>> {
        let Some(frame) = self.body.frame().await else {
            return Ok(None);
        };
        self.line
            .extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
        let Some(end) = self.line.iter().rposition(|&byte| byte == b'\n') else {
            return Ok(Some(Vec::new()));
        };
        let rest = self.line.split_off(end + 1);
        let whole = std::mem::replace(&mut self.line, rest);
        let lines = whole.split(|&byte| byte == b'\n');
        let objects = lines.filter_map(|line| {
            let mut event: Value = serde_json::from_slice(line).ok()?;
            Some(event.get_mut("object")?.take())
        });
        Ok(Some(objects.collect()))
    }
}
