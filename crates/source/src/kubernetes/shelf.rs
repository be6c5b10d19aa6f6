//! Secrets of one namespace that have a label: listed, written one by one, and followed as they
//! change. For a controller that keeps many things, each for itself.
//!
//! Every write rests on the version that was read or written last, so that of two writers one
//! learns of the other.

mod follow;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use self::follow::{ShelfNews, ShelfWatch};

use super::client::{CallError, Client, Form};
use super::core::Failure;
use super::own::Texts;
use super::path::escape;

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Secrets that one page of a list has: an answer is bounded, and one of them may have 100 KiB.
const PAGE_ITEMS: u32 = 50;

/// Secrets that one page of names and versions has.
const PAGE_NAMES: u32 = 500;

/// The Secrets of a namespace that have a label. Cheap to clone.
#[derive(Clone)]
pub struct Shelf {
    client: Client,
    namespace: Arc<str>,
    label: (&'static str, &'static str),
    /// The type of those that are created.
    kind: &'static str,
}

/// A Secret as it was read. Its values have no way to be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Shelved {
    /// Its name.
    pub name: Arc<str>,
    /// Its values; one that is no text is left out.
    pub texts: Texts,
    /// Its resourceVersion, which a write rests on.
    pub version: Box<str>,
}

impl std::fmt::Debug for Shelved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shelved({} at {})", self.name, self.version)
    }
}

impl Shelf {
    /// The Secrets of a namespace that have this label.
    pub fn new(client: Client, namespace: &str, label: (&'static str, &'static str)) -> Shelf {
        Shelf {
            client,
            namespace: namespace.into(),
            label,
            kind: "Opaque",
        }
    }

    /// These Secrets, which are created as those of certificates: with values `tls.crt` and
    /// `tls.key` among others.
    #[must_use]
    pub fn of_certificates(self) -> Shelf {
        let kind = "kubernetes.io/tls";
        Shelf { kind, ..self }
    }

    /// All of them, as they are now.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn all(&self) -> Result<Vec<Shelved>, CallError> {
        Ok(self.list().await?.0)
    }

    /// One of them, if it is there.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn get(&self, name: &str) -> Result<Option<Shelved>, CallError> {
        match self.client.call(Method::GET, &self.path(name), None).await {
            Ok(body) => Ok(Some(parse::<Item>(&body)?.read())),
            Err(CallError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes one that was read in this version have these values, or creates it where there was
    /// none. Other values and labels stay. Returns its version from now on.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if somebody else has written it since, and [`CallError::NotFound`]
    /// if somebody has deleted it; see [`CallError`].
    pub async fn put(
        &self,
        name: &str,
        read: Option<&str>,
        texts: &Texts,
    ) -> Result<Box<str>, CallError> {
        let (label, value) = self.label;
        let data = texts
            .iter()
            .map(|(key, text)| (key.clone(), Value::from(STANDARD.encode(text))));
        let data: Map<String, Value> = data.collect();
        let written = match read {
            None => {
                let object = json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {
                        "namespace": &*self.namespace,
                        "name": name,
                        "labels": { label: value },
                    },
                    "type": self.kind,
                    "data": data,
                });
                let body = Some((JSON, object.to_string().into_bytes()));
                let path = self.collection();
                self.client.call(Method::POST, &path, body).await?
            }
            Some(version) => {
                let patch = json!({
                    "metadata": { "resourceVersion": version, "labels": { label: value } },
                    "data": data,
                });
                let body = Some((MERGE_PATCH, patch.to_string().into_bytes()));
                let path = self.path(name);
                self.client.call(Method::PATCH, &path, body).await?
            }
        };
        Ok(parse::<Item>(&written)?.metadata.resource_version)
    }

    /// Removes one that was read in this version; one that is gone is no error.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if somebody else has written it since; see [`CallError`].
    pub async fn remove(&self, name: &str, read: &str) -> Result<(), CallError> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "resourceVersion": read },
        });
        let body = Some((JSON, options.to_string().into_bytes()));
        let path = self.path(name);
        match self.client.call(Method::DELETE, &path, body).await {
            Ok(_) | Err(CallError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Follows them from now on.
    pub fn follow(&self) -> ShelfWatch {
        ShelfWatch::new(self.clone())
    }

    /// All of them, and the version that the list shows.
    async fn list(&self) -> Result<(Vec<Shelved>, Box<str>), CallError> {
        let first = format!(
            "{}?limit={PAGE_ITEMS}{}",
            self.collection(),
            self.selector()
        );
        let (mut path, mut found) = (first.clone(), Vec::new());
        loop {
            let body = self.client.call(Method::GET, &path, None).await?;
            let page: Page = parse(&body)?;
            found.extend(page.items.into_iter().map(Item::read));
            if page.metadata.next.is_empty() {
                return Ok((found, page.metadata.resource_version));
            }
            path = format!("{first}&continue={}", escape(&page.metadata.next));
        }
    }

    /// The names and versions of all of them, without what is in them, and the version that the
    /// list shows.
    async fn versions(&self) -> Result<(Vec<ItemMetadata>, Box<str>), Failure> {
        let first = format!(
            "{}?limit={PAGE_NAMES}{}",
            self.collection(),
            self.selector()
        );
        let (mut path, mut found) = (first.clone(), Vec::new());
        loop {
            let body = self.client.page(&path, Form::MetadataList).await?;
            let page: Page = parse(&body)?;
            found.extend(page.items.into_iter().map(|item| item.metadata));
            if page.metadata.next.is_empty() {
                return Ok((found, page.metadata.resource_version));
            }
            path = format!("{first}&continue={}", escape(&page.metadata.next));
        }
    }

    /// One of them as it was when a list showed a version; none where it was not there. A single
    /// object cannot be asked for that, so it is a list.
    async fn get_at(&self, name: &str, version: &str) -> Result<Option<Shelved>, Failure> {
        let path = format!(
            "{}?resourceVersion={}&resourceVersionMatch=Exact&fieldSelector=metadata.name%3D{}{}",
            self.collection(),
            escape(version),
            escape(name),
            self.selector()
        );
        let body = self.client.page(&path, Form::Whole).await?;
        let page: Page = parse(&body)?;
        Ok(page.items.into_iter().next().map(Item::read))
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", escape(&self.namespace))
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{}", self.collection(), escape(name))
    }

    /// The end of a query for those with the label.
    fn selector(&self) -> String {
        let (label, value) = self.label;
        format!("&labelSelector={}", escape(&format!("{label}={value}")))
    }
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: Box<str>,
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMetadata {
    #[serde(default)]
    name: Arc<str>,
    resource_version: Box<str>,
}

impl Item {
    fn read(self) -> Shelved {
        let texts = self.data.unwrap_or_default().into_iter();
        let texts = texts.filter_map(|(key, value)| {
            let bytes = STANDARD.decode(value).ok()?;
            Some((key, String::from_utf8(bytes).ok()?))
        });
        Shelved {
            name: self.metadata.name,
            texts: texts.collect(),
            version: self.metadata.resource_version,
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Unreadable> {
    // What serde says may quote a value.
    serde_json::from_slice(body).map_err(|_| Unreadable)
}

/// An answer that is none about Secrets.
struct Unreadable;

impl Unreadable {
    const TEXT: &str = "the answer is none about Secrets";
}

impl From<Unreadable> for CallError {
    fn from(_: Unreadable) -> CallError {
        CallError::Lost(Unreadable::TEXT.to_owned())
    }
}

impl From<Unreadable> for Failure {
    fn from(_: Unreadable) -> Failure {
        Failure::Lost(Unreadable::TEXT.to_owned())
    }
}
