//! [`Piece`]: received bytes, and the memory that they keep.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// If slices keep much more memory alive than their own size, slices below this size, or below half
/// of their datagram, are copied. Bytes.
const SMALL_SLICE: usize = 600;

/// The memory of a slice besides its datagram, bytes: the reference count of the shared buffer.
const SHARED: u32 = 64;

/// Largest size of a piece made of gathered slices, in bytes.
const GATHERED: usize = 16 << 10;

/// Where received bytes come from, and whether to copy them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    /// Size of the datagram they are a slice of, in bytes: all of it stays in memory with them.
    pub(crate) datagram: u32,
    /// True if short slices should be copied together, because the stream holds much data.
    pub(crate) gather: bool,
}

impl Source {
    /// True if `data` is to be copied.
    fn copies(self, data: &Bytes) -> bool {
        self.gather && data.len() < SMALL_SLICE.max(self.datagram as usize / 2)
    }
}

/// Bytes in order, and how many bytes they keep in memory.
#[derive(Debug)]
pub(super) enum Piece {
    /// A slice of a datagram.
    Fresh(Bytes, u32),
    /// A slice from before the last call of [`detach`].
    Waiting(Bytes, u32),
    /// Slices, copied: they keep no datagram alive.
    Gathered(BytesMut, u32),
}

impl Piece {
    fn fresh(bytes: Bytes, source: Source) -> Self {
        Self::Fresh(bytes, source.datagram.saturating_add(SHARED))
    }

    /// A copy.
    pub(super) fn gathered(bytes: BytesMut) -> Self {
        let pinned = u32::try_from(bytes.capacity()).unwrap_or(u32::MAX);
        Self::Gathered(bytes, pinned)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Fresh(bytes, _) | Self::Waiting(bytes, _) => bytes,
            Self::Gathered(bytes, _) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Bytes of memory that it keeps.
    pub(super) fn pinned(&self) -> u64 {
        match self {
            Self::Fresh(_, pinned) | Self::Waiting(_, pinned) | Self::Gathered(_, pinned) => {
                (*pinned).into()
            }
        }
    }

    fn split_to(&mut self, length: usize) -> Bytes {
        match self {
            Self::Fresh(bytes, _) | Self::Waiting(bytes, _) => bytes.split_to(length),
            Self::Gathered(bytes, _) => bytes.split_to(length).freeze(),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Fresh(bytes, _) | Self::Waiting(bytes, _) => bytes,
            Self::Gathered(bytes, _) => bytes.freeze(),
        }
    }
}

/// Takes at most `max_length` bytes off the first piece of a list, and tells how many bytes of
/// memory the list keeps less.
pub(super) fn take_front(pieces: &mut VecDeque<Piece>, max_length: usize) -> Option<(Bytes, u64)> {
    let piece = pieces.front_mut()?;
    if piece.len() > max_length {
        return Some((piece.split_to(max_length), 0));
    }
    let pinned = piece.pinned();
    Some((pieces.pop_front()?.into_bytes(), pinned))
}

/// Adds bytes at the end of a list, and tells how many bytes of memory its pieces keep more.
pub(super) fn append(pieces: &mut VecDeque<Piece>, data: Bytes, source: Source) -> u64 {
    if source.copies(&data) {
        return append_copy(pieces, &data);
    }
    let piece = Piece::fresh(data, source);
    let pinned = piece.pinned();
    push(pieces, piece);
    pinned
}

/// Appends a copy of bytes. Returns the added memory in bytes.
pub(super) fn append_copy(pieces: &mut VecDeque<Piece>, data: &[u8]) -> u64 {
    if let Some(Piece::Gathered(bytes, pinned)) = pieces.back_mut()
        && bytes.len() + data.len() <= GATHERED
    {
        bytes.extend_from_slice(data);
        let capacity = u32::try_from(bytes.capacity()).unwrap_or(u32::MAX);
        let grown = capacity.saturating_sub(*pinned);
        *pinned += grown;
        return grown.into();
    }
    let piece = Piece::gathered(BytesMut::from(data));
    let pinned = piece.pinned();
    push(pieces, piece);
    pinned
}

fn push(pieces: &mut VecDeque<Piece>, piece: Piece) {
    if pieces.capacity() == 0 {
        // Most lists never have a second piece.
        pieces.reserve_exact(1);
    }
    pieces.push_back(piece);
}

/// Appends `second` to `first`, moving the shorter list; returns the emptied one.
pub(super) fn join(first: &mut VecDeque<Piece>, mut second: VecDeque<Piece>) -> VecDeque<Piece> {
    if first.len() < second.len() {
        while let Some(piece) = first.pop_back() {
            second.push_front(piece);
        }
        std::mem::swap(first, &mut second);
    } else {
        first.append(&mut second);
    }
    second
}

/// Copies slices from before the last call, and marks the other slices as waiting.
pub(super) fn detach(pieces: &mut VecDeque<Piece>) {
    let mut left = pieces.len();
    while left > 0 {
        left -= 1;
        let first = match pieces.pop_front() {
            Some(Piece::Fresh(bytes, pinned)) => {
                pieces.push_back(Piece::Waiting(bytes, pinned));
                continue;
            }
            Some(Piece::Waiting(bytes, _)) => bytes,
            Some(gathered) => {
                pieces.push_back(gathered);
                continue;
            }
            None => break,
        };
        let (mut length, mut count) = (first.len(), 0);
        for piece in pieces.iter().take(left) {
            let is_waiting = matches!(piece, Piece::Waiting(..));
            if !is_waiting || length + piece.len() > GATHERED {
                break;
            }
            length += piece.len();
            count += 1;
        }
        // Pieces behind the remaining ones were checked before.
        let is_first = pieces.len() == left;
        let mut copy = match pieces.pop_back() {
            Some(Piece::Gathered(last, _)) if !is_first && last.len() + length <= GATHERED => last,
            last => {
                pieces.extend(last);
                BytesMut::with_capacity(length)
            }
        };
        copy.extend_from_slice(&first);
        for piece in pieces.drain(..count) {
            copy.extend_from_slice(piece.bytes());
        }
        left -= count;
        pieces.push_back(Piece::gathered(copy));
    }
}
