//! Messages between the owner and the worker: one datagram each, with descriptors beside it.
//!
//! Both ends are the same program, so the format needs no versions. A datagram is `[body is elsewhere: u8][number: u32][body]`;
//! a long body travels in a memory file instead, for the kernel refuses datagrams above some 200 KiB.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::MemfdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command::{Command, Network};
use crate::holders::Holder;
use crate::open::OpenOptions;
use crate::root_path::RootPath;
use crate::sealed::SealOptions;

/// Bodies above this travel in a memory file.
const LONGEST_INLINE: usize = 64 * 1024;
const HEADER: usize = 5;
/// More descriptors than any message has.
const MOST_DESCRIPTORS: usize = 8;

/// What the owner asks for. Each request is answered by one message of the same number, whose type the request fixes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Setup {
        hostname: String,
        network: Network,
    },
    Open(OpenOptions),
    Run(Command),
    Bind {
        at: RootPath,
    },
    OpenFile(RootPath),
    Write {
        path: RootPath,
        content: Vec<u8>,
        mode: u32,
    },
    CreateFolder {
        path: RootPath,
        mode: u32,
    },
    Remove(RootPath),
    Metadata(RootPath),
    Walk(RootPath),
    Space,
    Processes,
    Seal(SealOptions),
    /// Ends the command that the request of this number started; has no answer.
    Cancel(u32),
}

/// How a command ended, as the worker saw it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunReport {
    pub(crate) status: i32,
    pub(crate) elapsed: std::time::Duration,
    pub(crate) user: std::time::Duration,
    pub(crate) system: std::time::Duration,
    pub(crate) still_running: Vec<Holder>,
}

/// A message as it came.
pub(crate) struct Message {
    pub(crate) number: u32,
    body: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Message {
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> io::Result<T> {
        postcard::from_bytes(&self.body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// Sends one message. Blocks or not as the socket does.
pub(crate) fn send(
    socket: impl AsFd,
    number: u32,
    body: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = postcard::to_stdvec(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let elsewhere = if body.len() > LONGEST_INLINE { Some(memory_file(&body)?) } else { None };

    let mut descriptors = descriptors.to_vec();
    descriptors.extend(elsewhere.as_ref().map(AsFd::as_fd));
    let mut header = [0; HEADER];
    header[0] = u8::from(elsewhere.is_some());
    header[1..].copy_from_slice(&number.to_le_bytes());
    let inline: &[u8] = if elsewhere.is_some() { &[] } else { &body };

    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(&header), IoSlice::new(inline)];
    retry(|| rustix::net::sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one message; `None` when the other end hung up. Blocks or not as the socket does.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Message>> {
    let mut bytes = vec![0; HEADER + LONGEST_INLINE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        retry(|| rustix::net::recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?
    };
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    if received.bytes < HEADER {
        return if received.bytes == 0 { Ok(None) } else { Err(io::ErrorKind::InvalidData.into()) };
    }

    let number = u32::from_le_bytes(bytes[1..HEADER].try_into().expect("four bytes"));
    let body = if bytes[0] == 0 {
        bytes.truncate(received.bytes);
        bytes.split_off(HEADER)
    } else {
        let file = File::from(descriptors.pop().ok_or(io::ErrorKind::InvalidData)?);
        let mut body = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut body, 0)?;
        body
    };
    Ok(Some(Message { number, body, descriptors }))
}

/// Puts bytes into a file that lives in memory and ends with its last descriptor.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = File::from(rustix::fs::memfd_create("bake", MemfdFlags::CLOEXEC)?);
    file.write_all_at(bytes, 0)?;
    Ok(file.into())
}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn short_and_long_bodies_arrive_with_their_descriptors() {
        let (here, there) = pair();
        for length in [0, 1, LONGEST_INLINE, LONGEST_INLINE + 1, 3 << 20] {
            let body = vec![7u8; length];
            let file = memory_file(b"beside").unwrap();
            send(&here, 42, &body, &[file.as_fd()]).unwrap();
            let message = receive(&there).unwrap().unwrap();
            assert_eq!((message.number, message.descriptors.len()), (42, 1), "{length}");
            assert_eq!(message.decode::<Vec<u8>>().unwrap(), body, "{length}");
        }
    }

    #[test]
    fn a_hang_up_is_not_a_message() {
        let (here, there) = pair();
        drop(here);
        assert!(receive(&there).unwrap().is_none());
    }

    #[test]
    fn nonsense_is_an_error() {
        let (here, there) = pair();
        rustix::io::write(&here, &[1]).unwrap();
        assert!(receive(&there).is_err(), "shorter than a header");
        rustix::io::write(&here, &[1, 0, 0, 0, 0]).unwrap();
        assert!(receive(&there).is_err(), "the memory file is missing");
        rustix::io::write(&here, &[0, 0, 0, 0, 0, 255]).unwrap();
        assert!(receive(&there).unwrap().unwrap().decode::<Request>().is_err());
    }
}
