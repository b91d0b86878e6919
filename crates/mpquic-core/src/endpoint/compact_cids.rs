//! Maps and lists of connection IDs that take little memory: an endpoint may have millions.

use std::collections::HashMap;

use quinn_proto::ConnectionId;

/// A map from connection IDs. Those of eight bytes, the default length, take half the memory of
/// others.
#[derive(Debug)]
pub(super) struct CidMap<V> {
    eight: HashMap<u64, V>,
    others: HashMap<ConnectionId, V>,
}

impl<V> Default for CidMap<V> {
    fn default() -> Self {
        Self {
            eight: HashMap::new(),
            others: HashMap::new(),
        }
    }
}

fn eight(cid: &[u8]) -> Option<u64> {
    cid.try_into().ok().map(u64::from_ne_bytes)
}

impl<V> CidMap<V> {
    /// The value of a connection ID of 20 bytes at most.
    pub(super) fn get(&self, cid: &[u8]) -> Option<&V> {
        match eight(cid) {
            Some(key) => self.eight.get(&key),
            None => self.others.get(&ConnectionId::new(cid)),
        }
    }

    pub(super) fn insert(&mut self, cid: &ConnectionId, value: V) {
        match eight(cid) {
            Some(key) => self.eight.insert(key, value),
            None => self.others.insert(*cid, value),
        };
    }

    pub(super) fn remove(&mut self, cid: &[u8]) {
        match eight(cid) {
            Some(key) => self.eight.remove(&key),
            None => self.others.remove(&ConnectionId::new(cid)),
        };
    }

    pub(super) fn len(&self) -> usize {
        self.eight.len() + self.others.len()
    }
}

/// Lists grow by this many connection IDs at a time, as they hardly change after the handshake.
const AT_A_TIME: usize = 5;

/// A short list of connection IDs, oldest first: each as its length and its bytes.
#[derive(Debug, Default)]
pub(super) struct CidList(Vec<u8>);

impl CidList {
    pub(super) fn push(&mut self, cid: &ConnectionId) {
        let size = 1 + cid.len();
        if self.0.capacity() - self.0.len() < size {
            self.0.reserve_exact(AT_A_TIME * size);
        }
        // At most 20.
        self.0.push(cid.len() as u8);
        self.0.extend_from_slice(cid);
    }

    /// Removes a connection ID; returns whether it was there.
    pub(super) fn remove(&mut self, cid: &ConnectionId) -> bool {
        let mut start = 0;
        let found = self.iter().find_map(|known| {
            let range = start..start + 1 + known.len();
            start = range.end;
            (*known == **cid).then_some(range)
        });
        match found {
            Some(range) => {
                self.0.drain(range);
                true
            }
            None => false,
        }
    }

    /// Removes and returns the oldest ID above `max` IDs.
    pub(super) fn overflow(&mut self, max: usize) -> Option<ConnectionId> {
        let oldest = self.iter().next().map(ConnectionId::new)?;
        if self.iter().count() <= max {
            return None;
        }
        self.0.drain(..1 + oldest.len());
        Some(oldest)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (length, others) = rest.split_first()?;
            let (cid, others) = others.split_at_checked(usize::from(*length))?;
            rest = others;
            Some(cid)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cid(length: usize, byte: u8) -> ConnectionId {
        ConnectionId::new(&[byte; 20][..length])
    }

    #[test]
    fn a_map_tells_lengths_apart() {
        let mut map = CidMap::default();
        for length in 0..=20 {
            assert_eq!(map.get(&cid(length, 0)), None);
            map.insert(&cid(length, 0), length);
            assert_eq!(map.len(), length + 1);
        }
        for length in 0..=20 {
            assert_eq!(map.get(&cid(length, 0)), Some(&length));
            assert_eq!(map.get(&cid(length, 1)), (length == 0).then_some(&length));
        }
        for length in 0..=20 {
            map.remove(&cid(length, 0));
        }
        assert_eq!(map.len(), 0);
    }

    #[test]
    fn a_list_keeps_its_order() {
        let mut list = CidList::default();
        for length in [8, 0, 20, 4] {
            list.push(&cid(length, 7));
        }
        assert!(!list.remove(&cid(8, 6)));
        assert!(!list.remove(&cid(7, 7)));
        assert!(list.remove(&cid(20, 7)));
        let lengths = |list: &CidList| Vec::from_iter(list.iter().map(<[u8]>::len));
        assert_eq!(lengths(&list), [8, 0, 4]);
        assert_eq!(list.overflow(3), None);
        assert_eq!(list.overflow(2), Some(cid(8, 7)));
        assert!(list.remove(&cid(0, 7)));
        assert!(list.remove(&cid(4, 7)));
        assert!(!list.remove(&cid(4, 7)));
        assert_eq!(list.overflow(0), None);
        assert_eq!(list.iter().count(), 0);
    }
}
