//! Process 2 of the sandbox: holds the loop device and the mount of the volume, and does one request at a time.

mod execute;
mod files;
mod inside;
mod seal;
mod tool;
mod volume;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Attempt, SystemError};
use crate::kernel;
use crate::wire::{self, Message, Request, retry};
pub(crate) use seal::Sealed;
pub(crate) use tool::package_of;
use volume::Volume;

/// A folder of the host, empty, on which the sandbox mounts its own tmpfs; nobody else sees that.
pub(crate) const WORKSHOP: &str = "/run/bake/sandbox";

/// Serves until the owner hangs up, the disk is sealed, or an answer cannot be sent. Returns the code to end with.
pub(crate) fn serve(socket: &OwnedFd, setup: u32) -> i32 {
    kernel::reset_signals();
    kernel::ignore_polite_signals();
    let mut worker = Worker { socket: socket.as_fd(), volume: None };
    if worker.answer(setup, &Ok::<(), SystemError>(()), &[]).is_err() {
        return 10;
    }
    loop {
        let message = match wire::receive(socket) {
            Ok(Some(message)) => message,
            Ok(None) => return 0,
            Err(_) => return 11,
        };
        if worker.handle(message).is_err() {
            return 12;
        }
    }
}

struct Worker<'a> {
    socket: BorrowedFd<'a>,
    volume: Option<Volume>,
}

impl Worker<'_> {
    /// Does one request. An error means that the owner cannot be talked to.
    fn handle(&mut self, message: Message) -> std::io::Result<()> {
        let number = message.number;
        match message.decode()? {
            // One that is late: its command has ended.
            Request::Cancel(_) | Request::Setup { .. } => Ok(()),
            Request::Open(options) => {
                let opened = Volume::open(message.descriptors, &options);
                let result = opened.map(|volume| self.volume.insert(volume).filesystem.clone());
                self.answer(number, &result, &[])
            }
            request => {
                let Some(mut volume) = self.volume.take() else {
                    // The owner's types do not allow it: a `Root` exists only after a disk was opened, and ends with sealing.
                    return Err(std::io::ErrorKind::InvalidInput.into());
                };
                if let Request::Seal(options) = request {
                    return match seal::seal(volume, &options) {
                        Ok((sealed, disk)) => self.answer(number, &Ok::<_, crate::SealError>(sealed), &[disk.as_fd()]),
                        Err(error) => self.answer(number, &Err::<Sealed, _>(error), &[]),
                    };
                }
                let answered = self.handle_open(&mut volume, number, request, message.descriptors);
                self.volume = Some(volume);
                answered
            }
        }
    }

    /// Does a request that needs an open volume.
    fn handle_open(
        &self,
        volume: &mut Volume,
        number: u32,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> std::io::Result<()> {
        let root = volume.root.as_fd();
        match request {
            Request::Run(command) => {
                let result = execute::run(volume, self.socket, number, &command, descriptors);
                self.answer(number, &result, &[])
            }
            Request::Bind { at } => self.answer(number, &inside::bind(volume, descriptors, &at), &[]),
            Request::OpenFile(path) => match files::open_plain(root, &path) {
                Ok(file) => self.answer(number, &Ok::<(), crate::RootError>(()), &[file.as_fd()]),
                Err(error) => self.answer(number, &Err::<(), _>(error), &[]),
            },
            Request::Write { path, content, mode } => {
                self.answer(number, &files::write(root, &path, &content, mode), &[])
            }
            Request::CreateFolder { path, mode } => self.answer(number, &files::create_folder(root, &path, mode), &[]),
            Request::Remove(path) => self.answer(number, &files::remove(root, &path), &[]),
            Request::Metadata(path) => self.answer(number, &files::metadata(root, &path), &[]),
            Request::Walk(path) => self.answer(number, &files::walk(root, &path), &[]),
            Request::Space => self.answer(number, &files::space(root), &[]),
            Request::Processes => {
                self.answer(number, &crate::holders::in_sandbox().map_err(crate::RootError::from), &[])
            }
            Request::Setup { .. } | Request::Open(_) | Request::Seal(_) | Request::Cancel(_) => {
                unreachable!("handled before")
            }
        }
    }

    fn answer(&self, number: u32, result: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        wire::send(self.socket, number, result, descriptors)
    }
}

/// Waits. There is no runtime in the sandbox; this is its one way to let time pass.
pub(crate) fn pause(time: Duration) {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let _ = rustix::event::poll(&mut [], Some(&time));
}

/// Does something in a helper process, which may move to other namespaces, and returns its result and descriptors.
fn in_helper<T, E>(work: impl FnOnce() -> Result<(T, Vec<OwnedFd>), E>) -> Result<(T, Vec<OwnedFd>), E>
where
    T: Serialize + DeserializeOwned,
    E: Serialize + DeserializeOwned + From<SystemError>,
{
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    let attempt = || "hear from a helper process";
    let (here, there) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).attempt(attempt())?;
    let helper = kernel::fork(|| {
        let (result, descriptors) = match work() {
            Ok((value, descriptors)) => (Ok(value), descriptors),
            Err(error) => (Err(error), Vec::new()),
        };
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        i32::from(wire::send(&there, 0, &result, &descriptors).is_err())
    })
    .attempt("start a helper process")?;
    drop(there);
    let message = wire::receive(&here);
    let _ = retry(|| rustix::process::waitpid(Some(helper), rustix::process::WaitOptions::empty()));
    let message = message.attempt(attempt())?.ok_or(Errno::PIPE).attempt(attempt())?;
    let result: Result<T, E> = message.decode().attempt(attempt())?;
    result.map(|value| (value, message.descriptors))
}
