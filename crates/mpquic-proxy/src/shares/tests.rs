//! Tests of the rules: each fails without its rule.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::time::{Instant, advance};

use super::*;

const WINDOW: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(1);

fn pool(capacity: u64, floor: u64) -> Pool {
    Pool::new(Rules {
        capacity,
        floor,
        grace: GRACE,
        window: WINDOW,
    })
}

fn taker(name: &str) -> Taker {
    Taker::User(name.into())
}

fn take(pool: &Pool, name: &str) -> Option<Holding> {
    pool.try_take(&taker(name), 1)
}

fn has_ended(holding: &Holding) -> bool {
    holding.gives_way().now_or_never().is_some()
}

/// Rule 1
#[tokio::test(start_paused = true)]
async fn one_taker_leaves_as_much_as_it_has() {
    let pool = pool(16, 1);
    let mut held = Vec::new();
    let mut take_all = |name: &str| {
        let before = held.len();
        held.extend(std::iter::from_fn(|| take(&pool, name)));
        held.len() - before
    };
    assert_eq!(["a", "b", "c", "d"].map(&mut take_all), [8, 4, 2, 1]);
    assert_eq!(
        ["e", "f"].map(take_all),
        [1, 0],
        "one for each as long as there are some"
    );
}

/// Rule 1
#[tokio::test(start_paused = true)]
async fn a_floor_is_for_everybody() {
    let pool = pool(16, 12);
    let held: Vec<_> = std::iter::from_fn(|| take(&pool, "a")).collect();
    assert_eq!(held.len(), 12);
}

/// Rule 2
#[tokio::test(start_paused = true)]
async fn a_taker_has_a_limit_of_its_own() {
    let pool = pool(100, 100);
    let take = || pool.try_take_of(&taker("a"), 1, 3);
    let held: Vec<_> = std::iter::from_fn(take).collect();
    assert_eq!(held.len(), 3);
}

/// Rule 3
#[tokio::test(start_paused = true)]
async fn taker_with_least_units_is_first() {
    let pool = pool(3, 3);
    let (a, b) = (taker("a"), taker("b"));
    let mut held: Vec<_> = std::iter::from_fn(|| take(&pool, "a")).collect();
    assert_eq!(held.len(), 3);
    let greedy = pool.take(&a, 1);
    let modest = pool.take(&b, 1);
    tokio::pin!(greedy, modest);
    assert!(greedy.as_mut().now_or_never().is_none(), "it came first");
    assert!(modest.as_mut().now_or_never().is_none());
    held.pop();
    assert!(greedy.as_mut().now_or_never().is_none());
    assert!(modest.as_mut().now_or_never().is_some());
}

/// Rule 4
#[tokio::test(start_paused = true)]
async fn slow_holding_ends_while_others_wait() {
    let pool = pool(1, 1);
    let held = take(&pool, "a").unwrap();
    let start = Instant::now();
    advance(3 * WINDOW).await;
    assert!(!has_ended(&held), "nobody waits");
    held.activity().renew();
    let b = taker("b");
    let other = tokio::time::timeout(2 * WINDOW, pool.take(&b, 1)).await;
    let other = other.expect("units of a holding that is behind");
    let waited = start.elapsed() - 3 * WINDOW;
    assert!(
        has_ended(&held) && waited <= WINDOW && waited > WINDOW / 2,
        "{waited:?}"
    );
    // A holding with the least rate stays, although others wait.
    let waiting = pool.take(&b, 1);
    tokio::pin!(waiting);
    for _ in 0..60 {
        advance(Duration::from_secs(1)).await;
        other.activity().on_bytes(1000);
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    assert!(!has_ended(&other));
}

/// Rule 4
#[tokio::test(start_paused = true)]
async fn a_larger_taker_ends_nothing_of_a_smaller_one() {
    let pool = pool(4, 4);
    let small = take(&pool, "a").unwrap();
    let large = [(); 3].map(|()| take(&pool, "b").unwrap());
    advance(2 * WINDOW).await;
    large.iter().for_each(|holding| holding.activity().renew());
    assert!(take(&pool, "b").is_none() && !has_ended(&small));
    assert!(take(&pool, "c").is_some() && has_ended(&small));
}

/// Rule 5
#[tokio::test(start_paused = true)]
async fn the_largest_taker_gives_way_to_who_has_waited() {
    let pool = pool(4, 4);
    let held: Vec<_> = std::iter::from_fn(|| take(&pool, "a")).collect();
    advance(Duration::from_secs(5)).await;
    for (index, holding) in held.iter().enumerate() {
        if index != 1 {
            holding.activity().renew();
        }
    }
    let start = Instant::now();
    let first = pool.take(&taker("b"), 1).await;
    assert!(start.elapsed() >= GRACE && start.elapsed() < 2 * GRACE);
    let ended: Vec<_> = held.iter().map(has_ended).collect();
    assert_eq!(ended, [false, true, false, false], "the one that is behind");
    held.iter().for_each(|holding| holding.activity().renew());
    let second = pool.take(&taker("c"), 1).await;
    let ended: Vec<_> = held.iter().map(has_ended).collect();
    assert_eq!(ended, [false, true, false, true], "the newest");
    // The largest taker has two units, the others one: giving way would gain nothing.
    let waiting = tokio::time::timeout(WINDOW / 2, pool.take(&taker("b"), 1)).await;
    assert!(waiting.is_err());
    assert!(!has_ended(&first) && !has_ended(&second));
}

#[derive(Debug)]
struct Useless(Instant);

impl Measure for Useless {
    fn used(&self, _: Instant) -> crate::giving_way::Use {
        crate::giving_way::Use {
            is_answered: false,
            last: self.0,
        }
    }
}

/// Rule 6
#[tokio::test(start_paused = true)]
async fn at_its_limit_a_taker_gives_up_what_is_of_no_use() {
    let pool = pool(100, 100);
    let take = || pool.try_take_of(&taker("a"), 1, 2);
    let [first, second] = [take().unwrap(), take().unwrap()];
    assert!(take().is_none());
    first.measure(std::sync::Arc::new(Useless(Instant::now())));
    let third = take();
    assert!(third.is_some() && has_ended(&first) && !has_ended(&second));
}

#[derive(Debug, Clone)]
enum Step {
    Ask { taker: usize, units: u64 },
    End { index: usize },
    Use { index: usize },
    Pass { millis: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4_usize, 1..4_u64).prop_map(|(taker, units)| Step::Ask { taker, units }),
        (0..50_usize).prop_map(|index| Step::End { index }),
        (0..50_usize).prop_map(|index| Step::Use { index }),
        (0..20_000_u64).prop_map(|millis| Step::Pass { millis }),
    ]
}

proptest! {
    /// After any steps: the account is the sum of all holdings, and within the capacity. A taker
    /// without units does not wait while units are left, or while another taker has far more.
    #[test]
    fn nobody_waits_while_another_has_more(steps in prop::collection::vec(step(), 1..80)) {
        const CAPACITY: u64 = 12;
        let mut now = Instant::now();
        let mut shares = rules::Shares::new(Rules { capacity: CAPACITY, floor: 2, grace: GRACE, window: WINDOW }, now);
        let mut known = BTreeMap::new();
        let names = ["a", "b", "c", "d"].map(taker);
        for step in steps {
            let nth = |index: usize| known.keys().copied().nth(index % known.len().max(1));
            match step {
                Step::Ask { taker, units } => {
                    let activity = Activity::new(now);
                    let ask = rules::Ask { taker: names[taker].clone(), units, most: 10, measure: activity.clone() };
                    known.insert(shares.ask(ask, now), (taker, units, false, activity));
                }
                Step::End { index } => if let Some(ticket) = nth(index) {
                    known.remove(&ticket);
                    shares.end(ticket);
                },
                Step::Use { index } => if let Some(ticket) = nth(index) {
                    known[&ticket].3.renew_at(now);
                },
                Step::Pass { millis } => now += Duration::from_millis(millis),
            }
            for (ticket, turn) in shares.settle(now) {
                match turn {
                    rules::Turn::Granted => known.get_mut(&ticket).unwrap().2 = true,
                    rules::Turn::Ended => drop(known.remove(&ticket).unwrap()),
                }
            }
            let mut has = [0; 4];
            for (taker, units, is_held, _) in known.values() {
                if *is_held {
                    has[*taker] += units;
                }
            }
            let sum: u64 = has.iter().sum();
            prop_assert_eq!(sum, shares.used());
            prop_assert!(sum <= CAPACITY);
            let mut first = [true; 4];
            for (taker, units, is_held, _) in known.values().filter(|(.., is_held, _)| !is_held) {
                if std::mem::take(&mut first[*taker]) && has[*taker] == 0 {
                    prop_assert!(!is_held && CAPACITY - sum < *units, "there is room");
                }
            }
        }
    }
}
