//! Somebody on the way between agent and controller.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// What happens to bytes in one direction.
#[derive(Default)]
pub(super) struct Way {
    /// Nothing gets through; it waits.
    pub(super) blocked: AtomicBool,
    /// Milliseconds that everything takes longer.
    pub(super) delay: AtomicU64,
    /// What is written in place of what.
    pub(super) replaced: Option<(&'static str, &'static str)>,
}

pub(super) struct Proxy {
    pub(super) address: String,
    pub(super) up: Arc<Way>,
    pub(super) down: Arc<Way>,
    over: Arc<AtomicBool>,
}

impl Proxy {
    pub(super) fn start(to: &str, up: Way, down: Way) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let (up, down, over) = (Arc::new(up), Arc::new(down), Arc::new(AtomicBool::new(false)));
        let (ways, end, to) =
            ((Arc::clone(&up), Arc::clone(&down)), Arc::clone(&over), to.to_owned());
        thread::spawn(move || {
            while !end.load(SeqCst) {
                let Ok((agent, _)) = socket.accept() else {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                };
                agent.set_nonblocking(false).unwrap();
                let Ok(controller) = TcpStream::connect(&to) else { continue };
                pass(&agent, &controller, Arc::clone(&ways.0), Arc::clone(&end));
                pass(&controller, &agent, Arc::clone(&ways.1), Arc::clone(&end));
            }
        });
        Self { address, up, down, over }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
    }
}

fn pass(from: &TcpStream, to: &TcpStream, way: Arc<Way>, over: Arc<AtomicBool>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    to.set_nodelay(true).unwrap();
    thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while !over.load(SeqCst) {
            let length = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(_) => break,
            };
            thread::sleep(Duration::from_millis(way.delay.load(SeqCst)));
            while way.blocked.load(SeqCst) && !over.load(SeqCst) {
                thread::sleep(Duration::from_millis(2));
            }
            way.replace(&mut bytes[..length]);
            if to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

impl Way {
    fn replace(&self, bytes: &mut [u8]) {
        let Some((old, new)) = self.replaced else { return };
        assert_eq!(old.len(), new.len());
        let place = bytes.windows(old.len()).position(|window| window == old.as_bytes());
        if let Some(place) = place {
            bytes[place..place + old.len()].copy_from_slice(new.as_bytes());
        }
    }
}
