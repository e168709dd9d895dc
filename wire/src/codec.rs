//! Frames as gRPC has them, and the limit of those that come from nobody known.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use http_body::{Body, Frame as HttpFrame, SizeHint};
use hyper::body::Incoming;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::LARGEST_GREETING;
use crate::keys::Frame;

/// Frames are bytes to gRPC: what is in them is ours to check.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameCodec;

/// Most frames have a few dozen bytes, and there is a buffer for each of thousands of streams.
const BUFFERS: (usize, usize) = (1024, 32 * 1024);

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(frame.payload.len() + crate::keys::OVERHEAD);
        if let Some(head) = frame.head {
            out.put_slice(&head);
        }
        out.put_slice(&frame.payload);
        if let Some(tag) = frame.tag {
            out.put_slice(tag.as_ref());
        }
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFERS.0, BUFFERS.1)
    }
}

impl Decoder for FrameCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFERS.0, BUFFERS.1)
    }
}

/// The body of a stream, which ends if one of its first frames is too large. These are the handshake: tonic has one limit
/// for all frames, and makes room for what a frame says is coming.
pub(crate) struct Gate {
    body: Incoming,
    scan: Scan,
}

impl Gate {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, scan: Scan::default() }
    }
}

impl Body for Gate {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<HttpFrame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(context));
        let Some(frame) = frame else { return Poll::Ready(None) };
        let frame = frame?;
        if let Some(data) = frame.data_ref() {
            this.scan.pass(data).map_err(Status::out_of_range)?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// gRPC frames in a handshake, from either side.
const GREETINGS: u8 = 2;
/// A flag, and a length of four bytes.
const PREFIX: usize = 5;

/// Follows frames in bytes that come in any pieces.
#[derive(Debug, Default)]
struct Scan {
    /// Frames whose prefix has passed.
    frames: u8,
    prefix: [u8; PREFIX],
    /// Bytes of `prefix` that are there.
    have: usize,
    /// Bytes of the frame under way that are still to come.
    rest: usize,
}

impl Scan {
    fn pass(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while self.frames < GREETINGS {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            bytes = &bytes[skipped..];
            let Some((first, others)) = bytes.split_first() else { break };
            self.prefix[self.have] = *first;
            self.have += 1;
            bytes = others;
            if self.have == PREFIX {
                self.have = 0;
                self.frames += 1;
                let [_, length @ ..] = self.prefix;
                self.rest = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                if self.rest > LARGEST_GREETING {
                    return Err(format!(
                        "a frame of the handshake has {} bytes; the most is {LARGEST_GREETING}",
                        self.rest
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(lengths: &[usize]) -> Vec<u8> {
        let frame = |length: &usize| {
            let mut bytes = vec![0];
            bytes.extend_from_slice(&u32::try_from(*length).unwrap().to_be_bytes());
            bytes.resize(PREFIX + length.min(&10_000), 7);
            bytes
        };
        lengths.iter().flat_map(frame).collect()
    }

    proptest! {
        #[test]
        fn only_the_first_two_frames_are_limited(
            lengths in prop::collection::vec(0_usize..9000, 1..5),
            piece in 1_usize..5000,
        ) {
            let mut scan = Scan::default();
            let bytes = framed(&lengths);
            let passed = bytes.chunks(piece).try_for_each(|chunk| scan.pass(chunk));
            let small = lengths.iter().take(2).all(|length| *length <= LARGEST_GREETING);
            prop_assert_eq!(passed.is_ok(), small, "{:?}", passed);
        }
    }
}
