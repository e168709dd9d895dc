//! How controller and agent come to know each other.
//!
//! ```text
//! agent       Hello      versions, random bytes
//! controller  Challenge  random bytes, proof
//! agent       Proof      proof
//! controller             the first sealed frame: acknowledgement of 0
//! ```
//!
//! A proof is a tag under a key of that side, from the secret and the random bytes of both. The controller proves first, so
//! that an agent tells nobody else anything.

use std::time::Instant;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tonic::{Code, Status, Streaming};

use crate::PROTOCOL;
use crate::keys::{Greeting, Keys, Kind, Opener};
use crate::mailbox::Mailbox;
use crate::secret::{LENGTH, Secret, from_hex, random, to_hex};

#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) nonce: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Challenge {
    pub(crate) nonce: String,
    pub(crate) proof: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Proof {
    pub(crate) proof: String,
}

/// Why there is no stream.
pub(crate) struct Refusal {
    /// What to tell the other side.
    pub(crate) code: Code,
    /// In words that both sides can use.
    pub(crate) why: String,
    /// Whether it is the connection that failed, and not the other side that is the wrong one.
    pub(crate) broken: bool,
}

impl Refusal {
    fn wrong(code: Code, why: impl Into<String>) -> Self {
        Self { code, why: why.into(), broken: false }
    }

    fn broken(why: String) -> Self {
        Self { code: Code::Unavailable, why, broken: true }
    }

    pub(crate) fn status(&self) -> Status {
        Status::new(self.code, self.why.clone())
    }
}

/// The side of the controller.
pub(crate) async fn as_controller(
    incoming: &mut Streaming<Bytes>,
    mailbox: &Mailbox,
    secret: &Secret,
    version: &str,
) -> Result<Opener, Refusal> {
    let hello: Hello = listen(incoming).await?;
    check_versions(&hello, version)?;
    let agent = nonce_of(&hello.nonce)?;
    let controller = new_nonce()?;
    let keys = derive(secret, version, agent, controller)?;
    let proof = to_hex(keys.proof_of_controller().as_ref());
    say(mailbox, &Challenge { nonce: to_hex(&controller), proof })?;
    let proof: Proof = listen(incoming).await.map_err(|refusal| match refusal.broken {
        true => Refusal::broken("it left when it saw our proof: it has another secret".to_owned()),
        false => refusal,
    })?;
    if !from_hex(&proof.proof).is_some_and(|proof| keys.is_agent(&proof)) {
        return Err(another_secret("the agent"));
    }
    let (sealer, opener) = keys.of_controller();
    mailbox.unlock(sealer);
    mailbox.acknowledge(0);
    Ok(opener)
}

/// The side of an agent.
pub(crate) async fn as_agent(
    incoming: &mut Streaming<Bytes>,
    mailbox: &Mailbox,
    secret: &Secret,
    version: &str,
    nonce: [u8; LENGTH],
) -> Result<Opener, Refusal> {
    let challenge: Challenge = listen(incoming).await?;
    let keys = derive(secret, version, nonce, nonce_of(&challenge.nonce)?)?;
    if !from_hex(&challenge.proof).is_some_and(|proof| keys.is_controller(&proof)) {
        return Err(another_secret("the controller"));
    }
    let proof = to_hex(keys.proof_of_agent().as_ref());
    mailbox.greeted(Instant::now());
    say(mailbox, &Proof { proof })?;
    let welcome = next(incoming).await?;
    let (sealer, mut opener) = keys.of_agent();
    match opener.open(&welcome) {
        Ok((Kind::Acknowledgement, _)) => {}
        Ok((kind, _)) => {
            let why = format!("the controller began with {kind:?}");
            return Err(Refusal::wrong(Code::Unauthenticated, why));
        }
        Err(forged) => return Err(Refusal::wrong(Code::Unauthenticated, forged.to_string())),
    }
    mailbox.unlock(sealer);
    Ok(opener)
}

/// What an agent says first.
pub(crate) fn hello(mailbox: &Mailbox, version: &str) -> Result<[u8; LENGTH], Refusal> {
    let nonce = new_nonce()?;
    let hello = Hello { protocol: PROTOCOL, version: version.to_owned(), nonce: to_hex(&nonce) };
    say(mailbox, &hello)?;
    Ok(nonce)
}

fn check_versions(hello: &Hello, version: &str) -> Result<(), Refusal> {
    let Hello { protocol, version: other, .. } = hello;
    let why = if *protocol != PROTOCOL {
        format!(
            "the controller speaks version {PROTOCOL} of the control channel, the agent version {protocol}"
        )
    } else if other != version {
        format!("the controller has version {version}, the agent version {other:?}")
    } else {
        return Ok(());
    };
    let why = format!("{why}: install the same version of titan-tpu on all hosts");
    Err(Refusal::wrong(Code::FailedPrecondition, why))
}

fn another_secret(who: &str) -> Refusal {
    Refusal::wrong(Code::Unauthenticated, format!("{who} has another secret: it is of another run"))
}

fn derive(
    secret: &Secret,
    version: &str,
    agent: [u8; LENGTH],
    controller: [u8; LENGTH],
) -> Result<Keys, Refusal> {
    let greeting = Greeting { protocol: PROTOCOL, version, agent, controller };
    Keys::derive(secret, &greeting)
        .map_err(|_| Refusal::wrong(Code::Internal, "no keys can be derived"))
}

fn new_nonce() -> Result<[u8; LENGTH], Refusal> {
    random().map_err(|why| Refusal::wrong(Code::Internal, why))
}

fn nonce_of(text: &str) -> Result<[u8; LENGTH], Refusal> {
    from_hex(text).ok_or_else(|| Refusal::wrong(Code::InvalidArgument, "no nonce was sent"))
}

fn say(mailbox: &Mailbox, what: &impl Serialize) -> Result<(), Refusal> {
    let bytes = serde_json::to_vec(what)
        .map_err(|error| Refusal::wrong(Code::Internal, error.to_string()))?;
    mailbox.plain(bytes);
    Ok(())
}

async fn listen<T: DeserializeOwned>(incoming: &mut Streaming<Bytes>) -> Result<T, Refusal> {
    let frame = next(incoming).await?;
    serde_json::from_slice(&frame).map_err(|error| {
        Refusal::wrong(Code::InvalidArgument, format!("this is not how titan-tpu begins: {error}"))
    })
}

async fn next(incoming: &mut Streaming<Bytes>) -> Result<Bytes, Refusal> {
    match incoming.message().await {
        Ok(Some(frame)) => Ok(frame),
        Ok(None) => Err(Refusal::broken("it ended the handshake".to_owned())),
        Err(status) => Err(refused(&status)),
    }
}

/// What a status of the other side, or of the connection, means in a handshake.
pub(crate) fn refused(status: &Status) -> Refusal {
    let why = words(status);
    match status.code() {
        // These are ours; a connection that breaks has others.
        code @ (Code::Unauthenticated
        | Code::FailedPrecondition
        | Code::InvalidArgument
        | Code::OutOfRange
        | Code::Unimplemented) => Refusal::wrong(code, why),
        _ => Refusal::broken(why),
    }
}

/// The innermost cause: what is around it says only that something failed.
pub(crate) fn words(status: &Status) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}
