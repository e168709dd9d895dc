//! Word that this machine will be gone soon: a file that appears, or a page that clouds have for their machines.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use super::event::Event;

/// How often it is looked.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a page may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What pages say that have no news.
const NO_NEWS: [&str; 3] = ["", "NONE", "FALSE"];

/// Bytes of a page that are looked at, about.
const LONGEST: usize = 4096;

/// Longer ones are cut.
const SHOWN: usize = 80;

/// Where such word comes.
#[derive(Debug)]
enum Source {
    /// The file appears.
    File(PathBuf),
    /// The page says something else than that there is nothing.
    Page(reqwest::Url),
}

/// Watches a file, by its path from `folder` on, or a page, by its address; the first word is an event. On a thread of its
/// own, which ends with the process.
pub(super) fn watch(wanted: &str, folder: &Path, sender: Sender<Event>) -> io::Result<()> {
    let source = match reqwest::Url::parse(wanted) {
        Ok(url) if url.scheme() == "http" => Source::Page(url),
        _ => Source::File(folder.join(wanted)),
    };
    // A runtime of its own: the rest of the launcher waits for threads, not for tasks.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // It wants one even where there is no TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build();
    let client = client.map_err(io::Error::other)?;
    let work = move || loop {
        let word = match &source {
            Source::File(path) => in_file(path),
            Source::Page(url) => runtime.block_on(on_page(&client, url)),
        };
        if let Some(word) = word {
            let _ = sender.send(Event::Notice(word));
            return;
        }
        thread::sleep(INTERVAL);
    };
    thread::Builder::new().name("titan-notice".to_owned()).spawn(work).map(drop)
}

/// The first line of a file, if it is there.
fn in_file(path: &Path) -> Option<String> {
    match fs::read(path) {
        Ok(content) => {
            let text = String::from_utf8_lossy(&content);
            let line = text.lines().next().unwrap_or_default();
            Some(shortened(if line.is_empty() { "the file is there" } else { line }))
        }
        Err(_) => path.exists().then(|| "the file is there".to_owned()),
    }
}

/// What a page says, unless that is nothing. A server that does not answer says nothing either.
async fn on_page(client: &reqwest::Client, url: &reqwest::Url) -> Option<String> {
    // Google's metadata server wants to know that it is meant.
    let request = client.get(url.clone()).header("Metadata-Flavor", "Google");
    let answer = request.send().await.ok()?.error_for_status().ok()?;
    let text = beginning(answer).await?;
    let word = text.trim();
    let is_news = !NO_NEWS.iter().any(|known| known.eq_ignore_ascii_case(word));
    is_news.then(|| shortened(word))
}

/// The beginning of a page: whoever answers may have much to say.
async fn beginning(mut answer: reqwest::Response) -> Option<String> {
    let mut text = Vec::new();
    while text.len() < LONGEST {
        match answer.chunk().await.ok()? {
            Some(more) => text.extend_from_slice(&more[..more.len().min(LONGEST)]),
            None => break,
        }
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn shortened(text: &str) -> String {
    let visible = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    visible.take(SHOWN).collect::<String>().trim().to_owned()
}
