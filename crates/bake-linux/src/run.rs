//! The owner's side of one command: the pipes, the cancel, the end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use crate::client::Client;
use crate::command::{Command, Outcome, OutputSink, Stdin};
use crate::error::{Attempt, RunError, SandboxLost, SystemError};
use crate::sandbox::Sandbox;
use crate::wire::{self, Request, RunReport};

/// As much as a pipe holds.
const CHUNK: usize = 64 * 1024;
/// What may still be in a pipe when its command has ended. More is from a daemon that never stops writing.
const LONGEST_REST: usize = 1 << 20;

/// Runs a command; ends its process group when dropped.
pub(crate) async fn run(
    sandbox: &mut Sandbox,
    command: Command,
    output: &mut (dyn OutputSink + Send),
) -> Result<Outcome, RunError> {
    tracing::debug!(command = %command.display(), "running in the root");
    let backstop = command.time_limit.map(|limit| limit + command.grace + sandbox.patience);
    let stdin = match &command.stdin {
        Stdin::Null => None,
        Stdin::Bytes(bytes) => Some(wire::memory_file(bytes).attempt("keep the command's input")?),
    };
    let (mut stdout, mut stderr) = (Stream::new()?, Stream::new()?);
    let number = {
        let ends = [stdout.writer.take(), stderr.writer.take(), stdin];
        let ends: Vec<_> = ends.iter().flatten().map(AsFd::as_fd).collect();
        sandbox.client.send(&Request::Run(command), &ends).await?
    };
    let mut running = Running { client: &mut sandbox.client, number, over: false };
    let followed = running.follow(&mut stdout, &mut stderr, output);
    let report = match backstop {
        None => followed.await?,
        // The worker keeps the limit. This is for one that cannot, because its disk is dead, say.
        Some(backstop) => match tokio::time::timeout(backstop, followed).await {
            Ok(report) => report?,
            Err(_) => {
                running.client.child.kill();
                return Err(SandboxLost { how: "it did not keep the time limit of a command".to_owned() }.into());
            }
        },
    };
    running.over = true;
    stdout.rest(|bytes| output.stdout(bytes))?;
    stderr.rest(|bytes| output.stderr(bytes))?;
    let report = report?;
    Ok(Outcome {
        status: ExitStatus::from_raw(report.status),
        elapsed: report.elapsed,
        user: report.user,
        system: report.system,
        still_running: report.still_running,
    })
}

/// A command that was started; asks for its end when dropped before that.
struct Running<'a> {
    client: &'a mut Client,
    number: u32,
    over: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.client.cancel(self.number);
        }
    }
}

impl Running<'_> {
    /// Passes the output on until the command has ended. Not until its output has: a daemon may keep that open for ever.
    async fn follow(
        &mut self,
        stdout: &mut Stream,
        stderr: &mut Stream,
        output: &mut (dyn OutputSink + Send),
    ) -> Result<Result<RunReport, RunError>, RunError> {
        loop {
            tokio::select! {
                read = stdout.read() => output.stdout(read.attempt("read the command's output")?),
                read = stderr.read() => output.stderr(read.attempt("read the command's output")?),
                answer = self.client.answer(self.number) => return Ok(answer?.0),
            }
        }
    }
}

/// One output of a command.
struct Stream {
    reader: Receiver,
    writer: Option<OwnedFd>,
    open: bool,
    buffer: Box<[u8]>,
}

impl Stream {
    fn new() -> Result<Stream, SystemError> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).attempt("make a pipe")?;
        let reader = Receiver::from_owned_fd(reader).attempt("watch a pipe")?;
        Ok(Stream { reader, writer: Some(writer), open: true, buffer: vec![0; CHUNK].into() })
    }

    /// Waits for output; for ever once there can be no more. Cancel-safe.
    async fn read(&mut self) -> io::Result<&[u8]> {
        if self.open {
            let length = self.reader.read(&mut self.buffer).await?;
            self.open = length > 0;
            return Ok(&self.buffer[..length]);
        }
        std::future::pending().await
    }

    /// Takes what is in the pipe by now. Not through the runtime, which may not have heard of it yet.
    fn rest(&mut self, mut take: impl FnMut(&[u8])) -> Result<(), SystemError> {
        let mut taken = 0;
        while self.open && taken < LONGEST_REST {
            match wire::retry(|| rustix::io::read(&self.reader, &mut *self.buffer)) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => break,
                Ok(length) => {
                    take(&self.buffer[..length]);
                    taken += length;
                }
                Err(errno) => return Err(errno).attempt("read the command's output"),
            }
        }
        Ok(())
    }
}
