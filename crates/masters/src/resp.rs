//! The wire format of Redis and Valkey: replies to read and write, commands to write and to parse.
//!
//! RESP2 and the part of RESP3 that a master sends here (maps, nulls, pushes). No streamed or attributed types.

use std::io::{self, BufRead};

/// What a master answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// No value.
    Nil,
    /// A status line such as `OK`.
    Simple(String),
    /// An error line, with its code in front.
    Error(String),
    /// A number.
    Int(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// A list.
    Array(Vec<Reply>),
    /// Pairs; in RESP2 a flat list.
    Map(Vec<(Reply, Reply)>),
    /// A message out of turn (publish/subscribe); in RESP2 a list.
    Push(Vec<Reply>),
}

impl Reply {
    /// The status `OK`.
    #[must_use]
    pub fn ok() -> Self {
        Self::Simple("OK".to_owned())
    }

    /// Bytes, from anything that has some.
    #[must_use]
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// The number, if it is one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(number) = self {
            Some(*number)
        } else {
            None
        }
    }

    /// The bytes of a bulk or status reply.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bulk(bytes) => Some(bytes),
            Self::Simple(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// The reply as readable text, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Nil => "nil".to_owned(),
            Self::Simple(text) | Self::Error(text) => text.clone(),
            Self::Int(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Array(items) | Self::Push(items) => {
                items.iter().map(Self::text).collect::<Vec<_>>().join(" ")
            }
            Self::Map(pairs) => pairs
                .iter()
                .map(|(key, value)| format!("{}={}", key.text(), value.text()))
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    /// The bytes that go over the wire, in RESP3 or RESP2.
    #[must_use]
    pub fn encode(&self, resp3: bool) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out, resp3);
        out
    }

    fn encode_into(&self, out: &mut Vec<u8>, resp3: bool) {
        match self {
            Self::Nil => out.extend_from_slice(if resp3 { b"_\r\n" } else { b"$-1\r\n" }),
            Self::Simple(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text),
            Self::Int(number) => line(out, b':', &number.to_string()),
            Self::Bulk(bytes) => bulk(out, bytes),
            Self::Array(items) => list(out, b'*', items, resp3),
            Self::Push(items) => list(out, if resp3 { b'>' } else { b'*' }, items, resp3),
            Self::Map(pairs) => {
                let (sign, count) = if resp3 {
                    (b'%', pairs.len())
                } else {
                    (b'*', pairs.len() * 2)
                };
                line(out, sign, &count.to_string());
                for (key, value) in pairs {
                    key.encode_into(out, resp3);
                    value.encode_into(out, resp3);
                }
            }
        }
    }

    /// Reads one reply; an error line is a value here, not a failure.
    ///
    /// # Errors
    /// * the stream fails or ends before the reply does;
    /// * the bytes are no RESP (`InvalidData`).
    pub fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let header = read_line(from)?;
        let Some((&sign, rest)) = header.split_first() else {
            return Err(no_resp(&header));
        };
        let text = || String::from_utf8_lossy(rest).into_owned();
        match sign {
            b'+' => Ok(Self::Simple(text())),
            b'-' => Ok(Self::Error(text())),
            b':' => number(rest).map(Self::Int).ok_or_else(|| no_resp(&header)),
            b'_' => Ok(Self::Nil),
            b'$' | b'=' => read_bulk(from, rest),
            b'*' | b'~' => match number(rest) {
                Some(-1) => Ok(Self::Nil),
                _ => read_list(from, rest, 1).map(Self::Array),
            },
            b'>' => read_list(from, rest, 1).map(Self::Push),
            b'%' => {
                let mut items = read_list(from, rest, 2)?.into_iter();
                let mut pairs = Vec::new();
                while let (Some(key), Some(value)) = (items.next(), items.next()) {
                    pairs.push((key, value));
                }
                Ok(Self::Map(pairs))
            }
            _ => Err(no_resp(&header)),
        }
    }
}

/// Writes a command as a list of byte strings.
pub(crate) fn encode_command<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut out = Vec::new();
    line(&mut out, b'*', &args.len().to_string());
    for arg in args {
        bulk(&mut out, arg.as_ref());
    }
    out
}

fn line(out: &mut Vec<u8>, sign: u8, text: &str) {
    out.push(sign);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    line(out, b'$', &bytes.len().to_string());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn list(out: &mut Vec<u8>, sign: u8, items: &[Reply], resp3: bool) {
    line(out, sign, &items.len().to_string());
    for item in items {
        item.encode_into(out, resp3);
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_until(b'\n', &mut bytes)?;
    if !bytes.ends_with(b"\r\n") {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the connection ended in the middle of an answer",
        ));
    }
    bytes.truncate(bytes.len() - 2);
    Ok(bytes)
}

fn read_bulk(from: &mut impl BufRead, length: &[u8]) -> io::Result<Reply> {
    let Some(length) = number(length) else {
        return Err(no_resp(length));
    };
    let Ok(length) = usize::try_from(length) else {
        return Ok(Reply::Nil);
    };
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(Reply::Bulk(bytes))
}

fn read_list(from: &mut impl BufRead, count: &[u8], times: usize) -> io::Result<Vec<Reply>> {
    let items = number(count)
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| no_resp(count))?;
    (0..items * times).map(|_| Reply::read(from)).collect()
}

fn number(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn no_resp(bytes: &[u8]) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("no RESP: {}", bytes.escape_ascii()),
    )
}

/// Cuts a stream of bytes into commands, however the bytes are divided.
#[derive(Debug, Default)]
pub struct CommandParser {
    pending: Vec<u8>,
}

impl CommandParser {
    /// Takes further bytes, and gives the commands that are complete with them.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        self.pending.extend_from_slice(bytes);
        let mut commands = Vec::new();
        let mut used = 0;
        while let Some((command, length)) =
            parse_command(self.pending.get(used..).unwrap_or_default())
        {
            used += length;
            if !command.is_empty() {
                commands.push(command);
            }
        }
        self.pending.drain(..used);
        commands
    }
}

/// One command at the front of the bytes, with its length; none while it is incomplete.
fn parse_command(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (header, mut at) = line_at(bytes, 0)?;
    if header.first() != Some(&b'*') {
        let words = header
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        return Some((words.map(<[u8]>::to_vec).collect(), at));
    }
    let count = usize::try_from(number(header.get(1..)?).unwrap_or(0)).unwrap_or(0);
    let mut args = Vec::new();
    for _ in 0..count {
        let (length, start) = line_at(bytes, at)?;
        let length =
            usize::try_from(number(length.get(1..).unwrap_or_default()).unwrap_or(0)).unwrap_or(0);
        args.push(bytes.get(start..start + length)?.to_vec());
        at = start + length + 2;
    }
    (at <= bytes.len()).then_some((args, at))
}

fn line_at(bytes: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(from..)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let text = rest.get(..end)?;
    Some((text.strip_suffix(b"\r").unwrap_or(text), from + end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reply: &Reply, resp3: bool, wire: &[u8]) {
        assert_eq!(reply.encode(resp3), wire);
        let back = Reply::read(&mut io::Cursor::new(wire)).unwrap();
        assert_eq!(back.encode(resp3), wire);
    }

    #[test]
    fn replies_go_over_the_wire_and_back() {
        check(&Reply::ok(), false, b"+OK\r\n");
        check(&Reply::Nil, false, b"$-1\r\n");
        check(&Reply::Nil, true, b"_\r\n");
        check(
            &Reply::bulk([0, 255, 13, 10]),
            false,
            b"$4\r\n\x00\xff\r\n\r\n",
        );
        check(
            &Reply::Array(vec![Reply::Int(-2), Reply::Error("ERR no".into())]),
            true,
            b"*2\r\n:-2\r\n-ERR no\r\n",
        );
        check(
            &Reply::Map(vec![(Reply::bulk("a"), Reply::Int(1))]),
            true,
            b"%1\r\n$1\r\na\r\n:1\r\n",
        );
        check(
            &Reply::Map(vec![(Reply::bulk("a"), Reply::Int(1))]),
            false,
            b"*2\r\n$1\r\na\r\n:1\r\n",
        );
    }

    #[test]
    fn garbage_and_half_answers_are_failures() {
        for bytes in [
            b"hello\r\n".as_slice(),
            b"$5\r\nab",
            b"*2\r\n:1\r\n",
            b"",
            b"+OK",
        ] {
            assert!(
                Reply::read(&mut io::Cursor::new(bytes)).is_err(),
                "{}",
                bytes.escape_ascii()
            );
        }
    }

    #[test]
    fn commands_are_found_however_the_bytes_are_cut() {
        let odd: &[u8] = b"k\r\n \x00\xff";
        let mut stream = encode_command(&[b"SET".as_slice(), odd, b""]);
        stream.extend_from_slice(b"PING hello\r\n");
        stream.extend(encode_command(&["GET", "x"]));
        for cut in 1..stream.len() {
            let mut parser = CommandParser::default();
            let found: Vec<_> = stream
                .chunks(cut)
                .flat_map(|part| parser.push(part))
                .collect();
            let names: Vec<_> = found.iter().map(|command| command.len()).collect();
            assert_eq!(names, [3, 2, 2], "cut at {cut}");
            assert_eq!(found[0][1], odd);
        }
    }
}
