//! Which process listens on a port, from what Linux says in `/proc`.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// A process that holds a port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its name, if that can be read.
    pub name: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

/// The process that listens on the port of this address. `None` where `/proc` does not say: not on Linux, or the process
/// is of another user.
pub(crate) fn of(address: SocketAddr) -> Option<Holder> {
    let inodes: Vec<u64> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, address.port()))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?;
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(|pid| holds(*pid, &inodes))
        .map(|pid| Holder { pid, name: name_of(pid) })
}

fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Whether a process has one of these sockets open.
fn holds(pid: u32, inodes: &[u64]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|target| socket_inode(&target))
        .any(|inode| inodes.contains(&inode))
}

/// The number in `socket:[123]`.
fn socket_inode(target: &Path) -> Option<u64> {
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The inodes of the sockets that listen on a port, in a table as `/proc/net/tcp` is.
fn listening(table: &str, port: u16) -> Vec<u64> {
    /// The state of a socket that waits for connections.
    const LISTEN: &str = "0A";
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let listens = *fields.get(3)? == LISTEN && u16::from_str_radix(local, 16) == Ok(port);
        listens.then(|| fields.get(9)?.parse().ok())?
    };
    table.lines().skip(1).filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0
   3: garbage
";

    #[test]
    fn the_inode_of_a_listening_socket_is_found() {
        assert_eq!(listening(TABLE, 8080), [4711]);
        assert_eq!(listening(TABLE, 22), [4713]);
        assert_eq!(listening(TABLE, 50000), [] as [u64; 0], "that port is one of a client");
        assert_eq!(listening("", 8080), [] as [u64; 0]);
    }

    #[test]
    fn tables_of_ipv6_have_the_same_form() {
        let table = "head\n 0: 00000000000000000000000000000000:1F90 \
                     00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 99 1 0 100 0 0 10 0\n";
        assert_eq!(listening(table, 8080), [99]);
    }

    #[test]
    fn sockets_are_told_from_files() {
        assert_eq!(socket_inode(Path::new("socket:[4711]")), Some(4711));
        assert_eq!(socket_inode(Path::new("/dev/null")), None);
        assert_eq!(socket_inode(Path::new("pipe:[4711]")), None);
    }
}
