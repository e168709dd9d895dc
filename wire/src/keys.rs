//! The keys of one stream, and frames sealed with them.
//!
//! A sealed frame is a counter, a kind, a payload and a tag: HMAC-SHA256 over all before it. Each direction has a key of
//! its own, so that a frame sent back to its maker has a wrong tag. Both sides count, and nothing but the next number is
//! taken: a frame cannot be sent again, left out or moved.

use bytes::Bytes;
use ring::{hkdf, hmac};

use crate::secret::{LENGTH, Secret};

/// Counter and kind.
const HEAD: usize = 9;
/// The tag.
const TAG: usize = 32;
/// What sealing adds to a payload.
pub(crate) const OVERHEAD: usize = HEAD + TAG;

/// What is in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// JSON.
    Message,
    /// Nothing: a sign of life of an agent.
    Beat,
    /// The counter of the newest frame that the controller has taken.
    Acknowledgement,
    /// Why this side ends the stream.
    Close,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Message, Self::Beat, Self::Acknowledgement, Self::Close];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// A frame on its way out. In the handshake it is a payload alone.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) head: Option<[u8; HEAD]>,
    pub(crate) payload: Bytes,
    pub(crate) tag: Option<hmac::Tag>,
}

impl Frame {
    /// One of the handshake.
    pub(crate) fn plain(payload: Bytes) -> Self {
        Self { head: None, payload, tag: None }
    }
}

/// What two sides have told each other in the open.
pub(crate) struct Greeting<'a> {
    /// Version of this protocol.
    pub(crate) protocol: u32,
    /// Version of the program.
    pub(crate) version: &'a str,
    /// Random bytes of the agent.
    pub(crate) agent: [u8; LENGTH],
    /// Random bytes of the controller.
    pub(crate) controller: [u8; LENGTH],
}

/// The keys of one stream.
pub(crate) struct Keys {
    greeting: Vec<u8>,
    prove_agent: hmac::Key,
    prove_controller: hmac::Key,
    up: hmac::Key,
    down: hmac::Key,
}

/// Ring gives no more than this many bytes of a derived key; we ask for one hash.
pub(crate) struct TooLong;

impl Keys {
    /// They depend on the secret and on the random bytes of both sides, so that nothing of another stream fits.
    pub(crate) fn derive(secret: &Secret, greeting: &Greeting<'_>) -> Result<Self, TooLong> {
        let root = secret.extract(&[greeting.agent, greeting.controller].concat());
        let key = |label: &[u8]| -> Result<hmac::Key, TooLong> {
            let info = [label];
            let bytes: hkdf::Okm<'_, hmac::Algorithm> =
                root.expand(&info, hmac::HMAC_SHA256).map_err(|_| TooLong)?;
            Ok(hmac::Key::from(bytes))
        };
        let mut said = greeting.protocol.to_be_bytes().to_vec();
        said.extend_from_slice(greeting.version.as_bytes());
        Ok(Self {
            prove_agent: key(b"titan-wire proof of the agent")?,
            prove_controller: key(b"titan-wire proof of the controller")?,
            up: key(b"titan-wire frames of the agent")?,
            down: key(b"titan-wire frames of the controller")?,
            greeting: said,
        })
    }

    pub(crate) fn proof_of_agent(&self) -> hmac::Tag {
        hmac::sign(&self.prove_agent, &self.greeting)
    }

    pub(crate) fn proof_of_controller(&self) -> hmac::Tag {
        hmac::sign(&self.prove_controller, &self.greeting)
    }

    pub(crate) fn is_agent(&self, proof: &[u8]) -> bool {
        hmac::verify(&self.prove_agent, &self.greeting, proof).is_ok()
    }

    pub(crate) fn is_controller(&self, proof: &[u8]) -> bool {
        hmac::verify(&self.prove_controller, &self.greeting, proof).is_ok()
    }

    /// For the agent.
    pub(crate) fn of_agent(self) -> (Sealer, Opener) {
        (Sealer::new(self.up), Opener::new(self.down))
    }

    /// For the controller.
    pub(crate) fn of_controller(self) -> (Sealer, Opener) {
        (Sealer::new(self.down), Opener::new(self.up))
    }
}

/// Seals what one side sends. Frames count from 1: 0 is the handshake.
pub(crate) struct Sealer {
    key: hmac::Key,
    last: u64,
}

impl Sealer {
    fn new(key: hmac::Key) -> Self {
        Self { key, last: 0 }
    }

    /// The counter of the last frame.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn seal(&mut self, kind: Kind, payload: Bytes) -> Frame {
        self.last += 1;
        let mut head = [0; HEAD];
        head[..HEAD - 1].copy_from_slice(&self.last.to_be_bytes());
        head[HEAD - 1] = kind as u8;
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&head);
        context.update(&payload);
        Frame { head: Some(head), payload, tag: Some(context.sign()) }
    }
}

/// Why a frame is not what the other side has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Forged {
    #[error("a frame of {0} bytes is too short to be one")]
    Short(usize),
    #[error("the tag of a frame is wrong: somebody has changed or made it on the way")]
    Tag,
    #[error("frame {came} came where {due} was due: somebody repeats, moves or withholds frames")]
    Order { came: u64, due: u64 },
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
}

/// Opens what the other side sends.
pub(crate) struct Opener {
    key: hmac::Key,
    last: u64,
}

impl Opener {
    fn new(key: hmac::Key) -> Self {
        Self { key, last: 0 }
    }

    /// The counter of the last frame.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn open(&mut self, frame: &Bytes) -> Result<(Kind, Bytes), Forged> {
        let end = frame.len().checked_sub(TAG).filter(|end| *end >= HEAD);
        let Some(end) = end else { return Err(Forged::Short(frame.len())) };
        hmac::verify(&self.key, &frame[..end], &frame[end..]).map_err(|_| Forged::Tag)?;
        let mut counter = [0; HEAD - 1];
        counter.copy_from_slice(&frame[..HEAD - 1]);
        let (came, due) = (u64::from_be_bytes(counter), self.last + 1);
        if came != due {
            return Err(Forged::Order { came, due });
        }
        self.last = due;
        let code = frame[HEAD - 1];
        let kind = Kind::from_code(code).ok_or(Forged::Kind(code))?;
        Ok((kind, frame.slice(HEAD..end)))
    }
}
