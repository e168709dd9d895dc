//! Which torch to install: the small CPU wheels, if the index that has them can be reached, or what the ordinary
//! index has.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::error::SetupError;
use super::requirements::{CPU_INDEX, Variant};
use super::variables::{TITAN_TORCH_INDEX, Variables};

/// Name resolution and connection together may take this long.
const LIMIT: Duration = Duration::from_secs(2);
/// Where the address of a proxy may stand, in the order of pip.
const PROXIES: [&str; 5] = ["PIP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// What the user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Whatever is there already, else what can be had with the least bytes.
    Auto,
    /// This and nothing else.
    Fixed(Variant),
}

impl Choice {
    /// What `TITAN_TORCH_INDEX` says.
    pub(super) fn from_variables(variables: &Variables) -> Result<Self, SetupError> {
        let Some(value) = variables.text(TITAN_TORCH_INDEX) else {
            return Ok(Self::Auto);
        };
        let is_url =
            ["https://", "http://", "file://"].iter().any(|scheme| value.starts_with(scheme));
        match value.as_str() {
            "cpu" => Ok(Self::Fixed(Variant::Cpu)),
            "plain" => Ok(Self::Fixed(Variant::Plain)),
            _ if is_url => Ok(Self::Fixed(Variant::Custom(value))),
            // A mistyped URL may hold a password.
            _ if value.contains('@') => Err(SetupError::TorchIndex { value: "...".to_owned() }),
            _ => Err(SetupError::TorchIndex { value }),
        }
    }

    /// The variants that satisfy the choice.
    pub(super) fn acceptable(&self) -> Vec<Variant> {
        match self {
            Self::Auto => vec![Variant::Cpu, Variant::Plain],
            Self::Fixed(variant) => vec![variant.clone()],
        }
    }
}

/// Whether it is worth trying the CPU index. With a proxy only the proxy can be asked; whether it lets us through
/// is seen when pip tries.
pub(super) fn cpu_index_reachable(variables: &Variables, cancelled: &AtomicBool) -> bool {
    if variables.get("PIP_NO_INDEX").is_some() {
        return false;
    }
    let proxy = PROXIES.iter().find_map(|name| variables.text(name));
    let address = authority(proxy.as_deref().unwrap_or(CPU_INDEX));
    address.is_some_and(|(host, port)| reachable(host, port, LIMIT, cancelled))
}

/// Host and port of a URL; a proxy may also be given without scheme.
fn authority(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?', '#']).next()?;
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let default = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    // The colons of an IPv6 address stand in brackets.
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (address, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Tries to connect. Resolving a name cannot be interrupted, so a thread does it, which is left behind if it hangs.
fn reachable(host: String, port: u16, limit: Duration, cancelled: &AtomicBool) -> bool {
    let (sender, receiver) = mpsc::channel();
    let deadline = Instant::now() + limit;
    std::thread::spawn(move || {
        let addresses = (host.as_str(), port).to_socket_addrs().into_iter().flatten();
        let connected = addresses.into_iter().any(|address| {
            let left = deadline.saturating_duration_since(Instant::now());
            !left.is_zero() && TcpStream::connect_timeout(&address, left).is_ok()
        });
        // The receiver may have given up.
        let _ = sender.send(connected);
    });
    while Instant::now() < deadline && !cancelled.load(Ordering::Relaxed) {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(connected) => return connected,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_overrides_the_choice() {
        let choice = |value: &str| {
            Choice::from_variables(&[(TITAN_TORCH_INDEX, value)].into_iter().collect())
        };
        assert_eq!(choice("").unwrap(), Choice::Auto);
        assert_eq!(choice("cpu").unwrap(), Choice::Fixed(Variant::Cpu));
        assert_eq!(choice("plain").unwrap(), Choice::Fixed(Variant::Plain));
        let url = "https://mirror/whl/cpu";
        assert_eq!(choice(url).unwrap(), Choice::Fixed(Variant::Custom(url.to_owned())));
        let text = choice("cuda").unwrap_err().to_string();
        assert_eq!(
            text,
            "TITAN_TORCH_INDEX is `cuda`, expected `cpu`, `plain` or the URL of a package index"
        );
        assert!(!choice("htps://me:secret@mirror").unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn an_address_is_found_in_a_url() {
        let cases = [
            (CPU_INDEX, Some(("download.pytorch.org", 443))),
            ("http://me:p@ss@proxy:3128/", Some(("proxy", 3128))),
            ("proxy:3128", Some(("proxy", 3128))),
            ("http://[::1]:3128", Some(("::1", 3128))),
            ("https://[::1]/x", Some(("::1", 443))),
            ("http://proxy:port", None),
            ("http://", None),
        ];
        for (url, expected) in cases {
            let found = authority(url);
            let found = found.as_ref().map(|(host, port)| (host.as_str(), *port));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn a_port_is_reachable_while_something_listens() {
        let never = AtomicBool::new(false);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let limit = Duration::from_secs(5);
        assert!(reachable("127.0.0.1".to_owned(), port, limit, &never));
        drop(listener);
        assert!(!reachable("127.0.0.1".to_owned(), port, limit, &never));
        let cancelled = AtomicBool::new(true);
        assert!(!reachable("127.0.0.1".to_owned(), port, limit, &cancelled));
    }
}
