//! [`Binding`]: the contexts and peers of a flow of bound UDP, at the client.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use mpquic_h3::h3::error::Code;
use tokio::time::Instant;

use super::large::Large;
use crate::bound::{Contexts, Filtering, Malformed, Told, UNCOMPRESSED, canonical, parse};
use crate::capsule::put_varint;
use crate::peers::Peers;

/// A peer gets a compressed context with this payload. Most programs send a peer or two many
/// payloads, and many peers one or two.
const COMPRESSED_FROM: u32 = 8;
/// Compressed contexts of a binding.
const MOST_CONTEXTS: usize = 32;

/// The client's side of a binding.
pub(super) struct Binding {
    /// Capsules for the proxy.
    capsules: Arc<Large>,
    state: Mutex<State>,
}

struct State {
    contexts: Contexts,
    /// Contexts without an answer of the proxy yet. Payloads from the proxy may have them already.
    asked: Vec<u64>,
    next: u64,
    peers: Peers,
}

/// The capsule for the stream, right behind the request.
pub(super) fn first_capsule() -> Bytes {
    Told::Assign(UNCOMPRESSED, None).to_capsule()
}

impl Binding {
    /// A binding whose first capsule is on its way.
    pub(super) fn new(filtering: Filtering, capsules: Arc<Large>) -> Self {
        let mut contexts = Contexts::default();
        // The first context of an empty table cannot clash.
        let _ = contexts.insert(UNCOMPRESSED, None);
        Self {
            capsules,
            state: Mutex::new(State {
                contexts,
                asked: vec![UNCOMPRESSED],
                next: UNCOMPRESSED + 2,
                peers: Peers::new(filtering),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The datagram to send for one of the uncompressed context. `None` for a malformed datagram.
    pub(super) fn compressed<'a>(&self, datagram: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let mut rest = datagram.get(1..)?;
        let peer = crate::bound::take_peer(&mut rest)?;
        let mut state = self.lock();
        let sent = state.peers.on_sent(peer, Instant::now());
        let context = state.contexts.of_peer(&peer);
        if let Some(context) = context.filter(|context| !state.asked.contains(context)) {
            let mut compressed = Vec::with_capacity(8 + rest.len());
            put_varint(&mut compressed, context);
            compressed.extend_from_slice(rest);
            return Some(Cow::Owned(compressed));
        }
        let is_wanted = sent == COMPRESSED_FROM && context.is_none();
        if is_wanted && state.contexts.len() < MOST_CONTEXTS {
            let context = state.next;
            state.next += 2;
            if state.contexts.insert(context, Some(peer)).is_ok() {
                state.asked.push(context);
                let assign = Told::Assign(context, Some(peer)).to_capsule();
                drop(state);
                self.capsules.push_capsule(assign);
            }
        }
        Some(Cow::Borrowed(datagram))
    }

    /// Peer and payload of a datagram from the proxy; `None` for one of an unknown context, and for
    /// a peer that must not send.
    pub(super) fn read<'a>(&self, datagram: &'a [u8]) -> Option<(SocketAddr, &'a [u8])> {
        let state = self.lock();
        let (peer, payload) = state.contexts.read(datagram)?;
        let peer = canonical(peer);
        state.peers.let_in(peer.ip()).then_some((peer, payload))
    }

    /// A capsule from the proxy.
    ///
    /// # Errors
    ///
    /// If the capsule is malformed, or the binding is over.
    pub(super) fn on_capsule(&self, kind: u64, value: &[u8]) -> Result<(), Code> {
        let told = parse(kind, value).map_err(|Malformed| Code::H3_MESSAGE_ERROR)?;
        let mut state = self.lock();
        match told {
            None => {}
            Some(Told::Ack(context)) => {
                let asked = state.asked.iter().position(|asked| *asked == context);
                state
                    .asked
                    .swap_remove(asked.ok_or(Code::H3_MESSAGE_ERROR)?);
            }
            Some(Told::Close(context)) => {
                state.contexts.remove(context);
                state.asked.retain(|asked| *asked != context);
                // A binding needs a context for new peers.
                if !state.contexts.has_uncompressed() {
                    return Err(Code::H3_NO_ERROR);
                }
            }
            // A proxy needs no contexts of its own: payloads of each peer have one already.
            Some(Told::Assign(context, Some(_))) if !context.is_multiple_of(2) => {
                drop(state);
                let queued = (self.capsules).push_capsule(Told::Close(context).to_capsule());
                if !queued {
                    return Err(Code::H3_EXCESSIVE_LOAD);
                }
            }
            Some(Told::Assign(..)) => return Err(Code::H3_MESSAGE_ERROR),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::put_datagram;

    fn peer(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[tokio::test]
    async fn busy_peers_get_compressed_contexts_up_to_a_limit() {
        let (large, _queue) = Large::new(Arc::default());
        let binding = Binding::new(Filtering::EndpointIndependent, Arc::new(large));
        let mut datagram = Vec::new();
        let mut sent = |port| {
            put_datagram(&mut datagram, peer(port), b"payload");
            binding.compressed(&datagram).unwrap().into_owned()
        };
        let plain = sent(1);
        assert_eq!(plain[0], UNCOMPRESSED as u8);
        for _ in 0..20 {
            assert_eq!(sent(1), plain);
        }
        let told = |told: Told| {
            let capsule = told.to_capsule();
            binding.on_capsule(capsule[0].into(), &capsule[2..])
        };
        assert_eq!(told(Told::Ack(UNCOMPRESSED)), Ok(()));
        assert_eq!(told(Told::Ack(8)), Ok(()));
        assert_eq!(sent(1), b"\x08payload");
        assert_eq!(binding.read(b"\x08answer"), Some((peer(1), &b"answer"[..])));
        for port in 2..200 {
            (0..COMPRESSED_FROM).for_each(|_| drop(sent(port)));
        }
        assert_eq!(binding.lock().contexts.len(), MOST_CONTEXTS);
        // The proxy takes a context back.
        assert_eq!(told(Told::Close(8)), Ok(()));
        assert_eq!(sent(1), plain);
        assert_eq!(binding.read(b"\x08answer"), None);
        for (wrong, code) in [
            (Told::Ack(8), Code::H3_MESSAGE_ERROR),
            (Told::Assign(9, None), Code::H3_MESSAGE_ERROR),
            (Told::Assign(600, Some(peer(1))), Code::H3_MESSAGE_ERROR),
            (Told::Close(UNCOMPRESSED), Code::H3_NO_ERROR),
        ] {
            assert_eq!(told(wrong), Err(code), "{wrong:?}");
        }
    }

    /// A proxy that assigns contexts and reads no answers ends its flow.
    #[tokio::test]
    async fn answers_to_a_proxy_are_bounded() {
        let (large, _queue) = Large::new(Arc::default());
        let binding = Binding::new(Filtering::EndpointIndependent, Arc::new(large));
        let assign = |context| {
            let capsule = Told::Assign(context, Some(peer(1))).to_capsule();
            binding.on_capsule(0x11, &capsule[2..])
        };
        let refused = (0..)
            .map(|number| assign(2 * number % 64 + 1))
            .take_while(Result::is_ok);
        assert!(refused.take(10_000).count() < 10_000);
    }

    #[test]
    fn a_proxy_without_filters_lets_the_client_filter() {
        let (large, _queue) = Large::new(Arc::default());
        let binding = Binding::new(Filtering::AddressDependent, Arc::new(large));
        let mut datagram = Vec::new();
        put_datagram(&mut datagram, peer(9), b"payload");
        assert_eq!(binding.read(&datagram), None);
        binding.compressed(&datagram).unwrap();
        assert_eq!(binding.read(&datagram), Some((peer(9), &b"payload"[..])));
    }
}
