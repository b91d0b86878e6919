//! [`Body`]: bytes sent without copying them.
//!
//! `h3` puts a body behind the header of its frame and shows both as slices, which hide the
//! [`Bytes`] behind them. So we ask the body itself for its bytes, by an advance of zero, and the
//! body answers aside.

use std::cell::RefCell;

use bytes::{Buf, Bytes};

/// Shorter bodies are copied: that costs less than a place of their own in the send buffer. In
/// bytes.
const SHORT: usize = 4 << 10;

/// A body, or a piece of a body, to be sent without copying: give it to `h3` in the place of
/// [`Bytes`].
///
/// Bodies below 4 KiB are copied. Larger ones stay in memory until the peer has acknowledged them,
/// with the whole buffers behind the [`Bytes`].
///
/// ```
/// use bytes::Bytes;
/// use mpquic_h3::{Body, h3};
///
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// # async fn serve(connection: mpquic_tokio::Connection, file: Bytes) -> Result<(), Error> {
/// let quic = mpquic_h3::Connection::new(connection);
/// let mut requests = h3::server::Connection::<_, Body>::new(quic).await?;
/// while let Some(request) = requests.accept().await? {
///     let (_, mut stream) = request.resolve_request().await?;
///     stream.send_response(http::Response::new(())).await?;
///     stream.send_data(file.clone().into()).await?;
///     stream.finish().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body(Bytes);

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Buf for Body {
    fn remaining(&self) -> usize {
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        if count == 0 {
            QUESTION.with_borrow_mut(|question| {
                if let Question::Asked = question {
                    *question = Question::Answered(self.0.clone());
                }
            });
        }
        self.0.advance(count);
    }

    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        self.0.copy_to_bytes(length)
    }
}

/// A question to bodies, for the time of one call.
enum Question {
    None,
    Asked,
    Answered(Bytes),
}

thread_local! {
    static QUESTION: RefCell<Question> = const { RefCell::new(Question::None) };
}

/// The bytes of the [`Body`] in `data`; `None` without a [`Body`].
fn ask(data: &mut impl Buf) -> Option<Bytes> {
    QUESTION.set(Question::Asked);
    data.advance(0);
    match QUESTION.replace(Question::None) {
        Question::Answered(bytes) => Some(bytes),
        Question::None | Question::Asked => None,
    }
}

/// Takes all of `data` out, for a [`Body`] large enough behind a short header, as two pieces.
pub(crate) fn take(data: &mut impl Buf) -> Option<[Bytes; 2]> {
    if data.remaining() < SHORT {
        return None;
    }
    let body = ask(data)?;
    let before = data.remaining().checked_sub(body.len())?;
    if body.len() < SHORT || before >= SHORT {
        return None;
    }
    let header = data.copy_to_bytes(before);
    // True for the shown body, through any wrapper.
    let is_body = std::ptr::eq(data.chunk(), &*body);
    let body = if is_body {
        body
    } else {
        data.copy_to_bytes(data.remaining())
    };
    Some([header, body])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body behind a header, like in `h3`.
    struct Framed<B>(Bytes, B);

    impl<B: Buf> Buf for Framed<B> {
        fn remaining(&self) -> usize {
            self.0.remaining() + self.1.remaining()
        }

        fn chunk(&self) -> &[u8] {
            if self.0.is_empty() {
                self.1.chunk()
            } else {
                &self.0
            }
        }

        fn advance(&mut self, count: usize) {
            let of_header = count.min(self.0.len());
            self.0.advance(of_header);
            self.1.advance(count - of_header);
        }
    }

    fn framed<B>(body: B) -> Framed<B> {
        Framed(Bytes::from_static(b"header"), body)
    }

    fn long() -> Bytes {
        (0..=u8::MAX).cycle().take(2 * SHORT).collect()
    }

    #[test]
    fn a_long_body_is_taken_out_as_it_is() {
        let bytes = long();
        let mut data = framed(Body::from(bytes.clone()));
        let [header, body] = take(&mut data).unwrap();
        assert_eq!(header, "header");
        assert!(std::ptr::eq(&*body, &*bytes));
    }

    #[test]
    fn short_bodies_and_other_buffers_are_not_taken() {
        let short = Body::from(long().slice(..SHORT - 1));
        assert_eq!(take(&mut framed(short)), None);
        assert_eq!(take(&mut framed(long())), None);
        let far = long().chain(Body::from(long()));
        assert_eq!(take(&mut framed(far)), None);
    }

    /// Shows other bytes than those of its body.
    struct Wrapped(Body, Bytes);

    impl Buf for Wrapped {
        fn remaining(&self) -> usize {
            self.1.remaining()
        }

        fn chunk(&self) -> &[u8] {
            &self.1
        }

        fn advance(&mut self, count: usize) {
            self.0.advance(count);
            self.1.advance(count);
        }
    }

    #[test]
    fn shown_bytes_are_sent_instead_of_the_body() {
        let shown = Bytes::from(vec![9; 2 * SHORT]);
        let taken = take(&mut framed(Wrapped(long().into(), shown.clone()))).unwrap();
        assert_eq!(taken, [Bytes::from_static(b"header"), shown]);
        let more = Body::from(long()).chain(&b"more"[..]);
        let taken = take(&mut framed(more)).unwrap();
        assert_eq!(taken.concat(), [b"header", &long()[..], b"more"].concat());
    }

    #[test]
    fn dropped_body_keeps_no_bytes() {
        let bytes = long();
        let mut body = Body::from(bytes.clone());
        body.advance(0);
        drop(body);
        assert!(bytes.is_unique());
    }
}
