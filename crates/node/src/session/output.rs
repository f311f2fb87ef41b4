//! Encoded replies that are not written yet. A very large value in them is not copied, because
//! a copy would hold up everything else that its thread does.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use resp::{Protocol, Reply};

use crate::answer::Answer;

/// Minimum bytes of a value that is not copied.
pub(super) const SHARED_BYTES_MIN: usize = 256 << 10;

#[derive(Default)]
pub(super) struct Output {
    /// The bytes that are written before the buffer, in order. None is empty.
    parts: VecDeque<Bytes>,
    parts_bytes: usize,
    buffer: BytesMut,
}

impl Output {
    pub fn len(&self) -> usize {
        self.parts_bytes + self.buffer.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes to write first; none if the output is empty.
    pub fn front(&self) -> &[u8] {
        self.parts.front().map_or(&self.buffer, |part| part)
    }

    /// Removes the first `bytes` of the front. An empty output holds no memory.
    pub fn advance(&mut self, bytes: usize) {
        match self.parts.front_mut() {
            Some(part) => {
                part.advance(bytes);
                self.parts_bytes -= bytes;
                if part.is_empty() {
                    self.parts.pop_front();
                }
            }
            None => self.buffer.advance(bytes),
        }
        if self.is_empty() {
            *self = Output::default();
        }
    }

    /// Reserves memory for `bytes` of small replies, unless some is reserved.
    pub fn reserve_first(&mut self, bytes: usize) {
        if self.buffer.capacity() == 0 {
            self.buffer.reserve(bytes);
        }
    }

    /// Appends the encoded answer.
    pub fn put(&mut self, answer: &Answer, protocol: Protocol) {
        match answer {
            Answer::Encoded(bytes) if bytes.len() >= SHARED_BYTES_MIN => self.share(bytes),
            Answer::Reply(Reply::Bulk(bytes)) if bytes.len() >= SHARED_BYTES_MIN => {
                resp::encode_bulk_length(bytes.len(), &mut self.buffer);
                self.share(bytes);
                self.buffer.extend_from_slice(b"\r\n");
            }
            small => small.encode(protocol, &mut self.buffer),
        }
    }

    fn share(&mut self, bytes: &Bytes) {
        let before = self.buffer.split().freeze();
        self.parts_bytes += before.len() + bytes.len();
        self.parts.extend(Some(before).filter(|before| !before.is_empty()));
        self.parts.push_back(bytes.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_are_written_from_where_they_are_and_the_bytes_are_the_same() {
        let large = Bytes::from(vec![b'x'; SHARED_BYTES_MIN]);
        let encoded = Answer::Encoded(large.clone());
        let answers: [Answer; 6] = [
            Reply::OK.into(),
            Reply::Bulk(large.clone()).into(),
            Reply::Int(5).into(),
            encoded.clone(),
            encoded,
            Reply::Array(vec![Reply::Bulk(large.clone())]).into(),
        ];
        let (mut output, mut expected) = (Output::default(), BytesMut::new());
        for answer in &answers {
            output.put(answer, Protocol::Resp2);
            answer.encode(Protocol::Resp2, &mut expected);
            assert_eq!(output.len(), expected.len());
        }
        let (mut written, mut shared) = (Vec::new(), 0);
        while !output.is_empty() {
            shared += usize::from(output.front().as_ptr() == large.as_ptr());
            let bytes = output.front().len().min(100_000);
            written.extend_from_slice(&output.front()[..bytes]);
            output.advance(bytes);
            assert_eq!(output.len(), expected.len() - written.len());
        }
        assert!(written == expected && shared == 3 && output.front().is_empty());
    }
}
