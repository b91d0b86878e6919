//! Messages of the null handshake to forge, and endpoints that were given such.

use bytes::Bytes;
use mpquic_core::unstable_wire::frame::{Crypto, Frame};
use mpquic_core::unstable_wire::header::Header;
use mpquic_core::{ConnectionId, PathId, Side, TransportParameters};

use super::harness::{Forgery, Kind, Net, Options, Sent};

pub(crate) fn crypto(offset: u64, data: &[u8]) -> Frame {
    Frame::Crypto(Crypto {
        offset,
        data: Bytes::copy_from_slice(data),
    })
}

/// A message of the null handshake: type, length, fields.
pub(crate) fn message(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for field in fields {
        body.extend_from_slice(&(field.len() as u16).to_be_bytes());
        body.extend_from_slice(field);
    }
    let mut message = (u32::from(kind) << 24 | body.len() as u32)
        .to_be_bytes()
        .to_vec();
    message.extend_from_slice(&body);
    message
}

pub(crate) fn encoded(parameters: &TransportParameters, side: Side) -> Vec<u8> {
    let mut out = Vec::new();
    parameters.encode(side, &mut out);
    out
}

pub(crate) fn client_hello(parameters: &TransportParameters) -> Vec<u8> {
    let parameters = encoded(parameters, Side::Client);
    message(1, &[b"rules", b"server.test", &parameters])
}

/// The server's message with its parameters.
pub(crate) fn certificate(parameters: &TransportParameters) -> Vec<u8> {
    message(11, &[&encoded(parameters, Side::Server)])
}

/// The parameters in a CRYPTO frame with such a message.
pub(crate) fn parameters_in(
    frames: &[Frame],
    kind: u8,
    sender: Side,
) -> Option<TransportParameters> {
    frames.iter().find_map(|frame| match frame {
        Frame::Crypto(crypto) if crypto.data.first() == Some(&kind) => {
            let mut body = &crypto.data[4..];
            let mut last: &[u8] = &[];
            let fields = if kind == 1 { 3 } else { 1 };
            for _ in 0..fields {
                let length = usize::from(u16::from_be_bytes([body[0], body[1]]));
                (last, body) = body[2..].split_at(length);
            }
            Some(TransportParameters::decode(sender, last).unwrap())
        }
        _ => None,
    })
}

pub(crate) fn initial_header(sent: &Sent) -> (ConnectionId, ConnectionId, Bytes) {
    match sent.packets().remove(0).header {
        Header::Initial {
            dcid, scid, token, ..
        } => (dcid, scid, token),
        other => panic!("{other:?}"),
    }
}

/// A server that got a ClientHello with these parameters, in an Initial with this source
/// connection ID.
pub(crate) fn server_given(
    scid: ConnectionId,
    change: impl Fn(&mut TransportParameters),
) -> (Net, Vec<Sent>) {
    let mut net = Net::new(Options::default());
    net.client_cid_length = scid.len();
    let dcid = ConnectionId::new(&[0xd; 8]);
    let mut parameters = TransportParameters::default();
    parameters.initial_source_connection_id = Some(scid);
    parameters.initial_max_path_id = Some(PathId(3));

    change(&mut parameters);
    let hello = crypto(0, &client_hello(&parameters));
    let first = net.forge(&Forgery {
        dcid: Some(dcid),
        scid: Some(scid),
        initial_dcid: Some(dcid),
        ..Forgery::new(Side::Client, Kind::Initial, 0, &[hello])
    });
    net.give(first);
    let sent = net.take(Side::Server);
    (net, sent)
}

/// A client whose server answered with these parameters, in packets with this source connection ID.
pub(crate) fn client_given(
    scid: ConnectionId,
    retry: bool,
    change: impl Fn(&mut TransportParameters),
) -> Net {
    let mut net = Net::connecting(Options::default());
    net.retry = retry;
    let mut first = net.take(Side::Client).remove(0);
    let (original, client_scid, _) = initial_header(&first);
    let mut retry_scid = None;
    if retry {
        let data = net.give(first.clone()).expect("a Retry");
        net.give(first.answered(data));
        first = net.take(Side::Client).remove(0);
        retry_scid = Some(initial_header(&first).0);
    }
    let mut parameters = TransportParameters::default();
    parameters.original_destination_connection_id = Some(original);
    parameters.retry_source_connection_id = retry_scid;
    parameters.initial_source_connection_id = Some(scid);
    parameters.initial_max_path_id = Some(PathId(3));
    parameters.initial_max_data = 100_000;
    parameters.initial_max_streams_uni = 3;
    parameters.initial_max_stream_data_uni = 100_000;
    parameters.active_connection_id_limit = 4;

    change(&mut parameters);
    for (kind, number, frame) in [
        (Kind::Initial, 0, crypto(0, &message(2, &[]))),
        (Kind::Handshake, 0, crypto(0, &certificate(&parameters))),
    ] {
        let sent = net.forge(&Forgery {
            dcid: Some(client_scid),
            scid: Some(scid),
            ..Forgery::new(Side::Server, kind, number, &[frame])
        });
        net.give(sent);
    }
    net
}

pub(crate) fn server_cid() -> ConnectionId {
    ConnectionId::new(&[0x5e; 8])
}
