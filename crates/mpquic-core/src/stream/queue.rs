//! [`StreamQueue`]: chooses the next stream by urgency, and by turns among equally urgent streams.

/// No stream.
const NONE: u32 = u32::MAX;

/// With a floor, each byte of a priority counts as one byte owed to each lower priority for this
/// number of bytes: three lower priorities then have a tenth each.
const BYTES_FOR_ONE: u64 = 7;
/// A priority goes first once this number of bytes is owed to it: a packet.
const OWED_PACKET: u64 = 1200;
/// Most bytes that are owed to a priority, so that it cannot hold up other priorities for long.
const MOST_OWED: u64 = 32 << 10;

/// Bytes that are owed to a party that others go ahead of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Owed(u64);

impl Owed {
    /// A packet is owed.
    pub(super) const PACKET: Self = Self(OWED_PACKET);

    /// Others went ahead with this number of bytes.
    pub(super) fn on_passed(&mut self, bytes: u64) {
        self.0 = (self.0 + bytes / BYTES_FOR_ONE).min(MOST_OWED);
    }

    /// The party had its turn with this number of bytes.
    pub(super) fn on_served(&mut self, bytes: u64) {
        self.0 = self.0.saturating_sub(bytes);
    }

    /// True if the party goes first.
    pub(super) fn is_due(self) -> bool {
        self.0 >= OWED_PACKET
    }
}

/// Where a stream stands among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rank {
    /// Larger is more urgent.
    pub(crate) priority: i32,
    /// Streams with a number are sent one after the other, the smallest number first, and take one
    /// turn together. Streams without a number take one turn each.
    pub(crate) in_order: Option<u64>,
}

/// A queue of keys, each with a rank. Every operation takes constant time as long as there are few
/// different priorities, and those that go in order come and go in order; nothing is allocated once
/// the largest key was seen.
#[derive(Debug, Default)]
pub(crate) struct StreamQueue {
    /// One node per key ever seen: lists linked through indices.
    nodes: Vec<Node>,
    /// Most urgent first; no level is without turns.
    levels: Vec<Level>,
    /// Less urgent keys have a part of the turns.
    has_floor: bool,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    previous: u32,
    next: u32,
    priority: i32,
    place: Place,
    /// Of those that go in order.
    number: u64,
}

impl Node {
    const ABSENT: Self = Self {
        previous: NONE,
        next: NONE,
        priority: 0,
        place: Place::Absent,
        number: 0,
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Absent,
    /// Takes turns.
    Turns,
    /// The first in-order stream: it takes turns on behalf of all in-order streams.
    Foremost,
    /// An in-order stream behind the foremost.
    Waiting,
}

/// Keys that are equally urgent.
#[derive(Debug, Clone, Copy)]
struct Level {
    priority: i32,
    /// Streams that take turns, in the order of their turns.
    turns: List,
    /// Key of the stream at the head of those sent in order, or `NONE`.
    foremost: u32,
    /// In-order streams behind the head, in their order.
    waiting: List,
    /// Of the bytes of more urgent levels.
    owed: Owed,
}

/// The ends of a list, or none.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };

    /// Puts `key` behind `previous`, or in front of all.
    fn link(&mut self, nodes: &mut [Node], key: u32, previous: u32) {
        let next = match nodes.get_mut(previous as usize) {
            Some(before) => std::mem::replace(&mut before.next, key),
            None => std::mem::replace(&mut self.first, key),
        };
        match nodes.get_mut(next as usize) {
            Some(behind) => behind.previous = key,
            None => self.last = key,
        }
        if let Some(node) = nodes.get_mut(key as usize) {
            (node.previous, node.next) = (previous, next);
        }
    }

    /// Takes `key` out. Returns what it stood behind.
    fn unlink(&mut self, nodes: &mut [Node], key: u32) -> u32 {
        let Some(&Node { previous, next, .. }) = nodes.get(key as usize) else {
            return NONE;
        };
        match nodes.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.first = next,
        }
        match nodes.get_mut(next as usize) {
            Some(behind) => behind.previous = previous,
            None => self.last = previous,
        }
        previous
    }
}

impl Level {
    fn new(priority: i32) -> Self {
        Self {
            priority,
            turns: List::EMPTY,
            foremost: NONE,
            waiting: List::EMPTY,
            owed: Owed::default(),
        }
    }

    fn insert(&mut self, nodes: &mut [Node], key: u32, rank: Rank) {
        let Some(number) = rank.in_order else {
            self.turns.link(nodes, key, self.turns.last);
            return set_place(nodes, key, Place::Turns);
        };
        let number_of = |nodes: &[Node], key: u32| nodes.get(key as usize).map(|it| it.number);
        match number_of(nodes, self.foremost) {
            None => {
                self.turns.link(nodes, key, self.turns.last);
                self.set_foremost(nodes, key);
            }
            Some(foremost) if number < foremost => {
                let before = self.foremost;
                let previous = self.turns.unlink(nodes, before);
                self.turns.link(nodes, key, previous);
                self.set_foremost(nodes, key);
                self.waiting.link(nodes, before, NONE);
                set_place(nodes, before, Place::Waiting);
            }
            Some(_) => {
                let mut previous = self.waiting.last;
                while number_of(nodes, previous).is_some_and(|other| other > number) {
                    previous = nodes[previous as usize].previous;
                }
                self.waiting.link(nodes, key, previous);
                set_place(nodes, key, Place::Waiting);
            }
        }
    }

    fn remove(&mut self, nodes: &mut [Node], key: u32, place: Place) {
        match place {
            Place::Absent => {}
            Place::Turns => drop(self.turns.unlink(nodes, key)),
            Place::Waiting => drop(self.waiting.unlink(nodes, key)),
            Place::Foremost => {
                let previous = self.turns.unlink(nodes, key);
                let next = self.waiting.first;
                if next == NONE {
                    self.foremost = NONE;
                } else {
                    self.waiting.unlink(nodes, next);
                    self.turns.link(nodes, next, previous);
                    self.set_foremost(nodes, next);
                }
            }
        }
    }

    fn set_foremost(&mut self, nodes: &mut [Node], key: u32) {
        self.foremost = key;
        set_place(nodes, key, Place::Foremost);
    }
}

fn set_place(nodes: &mut [Node], key: u32, place: Place) {
    if let Some(node) = nodes.get_mut(key as usize) {
        node.place = place;
    }
}

impl StreamQueue {
    /// An empty queue. With a floor, keys of each lower priority get at least a tenth of the bytes,
    /// as long as at most four priorities are queued.
    pub(super) fn with_floor(has_floor: bool) -> Self {
        Self {
            has_floor,
            ..Self::default()
        }
    }

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

    /// True for an empty queue.
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// True if `key` is queued.
    pub(crate) fn contains(&self, key: u32) -> bool {
        self.queued(key).is_some()
    }

    /// The key that is next.
    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        match self.levels.as_slice() {
            [_, lower @ ..] if self.has_floor && !lower.is_empty() => self.front_of_several(),
            levels => levels.first().map(|level| level.turns.first),
        }
    }

    /// The key that is next, of several levels with a floor.
    fn front_of_several(&self) -> Option<u32> {
        let mut due = self.levels.iter().filter(|level| level.owed.is_due());
        let level = due.next().or(self.levels.first());
        level.map(|level| level.turns.first)
    }

    /// This number of bytes of a queued `key` was sent.
    #[inline]
    pub(super) fn on_sent(&mut self, key: u32, bytes: u64) {
        if self.has_floor && self.levels.len() > 1 {
            self.charge(key, bytes);
        }
    }

    fn charge(&mut self, key: u32, bytes: u64) {
        let Some(at) = self.queued(key).map(|node| self.level(node.priority)) else {
            return;
        };
        if let Ok(at) = at
            && let [level, lower @ ..] = &mut self.levels[at..]
        {
            level.owed.on_served(bytes);
            (lower.iter_mut()).for_each(|level| level.owed.on_passed(bytes));
        }
    }

    /// Queues `key` behind those of equal rank. A key that is queued already keeps its place.
    pub(crate) fn insert(&mut self, key: u32, rank: Rank) {
        let index = key as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, Node::ABSENT);
        }
        if self.contains(key) {
            return;
        }
        self.nodes[index] = Node {
            priority: rank.priority,
            number: rank.in_order.unwrap_or(0),
            ..Node::ABSENT
        };
        let at = self.level(rank.priority).unwrap_or_else(|at| {
            self.levels.insert(at, Level::new(rank.priority));
            at
        });
        self.levels[at].insert(&mut self.nodes, key, rank);
    }

    /// Removes `key` from the queue.
    pub(crate) fn remove(&mut self, key: u32) {
        let Some(node) = self.queued(key) else {
            return;
        };
        if let Ok(at) = self.level(node.priority) {
            self.levels[at].remove(&mut self.nodes, key, node.place);
            if self.levels[at].turns.first == NONE {
                self.levels.remove(at);
            }
        }
        self.nodes[key as usize] = Node::ABSENT;
    }

    /// Queues `key` or removes it.
    pub(crate) fn set(&mut self, key: u32, rank: Rank, queued: bool) {
        if queued != self.contains(key) {
            if queued {
                self.insert(key, rank);
            } else {
                self.remove(key);
            }
        }
    }

    /// `key` has had its turn: a queued key moves behind keys of equal priority.
    pub(crate) fn rotate(&mut self, key: u32) {
        if let Some(node) = self.queued(key)
            && node.place != Place::Waiting
            && node.next != NONE
            && let Ok(at) = self.level(node.priority)
        {
            let turns = &mut self.levels[at].turns;
            turns.unlink(&mut self.nodes, key);
            turns.link(&mut self.nodes, key, turns.last);
        }
    }

    /// Moves `key` to another rank, if it is queued.
    pub(crate) fn set_rank(&mut self, key: u32, rank: Rank) {
        if self.contains(key) {
            self.remove(key);
            self.insert(key, rank);
        }
    }

    /// All keys, the next one first; keys sent in order after the head come at the end of their
    /// priority.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let lists = (self.levels.iter()).flat_map(|level| [level.turns, level.waiting]);
        let next = |key: &u32| Some(self.nodes.get(*key as usize)?.next).filter(|&it| it != NONE);
        lists.flat_map(move |list| {
            std::iter::successors(Some(list.first).filter(|&it| it != NONE), next)
        })
    }

    fn queued(&self, key: u32) -> Option<Node> {
        let node = self.nodes.get(key as usize).copied();
        node.filter(|node| node.place != Place::Absent)
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

    fn turns(priority: i32) -> Rank {
        Rank {
            priority,
            in_order: None,
        }
    }

    fn in_order(number: u64) -> Rank {
        Rank {
            priority: 0,
            in_order: Some(number),
        }
    }

    #[test]
    fn urgent_first_then_round_robin() {
        let mut queue = StreamQueue::default();
        for (key, priority) in [(0, 0), (1, 5), (2, 0), (3, -1), (4, 5), (5, 0)] {
            queue.insert(key, turns(priority));
        }
        queue.insert(0, turns(9));
        assert_eq!(keys(&queue), [1, 4, 0, 2, 5, 3]);
        queue.rotate(1);
        assert_eq!(keys(&queue), [4, 1, 0, 2, 5, 3]);
        queue.set_rank(5, turns(7));
        assert_eq!(keys(&queue), [5, 4, 1, 0, 2, 3]);
        queue.remove(4);
        queue.remove(4);
        queue.remove(77);
        assert_eq!(keys(&queue), [5, 1, 0, 2, 3]);
        queue.rotate(3);
        assert_eq!(queue.front(), Some(5));
    }

    // RFC 9218 section 10
    #[test]
    fn streams_in_order_share_one_turn() {
        let mut queue = StreamQueue::default();
        for (key, number) in [(0, 40), (1, 20), (2, 30)] {
            queue.insert(key, in_order(number));
        }
        assert_eq!(keys(&queue), [1, 2, 0]);
        queue.rotate(1);
        assert_eq!(keys(&queue), [1, 2, 0]);
        queue.insert(3, turns(0));
        queue.insert(4, turns(0));
        assert_eq!(keys(&queue), [1, 3, 4, 2, 0]);
        queue.rotate(1);
        assert_eq!(keys(&queue), [3, 4, 1, 2, 0]);
        // The next stream takes the place of a stream that has nothing to send for the moment,
        queue.remove(1);
        assert_eq!(keys(&queue), [3, 4, 2, 0]);
        queue.rotate(3);
        // which it gets back.
        queue.insert(1, in_order(20));
        assert_eq!(keys(&queue), [4, 1, 3, 2, 0]);
        queue.remove(2);
        queue.remove(1);
        queue.remove(0);
        assert_eq!(keys(&queue), [4, 3]);
    }

    proptest::proptest! {
        #[test]
        fn behaves_like_a_sorted_list(
            operations in proptest::collection::vec((0u32..12, 0u8..5, -2i32..3, 0u8..2), 0..200),
        ) {
            let mut queue = StreamQueue::default();
            let mut model = Model::default();
            for (key, operation, priority, is_in_order) in operations {
                let rank = Rank {
                    priority,
                    // Neither rises nor falls with the key.
                    in_order: (is_in_order == 1).then_some(u64::from(key * 5 % 12)),
                };
                match operation {
                    0 | 1 => {
                        queue.insert(key, rank);
                        model.insert(key, rank);
                    }
                    2 => {
                        queue.remove(key);
                        model.remove(key);
                    }
                    3 => {
                        queue.set_rank(key, rank);
                        if model.remove(key) {
                            model.insert(key, rank);
                        }
                    }
                    _ => {
                        queue.rotate(key);
                        model.rotate(key);
                    }
                }
                proptest::prop_assert_eq!(keys(&queue), model.keys());
                proptest::prop_assert_eq!(queue.front(), model.keys().first().copied());
            }
        }
    }

    /// A slow model of the rules: each priority has a list of turns, and all in-order streams share
    /// one turn.
    #[derive(Default)]
    struct Model {
        queued: std::collections::BTreeMap<u32, Rank>,
        /// The key of a stream that takes turns, or `None` for the turn of in-order streams.
        turns: Vec<(i32, Option<u32>)>,
    }

    impl Model {
        fn in_order(&self, priority: i32) -> Vec<u32> {
            let equal = self
                .queued
                .iter()
                .filter(|(_, rank)| rank.priority == priority);
            let mut numbered: Vec<_> = equal
                .filter_map(|(key, rank)| Some((rank.in_order?, *key)))
                .collect();
            numbered.sort_unstable();
            numbered.into_iter().map(|(_, key)| key).collect()
        }

        fn turn(key: u32, rank: Rank) -> (i32, Option<u32>) {
            (rank.priority, rank.in_order.is_none().then_some(key))
        }

        fn insert(&mut self, key: u32, rank: Rank) {
            if self.queued.contains_key(&key) {
                return;
            }
            self.queued.insert(key, rank);
            let turn = Self::turn(key, rank);
            if !self.turns.contains(&turn) {
                self.turns.push(turn);
            }
        }

        fn remove(&mut self, key: u32) -> bool {
            let Some(rank) = self.queued.remove(&key) else {
                return false;
            };
            if rank.in_order.is_none() || self.in_order(rank.priority).is_empty() {
                self.turns.retain(|turn| *turn != Self::turn(key, rank));
            }
            true
        }

        fn rotate(&mut self, key: u32) {
            let Some(&rank) = self.queued.get(&key) else {
                return;
            };
            let first = self.in_order(rank.priority).first().copied();
            if rank.in_order.is_none() || first == Some(key) {
                let turn = Self::turn(key, rank);
                self.turns.retain(|other| *other != turn);
                self.turns.push(turn);
            }
        }

        fn keys(&self) -> Vec<u32> {
            let mut keys = Vec::new();
            for priority in (-2..3).rev() {
                let in_order = self.in_order(priority);
                let turns = self.turns.iter().filter(|turn| turn.0 == priority);
                keys.extend(turns.filter_map(|turn| turn.1.or(in_order.first().copied())));
                keys.extend(in_order.iter().skip(1));
            }
            keys
        }
    }
}
