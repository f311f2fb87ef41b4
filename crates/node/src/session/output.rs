//! Encoding of replies into a session's output.

use resp::{Protocol, Reply};
use types::{Output, SHARED_BYTES_MIN};

use super::{Session, OUTPUT_BYTES_MAX};
use crate::answer::Answer;

impl<R> Session<R> {
    /// Allows an output buffer of `bytes`, if that is more than a session has by itself.
    pub fn allow_output(&mut self, bytes: usize) {
        self.output_bytes_max = bytes.max(OUTPUT_BYTES_MAX);
    }
}

/// Appends the encoded answer. Very large values are not copied.
pub(super) fn put(output: &mut Output, answer: &Answer, protocol: Protocol) {
    match answer {
        Answer::Encoded(bytes) => output.put(bytes),
        Answer::Reply(Reply::Bulk(bytes)) if bytes.len() >= SHARED_BYTES_MIN => {
            resp::encode_bulk_length(bytes.len(), output.buffer());
            output.put(bytes);
            output.buffer().extend_from_slice(b"\r\n");
        }
        small => small.encode(protocol, output.buffer()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};

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
            put(&mut output, answer, Protocol::Resp2);
            answer.encode(Protocol::Resp2, &mut expected);
            assert_eq!(output.len(), expected.len());
        }
        let (mut written, mut shared) = (Vec::new(), 0);
        while !output.is_empty() {
            shared += usize::from(output.front().as_ptr() == large.as_ptr());
            written.extend_from_slice(output.front());
            output.advance(output.front().len());
        }
        assert!(written == expected && shared == 3);
    }
}
