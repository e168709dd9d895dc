//! Unix sockets between launcher, worker host and ranks.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Orders to the worker host are a few dozen bytes; its answers may quote an error.
const LARGEST_PACKET: usize = 64 * 1024;

/// More than any order attaches.
const MOST_DESCRIPTORS: usize = 4;

/// Makes the two ends of a channel of packets, which can carry file descriptors. Neither end survives an exec
/// unless it is made a standard stream.
///
/// # Errors
/// Out of file descriptors.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message with file descriptors attached.
///
/// # Errors
/// The other end is gone.
pub fn send_packet(
    socket: impl AsFd,
    message: &impl Serialize,
    attached: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !attached.is_empty() && !control.push(SendAncillaryMessage::ScmRights(attached)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many file descriptors in a message",
        ));
    }
    sendmsg(socket, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for one message and its file descriptors; `None` when the other end is closed.
///
/// # Errors
/// The socket fails, or the message is not one of type `M`.
pub fn receive_packet<M: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut text = vec![0; LARGEST_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        match recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut text)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(received) => break received.bytes,
            Err(rustix::io::Errno::INTR) => {}
            // A peer that was killed with unread messages resets the connection: it is gone all the same.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    };
    if length == 0 {
        return Ok(None);
    }
    let mut attached = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            attached.extend(descriptors);
        }
    }
    Ok(Some((serde_json::from_slice(&text[..length])?, attached)))
}

/// Writes one message as a line, in one write.
///
/// # Errors
/// The other end is gone.
pub fn write_line(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads messages, one a line.
#[derive(Debug)]
pub struct Lines(BufReader<UnixStream>);

impl Lines {
    /// Reads from `stream`.
    pub fn new(stream: UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// Waits for the next message; `None` when the other end is closed, or has died in the middle of a line.
    ///
    /// # Errors
    /// The socket fails, or the line is not a message of type `M`.
    pub fn receive<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let mut line = Vec::new();
        match self.0.read_until(b'\n', &mut line) {
            Ok(_) if line.last() != Some(&b'\n') => Ok(None),
            Ok(_) => Ok(Some(serde_json::from_slice(&line)?)),
            // A peer that was killed with unread data resets the connection: it is gone all the same.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_packet_brings_its_descriptors_and_a_closed_end_reads_as_none() {
        let (left, right) = packet_pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        send_packet(&left, &"first", &[writer.as_fd()]).unwrap();
        send_packet(&left, &"second", &[]).unwrap();
        drop((writer, left));
        let (text, attached) = receive_packet::<String>(&right).unwrap().unwrap();
        assert_eq!((text.as_str(), attached.len()), ("first", 1));
        std::fs::File::from(attached.into_iter().next().unwrap()).write_all(b"through").unwrap();
        let (text, attached) = receive_packet::<String>(&right).unwrap().unwrap();
        assert_eq!((text.as_str(), attached.len()), ("second", 0));
        assert!(receive_packet::<String>(&right).unwrap().is_none());
        let mut seen = String::new();
        reader.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "through");
    }

    #[test]
    fn a_line_that_was_cut_short_is_the_end() {
        let (left, right) = UnixStream::pair().unwrap();
        write_line(&left, &7).unwrap();
        (&left).write_all(b"[1, 2").unwrap();
        drop(left);
        let mut lines = Lines::new(right);
        assert_eq!(lines.receive::<i32>().unwrap(), Some(7));
        assert_eq!(lines.receive::<Vec<i32>>().unwrap(), None);
    }
}
