//! [`Exchange`]: one request through an HTTP/1 proxy, and its answer. A connection carries a single
//! exchange: the next request may be for another target, and must not reach this target.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::http_body::Body;
use super::http_proxy::{Fetched, MAX_FIELDS, MAX_HEAD, answer, pass};
use crate::relay::{Broken, Passing};

/// Filters the bytes of a request and its answer.
pub(crate) struct Exchange(Mutex<State>);

struct State {
    /// The body of the request.
    body: Body,
    is_head: bool,
    upgrades: bool,
    answer: Answer,
}

/// The state of the answer.
enum Answer {
    /// The first bytes of its head.
    Head(Vec<u8>),
    Body(Body),
    /// Both sides speak another protocol.
    Upgraded,
}

/// The target does not speak HTTP/1.
struct NoAnswer;

impl Exchange {
    /// Begins a request. `behind` has bytes after the request's head. Also returns the first bytes
    /// for the target.
    ///
    /// # Errors
    ///
    /// If the body is malformed.
    pub(crate) fn begin(fetched: Fetched, behind: &[u8]) -> Result<(Self, Vec<u8>), StatusCode> {
        let Fetched {
            mut head,
            mut body,
            is_head,
            upgrades,
        } = fetched;
        let taken = body.take(behind)?;
        head.extend_from_slice(&behind[..taken]);
        let state = State {
            body,
            is_head,
            upgrades,
            answer: Answer::Head(Vec::new()),
        };
        Ok((Self(Mutex::new(state)), head))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Passing for Exchange {
    fn on_sent(&self, bytes: &mut BytesMut) -> Result<(), Broken> {
        let state = &mut *self.lock();
        if let Answer::Upgraded = state.answer {
            return Ok(());
        }
        let taken = state.body.take(bytes).map_err(|_| Broken::Tcp)?;
        if state.upgrades && taken < bytes.len() {
            // The protocol of these bytes is not known yet.
            return Err(Broken::Tcp);
        }
        bytes.truncate(taken);
        Ok(())
    }

    fn on_received(&self, pieces: &mut Vec<Bytes>) -> Result<bool, Broken> {
        let state = &mut *self.lock();
        let is_end = pieces.is_empty();
        let mut told = Vec::new();
        if let Answer::Head(begun) = &mut state.answer {
            let mut begun = std::mem::take(begun);
            (pieces.drain(..)).for_each(|piece| begun.extend_from_slice(&piece));
            let read = if is_end {
                Err(NoAnswer)
            } else {
                state.head(begun, &mut told)
            };
            match read {
                Ok(behind) => pieces.push(behind),
                Err(NoAnswer) => {
                    let said = "the server does not answer as HTTP/1.1 says";
                    pieces.extend(told);
                    pieces.push(answer(StatusCode::BAD_GATEWAY, said).into());
                    return Ok(true);
                }
            }
        }
        let is_last = match &mut state.answer {
            Answer::Head(_) => false,
            Answer::Upgraded => is_end,
            Answer::Body(body) => {
                for piece in pieces.iter_mut() {
                    let taken = body.take(piece).map_err(|_| Broken::Stream)?;
                    piece.truncate(taken);
                }
                is_end || body.is_over()
            }
        };
        pieces.splice(..0, told);
        Ok(is_last)
    }
}

impl State {
    /// Takes more bytes of the answer's head. Adds the client's part to `told`, and returns the
    /// bytes behind the head.
    fn head(&mut self, mut begun: Vec<u8>, told: &mut Vec<Bytes>) -> Result<Bytes, NoAnswer> {
        loop {
            let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
            let mut response = httparse::Response::new(&mut fields);
            let length = match response.parse(&begun) {
                Ok(httparse::Status::Complete(length)) => length,
                Ok(httparse::Status::Partial) if begun.len() < MAX_HEAD => {
                    self.answer = Answer::Head(begun);
                    return Ok(Bytes::new());
                }
                Ok(httparse::Status::Partial) | Err(_) => return Err(NoAnswer),
            };
            let (Some(version), Some(code)) = (response.version, response.code) else {
                return Err(NoAnswer);
            };
            match code {
                101 if self.upgrades => {
                    self.answer = Answer::Upgraded;
                    return Ok(begun.into());
                }
                101 => return Err(NoAnswer),
                100..200 => {
                    let rest = begun.split_off(length);
                    told.push(std::mem::replace(&mut begun, rest).into());
                }
                _ => {
                    let has_none = self.is_head || matches!(code, 204 | 304);
                    let body = Body::of(response.headers, version).map_err(|_| NoAnswer)?;
                    self.answer = Answer::Body(if has_none {
                        Body::Length(0)
                    } else {
                        body.unwrap_or(Body::UntilEnd)
                    });
                    told.push(final_head(&response, version, code).into());
                    return Ok(Bytes::from(begun).split_off(length));
                }
            }
        }
    }
}

/// The head of an answer, with `Connection: close`.
fn final_head(response: &httparse::Response<'_, '_>, version: u8, code: u16) -> Vec<u8> {
    let reason = response.reason.unwrap_or_default();
    let mut head = format!("HTTP/1.{version} {code} {reason}\r\n").into_bytes();
    for field in response.headers.iter() {
        pass(&mut head, field, response.headers);
    }
    head.extend(b"Connection: close\r\n\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::http_proxy::head;

    /// The client's bytes for an answer in pieces of this size, and whether the exchange is over.
    fn passed(request: &str, answer: &str, size: usize) -> (String, bool) {
        let asked = head(request.as_bytes()).unwrap().unwrap();
        let behind = &request.as_bytes()[asked.length..];
        let (exchange, _) = Exchange::begin(asked.fetched.unwrap(), behind).unwrap();
        let mut got = Vec::new();
        for piece in answer.as_bytes().chunks(size) {
            let mut pieces = vec![Bytes::copy_from_slice(piece)];
            let is_last = exchange.on_received(&mut pieces).unwrap();
            got.extend(pieces.concat());
            if is_last {
                return (String::from_utf8(got).unwrap(), true);
            }
        }
        (String::from_utf8(got).unwrap(), false)
    }

    #[test]
    fn an_answer_ends_where_it_says_and_the_connection_with_it() {
        let get = "GET http://a/ HTTP/1.1\r\n\r\n";
        let closes = "Connection: close\r\n\r\n";
        for (request, start, fields, body, is_last) in [
            (get, "HTTP/1.1 200 OK", "Content-Length: 3\r\n", "abc", true),
            (
                get,
                "HTTP/1.1 200 OK",
                "X-Y: z\r\n",
                "abcHTTP/1.1 200 OK\r\n\r\n",
                false,
            ),
            (
                get,
                "HTTP/1.1 304 Not Modified",
                "Content-Length: 9\r\n",
                "",
                true,
            ),
            (get, "HTTP/1.1 204 ", "", "", true),
            (
                "HEAD http://a/ HTTP/1.1\r\n\r\n",
                "HTTP/1.0 200 OK",
                "Content-Length: 9\r\n",
                "",
                true,
            ),
            (
                get,
                "HTTP/1.1 200 OK",
                "Transfer-Encoding: chunked\r\n",
                "3\r\nabc\r\n0\r\n\r\n",
                true,
            ),
        ] {
            let more = if is_last {
                "HTTP/1.1 200 OK\r\n\r\nnot asked for"
            } else {
                ""
            };
            let hidden = "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n";
            let answer = format!("{start}\r\n{hidden}{fields}\r\n{body}{more}");
            let expected = format!("{start}\r\n{fields}{closes}{body}");
            for size in 1..=answer.len() {
                let got = passed(request, &answer, size);
                assert_eq!(got, (expected.clone(), is_last), "in pieces of {size}");
            }
        }
    }

    #[test]
    fn malformed_answer_becomes_502() {
        let get = "GET http://a/ HTTP/1.1\r\n\r\n";
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MAX_HEAD));
        for answer in [
            "SSH-2.0-x\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            &endless,
        ] {
            let (got, is_last) = passed(get, answer, answer.len());
            assert!(got.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{got}");
            assert!(is_last);
        }
    }

    #[test]
    fn another_protocol_begins_when_the_server_says_so() {
        let request = "GET http://a/ HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let fetched = || head(request.as_bytes()).unwrap().unwrap().fetched.unwrap();
        let sent = |exchange: &Exchange| {
            let mut bytes = BytesMut::from(&b"frame"[..]);
            exchange.on_sent(&mut bytes).map(|()| bytes.len())
        };
        let (exchange, _) = Exchange::begin(fetched(), b"").unwrap();
        assert!(sent(&exchange).is_err(), "before it has begun");
        let switch = Bytes::from_static(b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\nfirst");
        let mut pieces = vec![switch.clone()];
        assert!(!exchange.on_received(&mut pieces).unwrap());
        assert_eq!(pieces.concat(), switch);
        assert_eq!(sent(&exchange).unwrap(), 5);
        let (exchange, _) = Exchange::begin(fetched(), b"").unwrap();
        let no = Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert!(exchange.on_received(&mut vec![no]).unwrap());
        assert!(sent(&exchange).is_err(), "it did not begin");
    }
}
