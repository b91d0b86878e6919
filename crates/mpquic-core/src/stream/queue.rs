//! [`StreamQueue`]: decides which stream is next: the most urgent one, with round robin among those
//! of equal priority.

/// No stream.
const NONE: u32 = u32::MAX;

/// A queue of keys, each with a priority. Every operation takes constant time as long as there are
/// few different priorities; nothing is allocated once the largest key was seen.
#[derive(Debug, Default)]
pub(crate) struct StreamQueue {
    /// One node per key ever seen: lists linked through indices.
    nodes: Vec<Node>,
    /// Most urgent first; no level is empty.
    levels: Vec<Level>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    previous: u32,
    next: u32,
    priority: i32,
    queued: bool,
}

impl Node {
    const ABSENT: Self = Self {
        previous: NONE,
        next: NONE,
        priority: 0,
        queued: false,
    };
}

#[derive(Debug, Clone, Copy)]
struct Level {
    priority: i32,
    first: u32,
    last: u32,
}

impl StreamQueue {
    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.levels.capacity() * size_of::<Level>()
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        if self.is_empty() {
            self.nodes = Vec::new();
            self.levels = Vec::new();
        }
    }

    /// True if nothing is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// True if `key` is queued.
    pub(crate) fn contains(&self, key: u32) -> bool {
        self.nodes.get(key as usize).is_some_and(|n| n.queued)
    }

    /// The key that is next.
    pub(crate) fn front(&self) -> Option<u32> {
        self.levels.first().map(|level| level.first)
    }

    /// Queues `key` behind those of equal priority. A key that is queued already keeps its place.
    pub(crate) fn insert(&mut self, key: u32, priority: i32) {
        let index = key as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, Node::ABSENT);
        }
        if self.nodes[index].queued {
            return;
        }
        let mut node = Node {
            priority,
            queued: true,
            ..Node::ABSENT
        };
        match self.level(priority) {
            Ok(at) => {
                let level = &mut self.levels[at];
                node.previous = level.last;
                self.nodes[level.last as usize].next = key;
                level.last = key;
            }
            Err(at) => {
                let (first, last) = (key, key);
                let level = Level {
                    priority,
                    first,
                    last,
                };
                self.levels.insert(at, level);
            }
        }
        self.nodes[index] = node;
    }

    /// Removes `key`, if it is queued.
    pub(crate) fn remove(&mut self, key: u32) {
        let Some(node) = self.nodes.get_mut(key as usize).filter(|n| n.queued) else {
            return;
        };
        let node = std::mem::replace(node, Node::ABSENT);
        if node.previous != NONE {
            self.nodes[node.previous as usize].next = node.next;
        }
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        if node.previous != NONE && node.next != NONE {
            return;
        }
        if let Ok(at) = self.level(node.priority) {
            let level = &mut self.levels[at];
            match (node.previous, node.next) {
                (NONE, NONE) => {
                    self.levels.remove(at);
                }
                (NONE, next) => level.first = next,
                (previous, _) => level.last = previous,
            }
        }
    }

    /// Queues `key` or removes it.
    pub(crate) fn set(&mut self, key: u32, priority: i32, queued: bool) {
        if queued != self.contains(key) {
            if queued {
                self.insert(key, priority);
            } else {
                self.remove(key);
            }
        }
    }

    /// Moves `key` behind those of equal priority, if it is queued.
    pub(crate) fn rotate(&mut self, key: u32) {
        if let Some(node) = self.nodes.get(key as usize).copied()
            && node.queued
            && node.next != NONE
        {
            self.remove(key);
            self.insert(key, node.priority);
        }
    }

    /// Moves `key` to another priority, if it is queued.
    pub(crate) fn set_priority(&mut self, key: u32, priority: i32) {
        if self.contains(key) {
            self.remove(key);
            self.insert(key, priority);
        }
    }

    /// All keys, the next one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.levels.iter().flat_map(|level| {
            std::iter::successors(Some(level.first), |&key| {
                self.nodes
                    .get(key as usize)
                    .map(|node| node.next)
                    .filter(|&next| next != NONE)
            })
        })
    }

    /// Where the level of `priority` is, or would be.
    fn level(&self, priority: i32) -> Result<usize, usize> {
        self.levels
            .binary_search_by(|level| priority.cmp(&level.priority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(queue: &StreamQueue) -> Vec<u32> {
        queue.iter().collect()
    }

    #[test]
    fn urgent_first_then_round_robin() {
        let mut queue = StreamQueue::default();
        for (key, priority) in [(0, 0), (1, 5), (2, 0), (3, -1), (4, 5), (5, 0)] {
            queue.insert(key, priority);
        }
        queue.insert(0, 9);
        assert_eq!(keys(&queue), [1, 4, 0, 2, 5, 3]);
        queue.rotate(1);
        assert_eq!(keys(&queue), [4, 1, 0, 2, 5, 3]);
        queue.set_priority(5, 7);
        assert_eq!(keys(&queue), [5, 4, 1, 0, 2, 3]);
        queue.remove(4);
        queue.remove(4);
        queue.remove(77);
        assert_eq!(keys(&queue), [5, 1, 0, 2, 3]);
        queue.rotate(3);
        assert_eq!(queue.front(), Some(5));
    }

    proptest::proptest! {
        #[test]
        fn behaves_like_a_sorted_list(
            operations in proptest::collection::vec((0u32..12, 0u8..4, -2i32..3), 0..200),
        ) {
            let mut queue = StreamQueue::default();
            // Most urgent first; stable, so equals keep their order.
            let mut model: Vec<(i32, u32)> = Vec::new();
            for (key, operation, priority) in operations {
                let place = model.iter().position(|&(_, k)| k == key);
                match operation {
                    0 | 1 => {
                        queue.insert(key, priority);
                        if place.is_none() {
                            model.push((priority, key));
                        }
                    }
                    2 => {
                        queue.remove(key);
                        if let Some(place) = place {
                            model.remove(place);
                        }
                    }
                    _ => {
                        queue.rotate(key);
                        if let Some(place) = place {
                            let entry = model.remove(place);
                            model.push(entry);
                        }
                    }
                }
                model.sort_by_key(|&(priority, _)| -priority);
                let expected: Vec<u32> = model.iter().map(|&(_, key)| key).collect();
                proptest::prop_assert_eq!(keys(&queue), expected);
            }
        }
    }
}
