//! What a store said, in words for the person who has to put it right.

use std::error::Error as StdError;
use std::io;

use object_store::client::{HttpError, HttpErrorKind};

use crate::Error;
use crate::{Service, Store};

/// Why a store did not give what was asked of it.
#[derive(Debug)]
pub struct Failure {
    problem: String,
    hint: String,
}

impl Failure {
    /// What an error of the client means.
    pub fn of(store: &Store, error: &object_store::Error) -> Self {
        if is_about_credentials(store, error) {
            let problem = format!("no credentials could be got: {}", innermost(error));
            return Self { problem, hint: credentials_hint(store) };
        }
        if let Some(answer) = Answer::in_error(error) {
            return answer.failure(store);
        }
        if chain(error).any(|e| e.to_string().starts_with("Received redirect without LOCATION")) {
            return redirected(store);
        }
        let Some(transport) = chain(error).find_map(|e| e.downcast_ref::<HttpError>()) else {
            let why = innermost(error);
            let problem = format!("the store gave an answer that is not understood: {why}");
            // Google Cloud Storage gives no parts of what it decompresses on the way.
            let hint = if why.contains("non-partial") {
                "if the object has the metadata Content-Encoding, remove that".to_owned()
            } else {
                place_hint(store)
            };
            return Self { problem, hint };
        };
        let host = store.host();
        let problem = match transport.kind() {
            HttpErrorKind::Timeout => format!("the store at {host} does not answer"),
            HttpErrorKind::Connect => {
                format!("the store at {host} cannot be reached: {}", innermost(error))
            }
            _ => format!("the connection to the store at {host} broke: {}", innermost(error)),
        };
        Self { problem, hint: place_hint(store) }
    }

    /// An answer that breaks off again and again.
    pub fn broken_off(store: &Store, why: &str) -> Self {
        let problem =
            format!("the answer of the store at {} broke off again and again: {why}", store.host());
        Self { problem, hint: "check the network, and try again later".to_owned() }
    }

    /// As an error about `name`.
    pub fn into_error(self, name: String) -> Error {
        Error::Store { name, problem: self.problem, hint: self.hint }
    }

    /// As an error of a reader.
    pub fn into_io(self) -> io::Error {
        io::Error::other(format!("{}; {}", self.problem, self.hint))
    }
}

/// What a store answered instead of what was asked.
struct Answer {
    status: u16,
    /// The name of the status.
    reason: String,
    body: String,
}

impl Answer {
    fn in_error(error: &object_store::Error) -> Option<Self> {
        // object_store does not give the status in any other way.
        chain(error).find_map(|e| {
            let text = e.to_string();
            let rest = text.strip_prefix("Server returned non-2xx status code: ")?;
            let (status, body) = rest.split_once(": ").unwrap_or((rest, ""));
            let (code, reason) = status.split_once(' ').unwrap_or((status, ""));
            let reason = reason.trim_end_matches(':').to_owned();
            Some(Self { status: code.parse().ok()?, reason, body: body.to_owned() })
        })
    }

    fn failure(&self, store: &Store) -> Failure {
        let bucket = store.bucket();
        match self.status {
            404 => Failure {
                problem: format!("there is no bucket `{}` at {}", bucket.name, store.host()),
                hint: format!("check its name, and {}", bucket.service.place()),
            },
            401 | 403 => Failure {
                problem: format!("access denied{}", self.said()),
                hint: credentials_hint(store),
            },
            300..=399 => redirected(store),
            429 | 500.. => Failure {
                problem: format!(
                    "the store at {} cannot answer now: {} {}{}",
                    store.host(),
                    self.status,
                    self.reason,
                    self.said()
                ),
                hint: "it was asked several times; try again later".to_owned(),
            },
            _ => Failure {
                problem: format!(
                    "the store at {} refuses: {} {}{}",
                    store.host(),
                    self.status,
                    self.reason,
                    self.said()
                ),
                hint: place_hint(store),
            },
        }
    }

    /// The code and the message in the body. The rest of it may have what was signed, and is not shown.
    fn said(&self) -> String {
        let part = |name: &str| {
            let (_, rest) = self.body.split_once(&format!("<{name}>"))?;
            let (text, _) = rest.split_once(&format!("</{name}>"))?;
            Some(text.chars().take(200).collect::<String>())
        };
        match (part("Code"), part("Message")) {
            (Some(code), Some(message)) => format!(" ({code}: {message})"),
            (Some(text), None) | (None, Some(text)) => format!(" ({text})"),
            (None, None) => String::new(),
        }
    }
}

fn redirected(store: &Store) -> Failure {
    let bucket = store.bucket();
    Failure {
        problem: format!("the bucket `{}` is not at {}", bucket.name, store.host()),
        hint: match bucket.service {
            Service::S3 => "set AWS_REGION to the region of the bucket".to_owned(),
            Service::Google => place_hint(store),
        },
    }
}

fn place_hint(store: &Store) -> String {
    format!("check the network, and {}", store.bucket().service.place())
}

/// Whose credentials were shown, and where others would be looked for.
fn credentials_hint(store: &Store) -> String {
    let service = store.bucket().service;
    if let Some(variable) = store.unsigned() {
        return format!(
            "nothing was signed, because {variable} is set; take it away, and set credentials"
        );
    }
    let found = store.credentials();
    let public = service.unsigned().first().unwrap_or(&"");
    if found.is_empty() {
        let (last, others) = service.credentials().split_last().unwrap_or((&"", &[]));
        return format!(
            "set credentials in one of {} and {last} (none is set, so those of the user or machine were tried), or \
             {public}=true for a public bucket",
            others.join(", ")
        );
    }
    format!(
        "the credentials of {} were used; they must allow to list the bucket and to get its objects, for checkpoints \
         also to put and delete them (for a public bucket, set {public}=true)",
        found.join(" and ")
    )
}

/// Whether it was not the store that failed, but who gives credentials for it.
fn is_about_credentials(store: &Store, error: &object_store::Error) -> bool {
    let host = store.host();
    let host = host.split_once("://").map_or(host, |(_, host)| host);
    chain(error).any(|e| {
        let text = e.to_string();
        let Some(request) = text.strip_prefix("Error performing ") else { return false };
        let url = request.split(' ').nth(1).unwrap_or_default();
        url.starts_with("http") && !url.contains(host)
    })
}

/// Whether the object, or the bucket, is not there.
pub(crate) fn is_not_found(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
}

/// Why the object is no longer the one that was found, if it is that.
pub fn change(error: &object_store::Error) -> Option<&'static str> {
    let of_error = chain(error).find_map(|e| match e.downcast_ref::<object_store::Error>() {
        Some(object_store::Error::Precondition { .. }) => Some("it has another ETag"),
        Some(object_store::Error::NotFound { .. }) => Some("it is no longer there"),
        _ => None,
    });
    let is_shorter = || Answer::in_error(error).is_some_and(|answer| answer.status == 416);
    of_error.or_else(|| is_shorter().then_some("it is shorter than it was"))
}

/// Whether the same may be given when it is asked for again later.
pub(crate) fn is_transient(error: &object_store::Error) -> bool {
    match Answer::in_error(error) {
        Some(answer) => answer.status == 408 || answer.status == 429 || answer.status >= 500,
        None => chain(error).any(|e| e.is::<HttpError>()),
    }
}

/// Whether an answer began and broke off.
pub(crate) fn is_of_body(error: &object_store::Error) -> bool {
    let is_transport = |e: &(dyn StdError + 'static)| e.is::<HttpError>();
    chain(error).any(is_transport)
        && !chain(error).any(|e| e.to_string().starts_with("Error performing GET"))
}

/// What is wrong with how a store is described. Other than an answer, it needs its context: the file of credentials.
pub(crate) fn with_context(error: &object_store::Error) -> String {
    chain(error).nth(1).map_or_else(|| error.to_string(), ToString::to_string)
}

/// What the error that began it all says.
pub fn innermost(error: &object_store::Error) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

/// An error and its sources.
fn chain(error: &object_store::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(Some(error as &(dyn StdError + 'static)), |error| (*error).source())
}
