//! The owner's end of the socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::SandboxLost;
use crate::spawn::Child;
use crate::wire::{self, Message, Request};

/// A child that hung up is about to end; this is only so that the error can say how.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Sends requests and receives their answers. Dropping it ends the sandbox.
#[derive(Debug)]
pub(crate) struct Client {
    socket: AsyncFd<OwnedFd>,
    pub(crate) child: Child,
    last_number: u32,
}

impl Client {
    /// Takes the owner's end of the socket, which must not block.
    #[expect(unsafe_code, reason = "watching a descriptor is sound only while it stays open")]
    pub(crate) fn new(socket: OwnedFd, child: Child) -> io::Result<Client> {
        // SAFETY: an `OwnedFd` stays open for as long as it is not dropped, and nothing takes it out of the `AsyncFd`.
        let socket = unsafe { AsyncFd::register(socket) }?;
        Ok(Client { socket, child, last_number: 0 })
    }

    /// Sends a request and waits for its answer and the descriptors that came with it.
    pub(crate) async fn call<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(T, Vec<OwnedFd>), SandboxLost> {
        let number = self.send(request, descriptors).await?;
        self.answer(number).await
    }

    /// Sends a request and returns its number.
    pub(crate) async fn send(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<u32, SandboxLost> {
        self.last_number += 1;
        let number = self.last_number;
        let sent =
            self.socket.async_io(Interest::WRITABLE, |socket| wire::send(socket, number, request, descriptors)).await;
        match sent {
            Ok(()) => Ok(number),
            Err(error) => Err(self.lost(error).await),
        }
    }

    /// Waits for the answer to a request. Answers to earlier ones, whose askers have gone, are dropped. Cancel-safe.
    pub(crate) async fn answer<T: DeserializeOwned>(&mut self, number: u32) -> Result<(T, Vec<OwnedFd>), SandboxLost> {
        loop {
            let message = match self.socket.async_io(Interest::READABLE, |socket| wire::receive(socket)).await {
                Ok(Some(message)) => message,
                Ok(None) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into()).await),
                Err(error) => return Err(self.lost(error).await),
            };
            if message.number == number {
                return match decode(message) {
                    Ok(answer) => Ok(answer),
                    Err(error) => Err(self.lost(error).await),
                };
            }
        }
    }

    /// Asks, without waiting, to end the command of an earlier request.
    pub(crate) fn cancel(&self, number: u32) {
        if wire::send(self.socket.get_ref().as_fd(), number, &Request::Cancel(number), &[]).is_err() {
            // Only if it does not listen any more; then there is nothing else to do with it.
            self.child.kill();
        }
    }

    async fn lost(&mut self, error: io::Error) -> SandboxLost {
        let how = tokio::time::timeout(LAST_WORDS, self.child.ended()).await;
        SandboxLost { how: how.unwrap_or_else(|_| error.to_string()) }
    }
}

fn decode<T: DeserializeOwned>(message: Message) -> io::Result<(T, Vec<OwnedFd>)> {
    let answer = message.decode()?;
    Ok((answer, message.descriptors))
}
