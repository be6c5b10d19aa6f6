//! The wire form: protobuf messages, and the checked way between them and values.
//!
//! Each field is described once, in `fields`, and from there follow how it is written and read,
//! the schema that it needs, and its line in `proto/myriad/model/v1/model.proto`.
//!
//! Encoding is deterministic, since versions are hashes of it. Decoding trusts nothing: every
//! field is checked here once, so that the proxy never meets a value that it cannot obey.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[macro_use]
mod describe;
mod codec;
mod fields;
mod proto;
mod raw;
mod shared;

use bytes::Bytes;

use self::codec::Message as _;
use self::proto::Proto;
use self::raw::{Encoder, Raw, Reader};
use crate::Resource;

pub(crate) use fields::{Parts, parts};

/// The newest schema that this build understands: the highest that anything described needs.
pub const SCHEMA: u32 = 5;

/// The field of a resource that says which schema it needs, and its place in the bytes.
const SCHEMA_FIELD: u32 = 1;
const SCHEMA_AT: usize = 1;
const _: () = assert!(SCHEMA < 0x80, "a schema is written as one byte");

/// Why bytes are not a resource that this build can obey.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not protobuf, or cut short.
    #[error("is not a protobuf message of a resource")]
    Malformed,
    /// Needs a newer build.
    #[error("needs schema {needed}, and schema {understood} is understood here")]
    NewerSchema {
        /// The lowest schema that understands it.
        needed: u32,
        /// The newest schema that is understood.
        understood: u32,
    },
    /// A required part is absent.
    #[error("has no {0}")]
    Missing(&'static str),
    /// A part has a value that it must not have.
    #[error("has a {0} that is not valid")]
    Invalid(&'static str),
    /// The body is of another kind than the key.
    #[error("is of another kind than its key says")]
    OtherKind,
    /// A kind that only newer builds know.
    #[error("is of a kind that is not known here, and needs a newer build")]
    NewerKind,
    /// Other bytes than those that the version was computed of.
    #[error("has other bytes than its version says")]
    OtherVersion,
}

/// Appends the encoded form of a resource.
pub fn encode(resource: &Resource, buffer: &mut Vec<u8>) {
    let start = buffer.len();
    let mut out = Encoder::new(buffer);
    Resource::write(resource, &mut out);
    let schema = out.schema();
    if let Some(written) = buffer.get_mut(start + SCHEMA_AT) {
        *written = schema as u8;
    }
}

/// Reads a resource. Byte fields are slices of `bytes`.
///
/// # Errors
/// See [`WireError`].
pub fn decode(bytes: &Bytes) -> Result<Resource, WireError> {
    decode_within(bytes, SCHEMA)
}

/// Reads a resource as a build does that understands no newer schema than this.
///
/// # Errors
/// See [`WireError`].
pub fn decode_within(bytes: &Bytes, schema_max: u32) -> Result<Resource, WireError> {
    let understood = schema_max.min(SCHEMA);
    match schema_of(Reader::new(bytes))? {
        needed if needed > understood => Err(WireError::NewerSchema { needed, understood }),
        _ => Resource::read(Reader::new(bytes)),
    }
}

/// The schema that a resource needs, which is known before anything else of it is read.
fn schema_of(mut fields: Reader<'_>) -> Result<u32, WireError> {
    let mut schema = 0;
    while let Some((field, raw)) = fields.field()? {
        if field == SCHEMA_FIELD {
            schema = Raw::number(raw)? as u32;
        }
    }
    Ok(schema)
}

/// The text of the .proto file.
pub fn proto() -> String {
    let mut proto = Proto::default();
    Resource::describe(&mut proto);
    let newest = proto.newest();
    format!(
        "{PROTO_HEAD}\n// The newest schema is {newest}.\n\n{}",
        proto.text()
    )
}

const PROTO_HEAD: &str = "\
// The resources that proxies obey, as they travel and as they lie on disk.
//
// Written from the descriptions in crates/model/src/wire/fields; do not edit.
//
// A resource's version is a keyed hash of its encoded bytes, so the encoding has to be
// deterministic: no maps, no unknown fields kept, and every list in a defined order.
// Fields are only added, each with a higher schema where an older proxy must not ignore it: that
// is the schema behind a field, which a resource that sets the field needs.
syntax = \"proto3\";

package myriad.model.v1;
";

#[cfg(test)]
mod tests;
