//! The one request of pact that may be large. An entry may be sent in two bytes and takes a hundred in memory, so entries are
//! counted while they are decoded and not afterwards.

use super::enrollment::RegisterNodeRequest;
pub use crate::rest::nodes::BATCH_MAX;
use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, message, skip_field};

const NODES: u32 = 1;

/// `pact.enrollment.BatchRegisterNodesRequest`. One entry more than `BATCH_MAX` is kept to tell that there are too many, and
/// what follows is passed over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchRegisterNodesRequest {
    pub nodes: Vec<RegisterNodeRequest>,
}

impl prost::Message for BatchRegisterNodesRequest {
    fn encode_raw(&self, to: &mut impl BufMut) {
        message::encode_repeated(NODES, &self.nodes, to);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire: WireType,
        from: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            NODES if self.nodes.len() <= BATCH_MAX => {
                message::merge_repeated(wire, &mut self.nodes, from, context)
            }
            _ => skip_field(wire, tag, from, context),
        }
    }

    fn encoded_len(&self) -> usize {
        message::encoded_len_repeated(NODES, &self.nodes)
    }

    fn clear(&mut self) {
        self.nodes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn a_batch_reads_as_it_was_written() {
        let entry = |name: &str| RegisterNodeRequest { node_id: name.to_owned(), hardware_identity: None };
        let batch = BatchRegisterNodesRequest { nodes: vec![entry("a"), entry(""), entry("b")] };
        let text = batch.encode_to_vec();
        assert_eq!(text, b"\x0a\x03\x0a\x01a\x0a\x00\x0a\x03\x0a\x01b");
        // A field that is not known is passed over.
        let with_more = [&text[..], b"\x12\x02xx"].concat();
        assert_eq!(BatchRegisterNodesRequest::decode(&with_more[..]).ok(), Some(batch));
    }

    #[test]
    fn of_too_many_entries_one_too_many_is_kept() {
        let many = b"\x0a\x00".repeat(2_000_000);
        let batch = BatchRegisterNodesRequest::decode(&many[..]).expect("it is well formed");
        assert_eq!(batch.nodes.len(), BATCH_MAX + 1);
        assert!(batch.nodes.capacity() < 2 * BATCH_MAX);
    }
}
