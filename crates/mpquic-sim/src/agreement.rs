//! What one side has learned must be what the other side did.

use crate::transfers::{News, Transfers};

/// Compares what the side `here` has learned with what the side `there` did.
///
/// # Errors
///
/// What is wrong, in words.
pub(crate) fn check(news: &News, here: &Transfers, there: &Transfers) -> Result<(), String> {
    match news {
        News::Finished(id) => {
            let received = here.incoming().get(id).map(|incoming| incoming.received);
            let sent = there.outgoing().get(id);
            let is_all = sent.is_some_and(|sent| sent.written == sent.size);
            if !is_all || sent.map(|sent| sent.size) != received {
                return Err(format!(
                    "stream {id} ended after {received:?} bytes: {sent:?}"
                ));
            }
        }
        News::Reset(id) => {
            let incoming = here.incoming().get(id);
            let reset = there.outgoing().get(id).and_then(|sent| sent.reset);
            let agrees = incoming.zip(reset).is_some_and(|(incoming, reset)| {
                incoming.reset == Some(reset.code) && incoming.received >= reset.reliable_size
            });
            if !agrees {
                return Err(format!(
                    "stream {id} was reset: {reset:?}, but is {incoming:?}"
                ));
            }
        }
        News::Stopped(id) => {
            let stopped = here.outgoing().get(id).and_then(|sent| sent.stopped);
            let by = there.incoming().get(id).and_then(|read| read.stopped);
            if stopped.is_none() || stopped != by {
                return Err(format!("stream {id} was stopped: {by:?}, not {stopped:?}"));
            }
        }
        News::Datagram(datagram) => {
            if there.numbers_datagrams() && there.sent_datagram(datagram).as_ref() != Some(datagram)
            {
                return Err(format!("this datagram was not sent: {datagram:?}"));
            }
        }
    }
    Ok(())
}

/// Notes a DATAGRAM.
///
/// # Errors
///
/// If it was received before.
pub(crate) fn note(news: &News, here: &mut Transfers) -> Result<(), String> {
    match news {
        News::Datagram(datagram) if !here.note_number(datagram) => {
            Err(format!("this datagram came twice: {datagram:?}"))
        }
        _ => Ok(()),
    }
}
