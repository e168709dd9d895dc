//! An object store for the tests, with faults on demand. It speaks as much of the S3 API, and of the XML API of Google
//! Cloud Storage, as reading needs: both are the same to it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::store::{Patience, Store, Variables};
use super::{Address, Bucket, RemoteTree};
use crate::source::find::find_in;
use crate::source::{Input, Result, SourceSpec};

/// What goes wrong with an answer.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// This status, with a body.
    Status(u16, &'static str),
    /// The body ends after so many bytes, and the connection with it.
    CutAfter(usize),
    /// `Content-Length` says so many bytes less, and that is all that comes.
    Short(usize),
    /// The connection stays open, but nothing comes after so many bytes of the body.
    SilentAfter(usize),
    /// Nothing comes at all.
    Silent,
    /// The object becomes another, and the body of this answer ends after so many bytes.
    ChangeAndCutAfter(&'static [u8], usize),
}

/// What requests a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Any,
    List,
    Get,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    written: u64,
    faults: Vec<(On, Fault, usize)>,
    /// Method and target of each request, and its range.
    requests: Vec<String>,
    connections: usize,
    /// Entries of one page of a list.
    page: usize,
    ignores_if_match: bool,
}

/// A running store with the bucket `bucket`.
pub(super) struct Fake {
    port: u16,
    state: Arc<Mutex<State>>,
    /// Making a client takes a while: it reads the certificates of the system.
    stores: Mutex<BTreeMap<(Bucket, Duration), Arc<Store>>>,
}

/// For tests of faults that end by themselves.
pub(super) const PATIENT: Patience = Patience {
    connect: Duration::from_secs(20),
    silence: Duration::from_secs(20),
    ask_for: Duration::from_secs(20),
    retries: 4,
    resumes: 4,
    pause: Duration::from_millis(5),
};

/// For tests of a store that is silent.
pub(super) const HASTY: Patience = Patience {
    silence: Duration::from_millis(150),
    ask_for: Duration::from_millis(400),
    ..PATIENT
};

impl Fake {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { page: 1000, ..State::default() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&shared);
                state.lock().unwrap().connections += 1;
                thread::spawn(move || {
                    // A reader that goes away is no failure of the test.
                    drop(serve(&stream.unwrap(), &state));
                });
            }
        });
        Self { port, state, stores: Mutex::default() }
    }

    /// With all files of a folder.
    pub(super) fn of(folder: &Path) -> Self {
        let fake = Self::start();
        fake.put_folder(folder, "");
        fake
    }

    pub(super) fn put_folder(&self, folder: &Path, prefix: &str) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                self.put_folder(&path, &format!("{name}/"));
            } else {
                self.put(&name, fs::read(&path).unwrap());
            }
        }
    }

    pub(super) fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        let mut state = self.state.lock().unwrap();
        state.written += 1;
        let number = state.written;
        state.objects.insert(key.to_owned(), (bytes.into(), number));
    }

    pub(super) fn remove(&self, key: &str) {
        self.state.lock().unwrap().objects.remove(key);
    }

    pub(super) fn page(&self, entries: usize) {
        self.state.lock().unwrap().page = entries;
    }

    /// The next so many requests of a kind go wrong.
    pub(super) fn fault(&self, on: On, fault: Fault, times: usize) {
        self.state.lock().unwrap().faults.push((on, fault, times));
    }

    /// Nothing goes wrong any more.
    pub(super) fn heal(&self) {
        self.state.lock().unwrap().faults.clear();
    }

    pub(super) fn ignore_if_match(&self) {
        self.state.lock().unwrap().ignores_if_match = true;
    }

    /// The requests since this was last asked.
    pub(super) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    pub(super) fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(super) fn store(&self, address: &str, patience: Patience) -> (Arc<Store>, Address) {
        let address = Address::parse(address).unwrap().unwrap();
        let mut stores = self.stores.lock().unwrap();
        let known = stores.entry((address.bucket().clone(), patience.silence));
        let store = known.or_insert_with(|| Arc::new(self.connect(address.bucket(), patience)));
        (Arc::clone(store), address)
    }

    fn connect(&self, bucket: &Bucket, patience: Patience) -> Store {
        let endpoint = self.endpoint();
        let variables = [
            ("STORAGE_EMULATOR_HOST", endpoint.as_str()),
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "the-id"),
            ("AWS_SECRET_ACCESS_KEY", "the-secret"),
        ];
        Store::new(bucket, &Variables::of(&variables), patience).unwrap()
    }

    pub(super) fn find(&self, spec: &SourceSpec, patience: Patience) -> Result<Vec<Input>> {
        let (store, address) = self.store(&spec.path, patience);
        find_in(&RemoteTree::new(store, &address), address.key(), spec)
    }
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
}

impl Request {
    fn read(reader: &mut impl BufRead) -> Option<(Self, String)> {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let query = query.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decoded(name), decoded(&value.replace('+', " ")))
        });
        let log = format!("{method} {target} {}", headers.get("range").map_or("", |r| r.as_str()));
        let request = Self {
            method,
            key: decoded(path.trim_start_matches('/')),
            query: query.collect(),
            headers,
        };
        Some((request, log.trim().to_owned()))
    }

    fn is(&self, on: On) -> bool {
        match on {
            On::Any => true,
            On::List => self.query.contains_key("list-type"),
            On::Get => self.method == "GET" && !self.query.contains_key("list-type"),
        }
    }
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, others)) = rest.split_first() {
        if *first == b'%' {
            let code = std::str::from_utf8(&others[..2]).unwrap();
            bytes.push(u8::from_str_radix(code, 16).unwrap());
            rest = &others[2..];
        } else {
            bytes.push(*first);
            rest = others;
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    // The head and the body are written one after the other.
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some((request, log)) = Request::read(&mut reader) {
        let mut state = state.lock().unwrap();
        state.requests.push(log);
        let fault = state.faults.iter_mut().find(|(on, _, times)| *times > 0 && request.is(*on));
        let fault = fault.map(|(_, fault, times)| {
            *times -= 1;
            fault.clone()
        });
        let answer = answer(&mut state, &request, fault.as_ref());
        drop(state);
        let mut stream = stream;
        match fault {
            Some(Fault::Silent) => thread::sleep(Duration::from_secs(3600)),
            Some(Fault::CutAfter(bytes) | Fault::ChangeAndCutAfter(_, bytes)) => {
                let (head, body) = answer.parts(&request, 0);
                stream.write_all(head.as_bytes())?;
                stream.write_all(&body[..bytes.min(body.len())])?;
                return Ok(());
            }
            Some(Fault::SilentAfter(bytes)) if bytes < answer.body.len() => {
                let (head, body) = answer.parts(&request, 0);
                stream.write_all(head.as_bytes())?;
                stream.write_all(&body[..bytes])?;
                thread::sleep(Duration::from_secs(3600));
            }
            Some(Fault::Short(bytes)) => {
                let (head, body) = answer.parts(&request, bytes);
                stream.write_all(head.as_bytes())?;
                stream.write_all(&body[..body.len().saturating_sub(bytes)])?;
            }
            _ => {
                let (head, body) = answer.parts(&request, 0);
                stream.write_all(head.as_bytes())?;
                stream.write_all(body)?;
            }
        }
    }
    Ok(())
}

struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: String::new(), body: body.into() }
    }

    fn error(status: u16, code: &str) -> Self {
        Self::new(status, format!("<Error><Code>{code}</Code><Message>Sorry</Message></Error>"))
    }

    /// The head, whose length is wrong by `short`, and the body to send.
    fn parts(&self, request: &Request, short: usize) -> (String, &[u8]) {
        let length = self.body.len().saturating_sub(short);
        let head = format!(
            "HTTP/1.1 {} Whatever\r\nContent-Length: {length}\r\n{}\r\n",
            self.status, self.headers
        );
        (head, if request.method == "HEAD" { &[] } else { &self.body })
    }
}

fn answer(state: &mut State, request: &Request, fault: Option<&Fault>) -> Answer {
    if let Some(Fault::Status(status, body)) = fault {
        return Answer::new(*status, *body);
    }
    let (bucket, key) = request.key.split_once('/').unwrap_or((&request.key, ""));
    if bucket != "bucket" {
        return Answer::error(404, "NoSuchBucket");
    }
    if request.is(On::List) {
        return Answer::new(200, list(state, &request.query));
    }
    let Some((bytes, number)) = state.objects.get(key).cloned() else {
        return Answer::error(404, "NoSuchKey");
    };
    let tag = format!("\"{number}\"");
    let is_other = request.headers.get("if-match").is_some_and(|wanted| *wanted != tag);
    if is_other && !state.ignores_if_match {
        return Answer::error(412, "PreconditionFailed");
    }
    if let Some(Fault::ChangeAndCutAfter(bytes, _)) = fault {
        state.written += 1;
        let number = state.written;
        state.objects.insert(key.to_owned(), (bytes.to_vec(), number));
    }
    let (status, range) = match request.headers.get("range") {
        Some(range) => (206, parsed(range, bytes.len())),
        None => (200, 0..bytes.len()),
    };
    if range.start >= range.end && status == 206 {
        return Answer::error(416, "InvalidRange");
    }
    let mut headers = format!("ETag: {tag}\r\nLast-Modified: Sun, 29 Nov 2026 12:00:00 GMT\r\n");
    if status == 206 {
        let (start, last, all) = (range.start, range.end - 1, bytes.len());
        headers += &format!("Content-Range: bytes {start}-{last}/{all}\r\n");
    }
    Answer { status, headers, body: bytes[range].to_vec() }
}

fn parsed(range: &str, length: usize) -> Range<usize> {
    let (start, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let end = last.parse().map_or(length, |last: usize| last + 1);
    start.parse().unwrap()..end.min(length)
}

fn list(state: &State, query: &BTreeMap<String, String>) -> String {
    let of = |name: &str| query.get(name).map_or("", String::as_str);
    let (prefix, delimiter, after) = (of("prefix"), of("delimiter"), of("continuation-token"));
    let mut entries = BTreeMap::new();
    for (key, (bytes, number)) in &state.objects {
        let Some(rest) = key.strip_prefix(prefix) else { continue };
        match rest.find(delimiter).filter(|_| !delimiter.is_empty()) {
            Some(at) => {
                let folder = escaped(&format!("{prefix}{}", &rest[..=at]));
                let text = format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
                entries.insert(folder, text);
            }
            None => {
                let text = format!(
                    "<Contents><Key>{}</Key><Size>{}</Size><ETag>\"{number}\"</ETag>\
                     <LastModified>2026-11-29T12:00:00.000Z</LastModified></Contents>",
                    escaped(key),
                    bytes.len(),
                );
                entries.insert(key.clone(), text);
            }
        }
    }
    let mut text = "<?xml version=\"1.0\"?><ListBucketResult>".to_owned();
    let mut left = entries.iter().filter(|(key, _)| key.as_str() > after);
    let page: Vec<_> = left.by_ref().take(state.page).collect();
    text.extend(page.iter().map(|(_, entry)| entry.as_str()));
    if let (Some((last, _)), true) = (page.last(), left.next().is_some()) {
        text += &format!("<NextContinuationToken>{}</NextContinuationToken>", escaped(last));
    }
    text + "</ListBucketResult>"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
}
