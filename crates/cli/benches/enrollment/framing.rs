//! gRPC's framing of a message.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A message with the five bytes that gRPC puts before it.
pub fn frame(message: &impl Message) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.encoded_len() + 5);
    framed.put_u8(0);
    framed.put_u32(message.encoded_len() as u32);
    framed.put_slice(&message.encode_to_vec());
    framed.freeze()
}
