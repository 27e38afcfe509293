//! What `quorumlock` and its warden say to each other: fixed frames of nine bytes over a socket pair.
//!
//! A frame is a tag and one number. Nothing here blocks: a peer that is stopped fills its queue, not our time.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::net::UnixStream;

use crate::clock::Instant;

/// One thing said, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// To the warden: the lock's validity ends then. The first one also carries the user's standard input.
    Deadline(Instant),
    /// To the warden and on to the stage: the terminal is where it should be, execute COMMAND.
    Go,
    /// To the warden: pass this signal to COMMAND's process group.
    Forward(i32),
    /// To the warden: end everything now.
    End,
    /// From the warden: the stage waits for `Go`; its process id is that of COMMAND, and of its process group.
    Ready(i32),
    /// From the warden: COMMAND was stopped by this signal.
    Stopped(i32),
    /// From the warden: COMMAND goes on.
    Continued,
    /// From the warden: TERM was sent, for this reason: the time had come (0), it was told to (1), COMMAND had ended (2).
    Ending(i32),
    /// From the warden: COMMAND returned this.
    Exited(i32),
    /// From the warden: this signal ended COMMAND.
    Killed(i32),
    /// From the stage, through the warden: COMMAND could not be executed, for this errno.
    NotExecuted(i32),
}

/// The length of a frame.
const FRAME: usize = 9;

impl Message {
    fn encode(self) -> [u8; FRAME] {
        let signed = |number: i32| u64::from(number.unsigned_abs());
        let (tag, value) = match self {
            Message::Deadline(instant) => (b'D', instant.as_nanos()),
            Message::Go => (b'G', 0),
            Message::Forward(number) => (b'F', signed(number)),
            Message::End => (b'E', 0),
            Message::Ready(pid) => (b'R', signed(pid)),
            Message::Stopped(number) => (b'S', signed(number)),
            Message::Continued => (b'C', 0),
            Message::Ending(why) => (b'T', signed(why)),
            Message::Exited(status) => (b'X', signed(status)),
            Message::Killed(number) => (b'K', signed(number)),
            Message::NotExecuted(errno) => (b'N', signed(errno)),
        };
        let mut frame = [tag; FRAME];
        frame[1..].copy_from_slice(&value.to_le_bytes());
        frame
    }

    fn decode(frame: [u8; FRAME]) -> Option<Self> {
        let [tag, value @ ..] = frame;
        let value = u64::from_le_bytes(value);
        let number = i32::try_from(value).ok();
        Some(match tag {
            b'D' => Message::Deadline(Instant::from_nanos(value)),
            b'G' => Message::Go,
            b'F' => Message::Forward(number?),
            b'E' => Message::End,
            b'R' => Message::Ready(number?),
            b'S' => Message::Stopped(number?),
            b'C' => Message::Continued,
            b'T' => Message::Ending(number?),
            b'X' => Message::Exited(number?),
            b'K' => Message::Killed(number?),
            b'N' => Message::NotExecuted(number?),
            _ => return None,
        })
    }
}

/// One end of the socket, inside a runtime.
#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    received: VecDeque<u8>,
    /// What the peer has not taken yet; sent on by [`Wire::next`].
    unsent: VecDeque<u8>,
}

impl Wire {
    /// Takes over a socket that was used in the blocking way so far.
    pub(super) fn new(stream: BlockingStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Wire {
            stream: UnixStream::from_std(stream)?,
            received: VecDeque::new(),
            unsent: VecDeque::new(),
        })
    }

    /// Says something. A peer that is gone is noticed by [`Wire::next`].
    pub(super) fn say(&mut self, message: Message) {
        self.unsent.extend(message.encode());
        self.flush();
    }

    /// The next thing said by the peer; `None` once it is gone.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.take()? {
                return Some(message);
            }
            if self.unsent.is_empty() {
                self.stream.readable().await.ok()?;
            } else {
                self.stream
                    .ready(tokio::io::Interest::READABLE | tokio::io::Interest::WRITABLE)
                    .await
                    .ok()?;
                self.flush();
            }
            let mut bytes = [0; 16 * FRAME];
            match self.stream.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(length) => self.received.extend(bytes.iter().take(length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits until the peer has been sent everything, or is gone.
    pub(super) async fn drain(&mut self) {
        while !self.unsent.is_empty() && self.stream.writable().await.is_ok() {
            self.flush();
        }
    }

    /// A frame that has arrived in full: `Some(None)` if there is none yet, `None` if it makes no sense.
    fn take(&mut self) -> Option<Option<Message>> {
        if self.received.len() < FRAME {
            return Some(None);
        }
        let mut frame = [0; FRAME];
        for (byte, received) in frame.iter_mut().zip(self.received.drain(..FRAME)) {
            *byte = received;
        }
        Message::decode(frame).map(Some)
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            let (bytes, _) = self.unsent.as_slices();
            match self.stream.try_write(bytes) {
                Ok(0) => self.unsent.clear(),
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The peer is gone; `next` sees it too.
                Err(_) => self.unsent.clear(),
            }
        }
    }
}

/// Says something together with an open file, in the blocking way.
pub(super) fn say_with_file(
    stream: &BlockingStream,
    message: Message,
    file: impl AsFd,
) -> io::Result<()> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for a file descriptor"));
    }
    let sent = sendmsg(
        stream,
        &[IoSlice::new(&message.encode())],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    if sent == FRAME {
        Ok(())
    } else {
        Err(io::Error::from(ErrorKind::WriteZero))
    }
}

/// Waits for something said together with an open file, in the blocking way.
pub(super) fn hear_with_file(stream: &BlockingStream) -> io::Result<(Message, OwnedFd)> {
    let mut frame = [0; FRAME];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut frame)],
        &mut ancillary,
        RecvFlags::empty(),
    )?;
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match (file, Message::decode(frame)) {
        (Some(file), Some(message)) if received.bytes == FRAME => {
            // Nothing is started in between: this process has one thread.
            fcntl_setfd(&file, FdFlags::CLOEXEC)?;
            Ok((message, file))
        }
        _ => Err(io::Error::from(ErrorKind::UnexpectedEof)),
    }
}

/// Says something in the blocking way.
pub(super) fn say(mut stream: &BlockingStream, message: Message) -> io::Result<()> {
    io::Write::write_all(&mut stream, &message.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_wire() {
        let messages = [
            Message::Deadline(Instant::from_nanos(u64::MAX)),
            Message::Go,
            Message::Forward(10),
            Message::End,
            Message::Ready(i32::MAX),
            Message::Stopped(20),
            Message::Continued,
            Message::Ending(1),
            Message::Exited(255),
            Message::Killed(9),
            Message::NotExecuted(13),
        ];
        for message in messages {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
        assert_eq!(Message::decode([b'?'; FRAME]), None);
    }
}
