//! An object store for tests, with faults on demand. It speaks as much of the S3 API, and of the XML API of Google Cloud
//! Storage, as we ask for: both are the same to it but for the header of conditional writes.

#![allow(clippy::unwrap_used, missing_docs, reason = "this is part of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::{Address, Bucket, Patience, Store, Variables};

/// What goes wrong with an answer.
#[derive(Clone, Debug)]
pub enum Fault {
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
    /// The connection breaks after so many bytes of what is being written; nothing is done.
    ResetAfter(u64),
    /// What was asked is done, and the connection breaks before the answer.
    LoseAnswer,
    /// All goes well after so long.
    Slow(Duration),
}

/// What requests a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Any,
    List,
    Get,
    /// An object as a whole.
    Put,
    /// A part of an object.
    Part,
    /// The end of an object in parts.
    Complete,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, (Arc<Vec<u8>>, u64)>,
    uploads: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
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
pub struct Fake {
    port: u16,
    state: Arc<Mutex<State>>,
    /// Making a client takes a while: it reads the certificates of the system.
    stores: Mutex<BTreeMap<(Bucket, Duration), Arc<Store>>>,
}

/// For tests of faults that end by themselves.
pub const PATIENT: Patience = Patience {
    connect: Duration::from_secs(20),
    silence: Duration::from_secs(20),
    ask_for: Duration::from_secs(20),
    retries: 4,
    resumes: 4,
    pause: Duration::from_millis(5),
    outlast: Duration::from_secs(20),
};

/// For tests of a store that is silent.
pub const HASTY: Patience = Patience {
    silence: Duration::from_millis(150),
    ask_for: Duration::from_millis(400),
    outlast: Duration::from_millis(400),
    ..PATIENT
};

impl Fake {
    pub fn start() -> Self {
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
    pub fn of(folder: &Path) -> Self {
        let fake = Self::start();
        fake.put_folder(folder, "");
        fake
    }

    pub fn put_folder(&self, folder: &Path, prefix: &str) {
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

    pub fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        let mut state = self.state.lock().unwrap();
        state.written += 1;
        let number = state.written;
        state.objects.insert(key.to_owned(), (Arc::new(bytes.into()), number));
    }

    pub fn remove(&self, key: &str) {
        self.state.lock().unwrap().objects.remove(key);
    }

    /// An object as it is now.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.state.lock().unwrap().objects.get(key).map(|(bytes, _)| bytes.to_vec())
    }

    pub fn keys(&self) -> Vec<String> {
        self.state.lock().unwrap().objects.keys().cloned().collect()
    }

    /// Uploads that were begun and neither completed nor given up.
    pub fn uploads(&self) -> usize {
        self.state.lock().unwrap().uploads.len()
    }

    pub fn page(&self, entries: usize) {
        self.state.lock().unwrap().page = entries;
    }

    /// The next so many requests of a kind go wrong.
    pub fn fault(&self, on: On, fault: Fault, times: usize) {
        self.state.lock().unwrap().faults.push((on, fault, times));
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.state.lock().unwrap().faults.clear();
    }

    pub fn ignore_if_match(&self) {
        self.state.lock().unwrap().ignores_if_match = true;
    }

    /// The requests since this was last asked.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn store(&self, address: &str, patience: Patience) -> (Arc<Store>, Address) {
        let address = Address::parse(address).unwrap().unwrap();
        let mut stores = self.stores.lock().unwrap();
        let known = stores.entry((address.bucket().clone(), patience.silence));
        let store = known.or_insert_with(|| Arc::new(self.connect(address.bucket(), patience)));
        (Arc::clone(store), address)
    }

    fn connect(&self, bucket: &Bucket, patience: Patience) -> Store {
        let variables = self.variables();
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Store::new(bucket, &Variables::of(&variables), patience).unwrap()
    }

    /// What the environment of a program that asks this store must have.
    pub fn variables(&self) -> [(&'static str, String); 5] {
        let endpoint = self.endpoint();
        [
            ("STORAGE_EMULATOR_HOST", endpoint.clone()),
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "the-id".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "the-secret".to_owned()),
        ]
    }
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
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
            body: Vec::new(),
        };
        Some((request, log.trim().to_owned()))
    }

    /// Bytes that follow.
    fn length(&self) -> u64 {
        self.headers.get("content-length").map_or(0, |length| length.parse().unwrap())
    }

    /// Whether it must find no object of its name: as Google and as Amazon say it.
    fn is_for_a_new_one(&self) -> bool {
        let has = |name: &str, value: &str| self.headers.get(name).is_some_and(|v| v == value);
        has("x-goog-if-generation-match", "0") || has("if-none-match", "*")
    }

    fn is(&self, on: On) -> bool {
        let is_part = self.query.contains_key("partNumber");
        match on {
            On::Any => true,
            On::List => self.query.contains_key("list-type"),
            On::Get => self.method == "GET" && !self.query.contains_key("list-type"),
            On::Put => self.method == "PUT" && !is_part,
            On::Part => self.method == "PUT" && is_part,
            On::Complete => self.method == "POST" && self.query.contains_key("uploadId"),
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
    while let Some((mut request, log)) = Request::read(&mut reader) {
        let fault = {
            let mut state = state.lock().unwrap();
            state.requests.push(log);
            let mut faults = state.faults.iter_mut();
            faults.find(|(on, _, times)| *times > 0 && request.is(*on)).map(|(_, fault, times)| {
                *times -= 1;
                fault.clone()
            })
        };
        let length = request.length();
        if let Some(Fault::ResetAfter(bytes)) = fault {
            reader.by_ref().take(bytes.min(length)).read_to_end(&mut request.body)?;
            return Ok(());
        }
        reader.by_ref().take(length).read_to_end(&mut request.body)?;
        if (request.body.len() as u64) < length {
            return Ok(());
        }
        if let Some(Fault::Slow(time)) = fault {
            thread::sleep(time);
        }
        let mut state = state.lock().unwrap();
        let answer = answer(&mut state, &request, fault.as_ref());
        drop(state);
        let mut stream = stream;
        match fault {
            Some(Fault::LoseAnswer) => return Ok(()),
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
    if matches!(request.method.as_str(), "PUT" | "POST" | "DELETE") {
        return change(state, request, key);
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
        state.objects.insert(key.to_owned(), (Arc::new(bytes.to_vec()), number));
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

/// Writes, and what belongs to writing in parts.
fn change(state: &mut State, request: &Request, key: &str) -> Answer {
    let upload = request.query.get("uploadId");
    let tagged = |number: u64, body: String| {
        let headers = format!("ETag: \"{number}\"\r\nx-goog-generation: {number}\r\n");
        Answer { status: 200, headers, body: body.into() }
    };
    if request.query.contains_key("delete") {
        // Amazon's way, for several at once.
        let body = String::from_utf8_lossy(&request.body);
        let mut deleted = String::new();
        for rest in body.split("<Key>").skip(1) {
            let key = rest.split("</Key>").next().unwrap();
            state.objects.remove(key);
            deleted += &format!("<Deleted><Key>{key}</Key></Deleted>");
        }
        return Answer::new(200, format!("<DeleteResult>{deleted}</DeleteResult>"));
    }
    let is_refused = request.is_for_a_new_one() && state.objects.contains_key(key);
    state.written += 1;
    let number = state.written;
    match (request.method.as_str(), upload) {
        ("POST", None) => {
            let id = format!("upload-{number}");
            state.uploads.insert(id.clone(), BTreeMap::new());
            let body = format!(
                "<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>{}</Key>\
                 <UploadId>{id}</UploadId></InitiateMultipartUploadResult>",
                escaped(key)
            );
            Answer::new(200, body)
        }
        ("PUT", Some(id)) => {
            let Some(parts) = state.uploads.get_mut(id) else {
                return Answer::error(404, "NoSuchUpload");
            };
            let part = request.query.get("partNumber").unwrap().parse().unwrap();
            parts.insert(part, request.body.clone());
            tagged(number, String::new())
        }
        ("POST", Some(id)) => {
            let Some(parts) = state.uploads.remove(id) else {
                return Answer::error(404, "NoSuchUpload");
            };
            let bytes = parts.into_values().collect::<Vec<_>>().concat();
            state.objects.insert(key.to_owned(), (Arc::new(bytes), number));
            let body = format!(
                "<CompleteMultipartUploadResult><Key>{}</Key><ETag>\"{number}\"</ETag>\
                 </CompleteMultipartUploadResult>",
                escaped(key)
            );
            tagged(number, body)
        }
        ("DELETE", Some(id)) => {
            state.uploads.remove(id);
            Answer::new(204, "")
        }
        ("DELETE", None) => match state.objects.remove(key) {
            Some(_) => Answer::new(204, ""),
            None => Answer::error(404, "NoSuchKey"),
        },
        _ if is_refused => Answer::error(412, "PreconditionFailed"),
        _ => {
            state.objects.insert(key.to_owned(), (Arc::new(request.body.clone()), number));
            tagged(number, String::new())
        }
    }
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
