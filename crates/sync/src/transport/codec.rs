//! Messages of the server, which are encoded already when they reach gRPC.

use bytes::{BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

use crate::wire::FromProxy;

/// Takes encoded messages of the server, and decodes those of proxies.
pub(super) struct Encoded;

/// Passes on what is encoded.
pub(super) struct PassThrough;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = FromProxy;
    type Encoder = PassThrough;
    type Decoder = <ProstCodec<FromProxy, FromProxy> as Codec>::Decoder;

    fn encoder(&mut self) -> PassThrough {
        PassThrough
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<FromProxy, FromProxy>::raw_decoder(BufferSettings::default())
    }
}

impl Encoder for PassThrough {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}
