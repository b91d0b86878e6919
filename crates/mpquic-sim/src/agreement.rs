//! Compares the events of one side with the actions of the other side.

use crate::transfers::{News, Transfers};

/// Compares an event that the side `here` reports with the actions of the side `there`.
///
/// # Errors
///
/// A description of the contradiction.
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

/// Notes a DATAGRAM. Returns the size in bytes of a repeated DATAGRAM, otherwise 0.
pub(crate) fn note(news: &News, here: &mut Transfers) -> u64 {
    match news {
        News::Datagram(datagram) if !here.note_number(datagram) => datagram.len() as u64,
        _ => 0,
    }
}

/// Checks that no more bytes arrived twice than left twice: a scheduler or an application may send
/// copies.
///
/// # Errors
///
/// If the repeated bytes of received DATAGRAMs exceed the bytes that the other side repeated.
pub(crate) fn check_copies(received_again: u64, repeated: u64) -> Result<(), String> {
    if received_again <= repeated {
        return Ok(());
    }
    Err(format!(
        "{received_again} bytes of datagrams came again, but only {repeated} were repeated"
    ))
}
