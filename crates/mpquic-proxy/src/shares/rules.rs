//! The rules of one resource: which takers hold units, wait for units, and give way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::activity::Measure;
use super::taker::Taker;
use crate::giving_way::{Order, Use};

/// Number of waiting takers to look at in one step.
const LOOKED_AT: usize = 16;

/// The parameters of one resource.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Number of units.
    pub capacity: u64,
    /// A taker may have up to this number of units, even if fewer units are left for others.
    pub floor: u64,
    /// A taker with this waiting time may get units of the largest taker.
    pub grace: Duration,
    /// While other takers wait, a holding ends when its use lies behind the clock by this time.
    pub window: Duration,
}

/// The number of a request for units, and of its holding.
pub(super) type Ticket = u64;

/// The state of a request or a holding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Granted,
    /// The holding has given way.
    Ended,
}

/// A request for units.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) taker: Taker,
    pub(super) units: u64,
    /// The limit of this taker.
    pub(super) most: u64,
    pub(super) measure: Arc<dyn Measure>,
}

#[derive(Debug)]
struct Asked {
    ask: Ask,
    since: Instant,
    is_held: bool,
}

#[derive(Debug, Default)]
struct Taking {
    units: u64,
    order: Order<Reverse<Ticket>>,
    waiting: BTreeSet<Ticket>,
    /// Keys of the taker in `by_size` and in `queue`.
    places: (Option<u64>, Option<(u64, Ticket)>),
}

/// One resource.
#[derive(Debug)]
pub(super) struct Shares {
    rules: Rules,
    used: u64,
    began: Instant,
    next: Ticket,
    asked: BTreeMap<Ticket, Asked>,
    takers: BTreeMap<Taker, Taking>,
    /// The largest taker is the last.
    by_size: BTreeSet<(u64, Taker)>,
    /// Waiting takers by their units, then by their oldest request.
    queue: BTreeSet<(u64, Ticket, Taker)>,
    /// All holdings.
    order: Order<Reverse<Ticket>>,
}

impl Shares {
    pub(super) fn new(rules: Rules, now: Instant) -> Self {
        Self {
            rules,
            used: 0,
            began: now,
            next: 0,
            asked: BTreeMap::new(),
            takers: BTreeMap::new(),
            by_size: BTreeSet::new(),
            queue: BTreeSet::new(),
            order: Order::default(),
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn used_by(&self, taker: &Taker) -> u64 {
        self.takers.get(taker).map_or(0, |taking| taking.units)
    }

    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.rules.capacity = capacity;
    }

    /// A taker asks for units. [`Self::settle`] tells when the taker has them.
    pub(super) fn ask(&mut self, mut ask: Ask, now: Instant) -> Ticket {
        ask.units = ask.units.min(self.rules.capacity);
        let ticket = self.next;
        self.next += 1;
        let taker = ask.taker.clone();
        let taking = self.takers.entry(taker.clone()).or_default();
        taking.waiting.insert(ticket);
        let asked = Asked {
            ask,
            since: now,
            is_held: false,
        };
        self.asked.insert(ticket, asked);
        self.place(&taker);
        ticket
    }

    /// Ends a holding, or a request that is no longer wanted.
    pub(super) fn end(&mut self, ticket: Ticket) {
        let Some(Asked { ask, is_held, .. }) = self.asked.remove(&ticket) else {
            return;
        };
        if let Some(taking) = self.takers.get_mut(&ask.taker) {
            taking.waiting.remove(&ticket);
            if is_held {
                taking.units = taking.units.saturating_sub(ask.units);
                taking.order.remove(&Reverse(ticket));
                self.order.remove(&Reverse(ticket));
                self.used = self.used.saturating_sub(ask.units);
            }
        }
        self.place(&ask.taker);
    }

    /// Reduces the units of a holding.
    pub(super) fn shrink(&mut self, ticket: Ticket, units: u64) {
        let Some(asked) = self.asked.get_mut(&ticket).filter(|asked| asked.is_held) else {
            return;
        };
        let less = asked.ask.units.saturating_sub(units);
        asked.ask.units -= less;
        let taker = asked.ask.taker.clone();
        if let Some(taking) = self.takers.get_mut(&taker) {
            taking.units = taking.units.saturating_sub(less);
        }
        self.used = self.used.saturating_sub(less);
        self.place(&taker);
    }

    /// Replaces the measure of a holding.
    pub(super) fn measure(&mut self, ticket: Ticket, measure: Arc<dyn Measure>, now: Instant) {
        let Some(asked) = self.asked.get_mut(&ticket) else {
            return;
        };
        asked.ask.measure = measure;
        if asked.is_held {
            let taker = asked.ask.taker.clone();
            self.put_in_order(ticket, &taker, now);
        }
    }

    /// Grants requests, and ends holdings for waiting takers. To be called after each change, and
    /// at [`Self::next_timeout`].
    pub(super) fn settle(&mut self, now: Instant) -> Vec<(Ticket, Turn)> {
        let mut turns = Vec::new();
        while let Some(turn) = self.step(now) {
            turns.push(turn);
        }
        turns
    }

    fn step(&mut self, now: Instant) -> Option<(Ticket, Turn)> {
        let first = self.queue.iter().take(LOOKED_AT);
        let first: Vec<_> = first.map(|(_, ticket, _)| *ticket).collect();
        for ticket in first {
            if self.fits(ticket) {
                self.grant(ticket, now);
                return Some((ticket, Turn::Granted));
            }
            if let Some(victim) = self.victim(ticket, now) {
                self.end(victim);
                return Some((victim, Turn::Ended));
            }
        }
        None
    }

    /// The time for the next [`Self::settle`] of a waiting request, without changes before.
    pub(super) fn next_timeout(&mut self, ticket: Ticket, now: Instant) -> Option<Instant> {
        let asked = self.asked.get(&ticket)?;
        let grace = asked.since.checked_add(self.rules.grace);
        let taker = asked.ask.taker.clone();
        let idle = [self.idlest_of(&taker, now), self.idlest(now)];
        let idle = idle.into_iter().flatten();
        let idle = idle.filter_map(|(used, _)| used.last.checked_add(self.rules.window));
        let due = idle.chain(grace).filter(|at| *at > now);
        due.min()
    }

    pub(super) fn left(&self) -> u64 {
        self.rules.capacity.saturating_sub(self.used)
    }

    /// Rules 1 and 2.
    fn fits(&self, ticket: Ticket) -> bool {
        let Some(Asked { ask, .. }) = self.asked.get(&ticket) else {
            return false;
        };
        let has = self.takers.get(&ask.taker).map_or(0, |taking| taking.units);
        let would_have = has.saturating_add(ask.units);
        let Some(left) = self.left().checked_sub(ask.units) else {
            return false;
        };
        let is_fair = has == 0 || would_have <= left.max(self.rules.floor);
        would_have <= ask.most && is_fair
    }

    fn grant(&mut self, ticket: Ticket, now: Instant) {
        let Some(asked) = self.asked.get_mut(&ticket) else {
            return;
        };
        asked.is_held = true;
        let (taker, units) = (asked.ask.taker.clone(), asked.ask.units);
        self.used += units;
        if let Some(taking) = self.takers.get_mut(&taker) {
            taking.waiting.remove(&ticket);
            taking.units += units;
        }
        self.put_in_order(ticket, &taker, now);
        self.place(&taker);
    }

    fn put_in_order(&mut self, ticket: Ticket, taker: &Taker, now: Instant) {
        let used = used(&self.asked, self.began, now)(&Reverse(ticket));
        if let Some(taking) = self.takers.get_mut(taker) {
            taking.order.insert(Reverse(ticket), used);
        }
        self.order.insert(Reverse(ticket), used);
    }

    /// The holding that gives way to a waiting request.
    fn victim(&mut self, ticket: Ticket, now: Instant) -> Option<Ticket> {
        let Asked { ask, since, .. } = self.asked.get(&ticket)?;
        let (taker, units, most) = (ask.taker.clone(), ask.units, ask.most);
        let has_waited = now.saturating_duration_since(*since) >= self.rules.grace;
        let has = self.takers.get(&taker).map_or(0, |taking| taking.units);
        let window = self.rules.window;
        let is_behind =
            |(used, _): &(Use, Ticket)| now.saturating_duration_since(used.last) >= window;
        let own = self.idlest_of(&taker, now);
        // Rule 6
        let is_at_limit = has.saturating_add(units) > most;
        let of_no_use = own.filter(|(used, _)| is_at_limit && !used.is_answered);
        // Rule 4
        if let Some((_, victim)) = of_no_use.or(own.filter(is_behind)) {
            return Some(victim);
        }
        if is_at_limit || units <= self.left() {
            return None;
        }
        let behind = self.idlest(now).filter(is_behind);
        let behind = behind.filter(|(_, victim)| self.beside(*victim) >= has.saturating_add(units));
        if let Some((_, victim)) = behind {
            return Some(victim);
        }
        // Rule 5
        let largest = self.by_size.last().map(|(_, taker)| taker.clone())?;
        let (_, victim) = self.idlest_of(&largest, now).filter(|_| has_waited)?;
        let given = self.asked.get(&victim)?.ask.units;
        let left = self.takers.get(&largest)?.units.saturating_sub(given);
        (left >= has.saturating_add(units)).then_some(victim)
    }

    /// Units of the taker of a holding.
    fn beside(&self, ticket: Ticket) -> u64 {
        let asked = self.asked.get(&ticket);
        let taking = asked.and_then(|asked| self.takers.get(&asked.ask.taker));
        taking.map_or(0, |taking| taking.units)
    }

    /// The first holding of a taker to give way.
    fn idlest_of(&mut self, taker: &Taker, now: Instant) -> Option<(Use, Ticket)> {
        let used = used(&self.asked, self.began, now);
        let order = &mut self.takers.get_mut(taker)?.order;
        order
            .first(used)
            .map(|(used, Reverse(first))| (used, first))
    }

    fn idlest(&mut self, now: Instant) -> Option<(Use, Ticket)> {
        let used = used(&self.asked, self.began, now);
        let first = self.order.first(used);
        first.map(|(used, Reverse(first))| (used, first))
    }

    /// Updates the keys of a taker after a change. Forgets a taker without holdings and requests.
    fn place(&mut self, taker: &Taker) {
        let Some(taking) = self.takers.get_mut(taker) else {
            return;
        };
        let (size, queued) = taking.places;
        if let Some(units) = size {
            self.by_size.remove(&(units, taker.clone()));
        }
        if let Some((units, ticket)) = queued {
            self.queue.remove(&(units, ticket, taker.clone()));
        }
        if taking.order.len() == 0 && taking.waiting.is_empty() {
            self.takers.remove(taker);
            return;
        }
        let first = taking.waiting.first().copied();
        taking.places = (
            Some(taking.units),
            first.map(|ticket| (taking.units, ticket)),
        );
        self.by_size.insert((taking.units, taker.clone()));
        if let Some(ticket) = first {
            self.queue.insert((taking.units, ticket, taker.clone()));
        }
    }
}

/// The use of a holding, with its time in whole seconds. Of holdings with equal use, the newest
/// gives way first.
fn used(
    asked: &BTreeMap<Ticket, Asked>,
    began: Instant,
    now: Instant,
) -> impl Fn(&Reverse<Ticket>) -> Use {
    move |Reverse(ticket)| {
        let used = asked.get(ticket).map(|asked| asked.ask.measure.used(now));
        let used = used.unwrap_or(Use {
            is_answered: true,
            last: now,
        });
        if !used.is_answered {
            return used;
        }
        let seconds = used.last.saturating_duration_since(began).as_secs();
        Use {
            last: began + Duration::from_secs(seconds),
            ..used
        }
    }
}
