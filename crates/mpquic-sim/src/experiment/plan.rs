//! [`Plan`]: the requests of a client and their times, with all numbers fixed for one run.

use std::ops::Range;
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::video::Video;
use crate::scenario::{Kind, Page, Workload};

/// Size of an object that never ends, bytes.
pub(super) const ENDLESS: u64 = 1 << 60;

/// An object that is transferred on a stream of its own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    /// Index into the names of the plan.
    pub(super) kind: usize,
    /// Size, rate and priority.
    pub(super) request: Request,
    /// Objects that must arrive before the request of this object.
    pub(super) after: Vec<Range<usize>>,
    /// Delay of the request after the arrival of these objects, or after the beginning.
    pub(super) wait: Duration,
}

/// A request for an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Request {
    /// Bytes.
    pub(super) size: u64,
    /// Rate of the source, bit/s; 0 for as fast as the stream accepts bytes.
    pub(super) rate: f64,
    /// Stream priority.
    pub(super) priority: i32,
}

impl Request {
    pub(super) const BYTES: usize = 20;

    /// A request without priority.
    pub(super) fn new(size: u64, rate: f64) -> Self {
        Self {
            size,
            rate,
            priority: 0,
        }
    }

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.size.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.rate.to_be_bytes());
        bytes[16..].copy_from_slice(&self.priority.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk::<8>()?;
        let (rate, rest) = rest.split_first_chunk::<8>()?;
        let (priority, _) = rest.split_first_chunk::<4>()?;
        Some(Self {
            size: u64::from_be_bytes(*size),
            rate: f64::from_be_bytes(*rate),
            priority: i32::from_be_bytes(*priority),
        })
    }
}

/// The transfers of a client.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plan {
    /// These objects.
    Objects(Vec<Object>),
    /// One endless object, measured for a time.
    Stream(Request, Duration),
    /// A video.
    Video(Video),
}

impl Plan {
    /// `seed` is the seed of the random parts of the plan.
    pub(super) fn new(workload: &Workload, values: &[f64], seed: u64) -> Self {
        let endless = |rate| Request::new(ENDLESS, rate);
        match &workload.kind {
            Kind::File { size } => Self::Objects(flows(1, size.bytes(values))),
            Kind::Flows { count, size } => Self::Objects(flows(*count, size.bytes(values))),
            Kind::Page { pages, choice } => {
                let page = pages.get(choice.at(values) as usize);
                let objects = page.map(|page| page_objects(page, values));
                Self::Objects(objects.unwrap_or_default())
            }
            Kind::Constant { rate, duration } => {
                Self::Stream(endless(rate.at(values) * 1e6), *duration)
            }
            Kind::Bulk { duration } => Self::Stream(endless(0.0), *duration),
            Kind::Messages {
                every,
                poisson,
                size,
                duration,
                ..
            } => {
                let times = times(*every, *poisson, *duration, seed);
                Self::Objects(messages(&times, size.bytes(values)))
            }
            Kind::Video {
                rates,
                segment,
                duration,
            } => Self::Video(Video::new(rates.clone(), *segment, *duration)),
        }
    }

    /// All objects, if the plan consists of objects.
    pub(super) fn objects(&self) -> &[Object] {
        match self {
            Self::Objects(objects) => objects,
            Self::Stream(..) | Self::Video(_) => &[],
        }
    }

    /// Makes all objects equally urgent.
    pub(super) fn forget_priorities(&mut self) {
        if let Self::Objects(objects) = self {
            objects
                .iter_mut()
                .for_each(|object| object.request.priority = 0);
        }
    }

    /// A plan that transfers as much as possible, or at `rate` in Mbit/s, until the end of the run.
    pub(super) fn competitor(rate: Option<f64>) -> Self {
        let request = Request::new(ENDLESS, rate.unwrap_or(0.0) * 1e6);
        Self::Stream(request, Duration::MAX)
    }
}

/// An object of the only kind, without a rate of its own.
fn plain_object(size: u64, after: Vec<Range<usize>>, wait: Duration) -> Object {
    Object {
        kind: 0,
        request: Request::new(size, 0.0),
        after,
        wait,
    }
}

fn flows(count: usize, size: u64) -> Vec<Object> {
    let before = |index: usize| std::iter::once(index.saturating_sub(1)..index).collect();
    let object = |index| plain_object(size, before(index), Duration::ZERO);
    (0..count).map(object).collect()
}

/// The times at which messages begin; the first begins at once.
fn times(every: Duration, poisson: bool, duration: Duration, seed: u64) -> Vec<Duration> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut at = Duration::ZERO;
    let mut times = Vec::new();
    while at < duration {
        times.push(at);
        at += if poisson {
            every.mul_f64(-(1.0 - random.random::<f64>()).ln())
        } else {
            every
        };
    }
    times
}

fn messages(times: &[Duration], size: u64) -> Vec<Object> {
    let message = |wait: &Duration| plain_object(size, Vec::new(), *wait);
    times.iter().map(message).collect()
}

fn page_objects(page: &Page, values: &[f64]) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (kind, of_kind) in page.objects.iter().enumerate() {
        let first = objects.len();
        let after = of_kind.after.iter().map(|kind| ranges[*kind].clone());
        let after: Vec<_> = after.collect();
        let request = Request {
            size: of_kind.size.bytes(values),
            rate: 0.0,
            priority: of_kind.priority,
        };
        objects.extend((0..of_kind.count).map(|_| Object {
            kind,
            request,
            after: after.clone(),
            wait: of_kind.wait,
        }));
        ranges.push(first..objects.len());
    }
    objects
}

/// The progress of an object's transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Progress {
    /// When the request became due; set when the object was requested.
    pub(super) ready: Option<Instant>,
    pub(super) finished: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_begin_at_equal_or_random_intervals() {
        let (every, second) = (Duration::from_millis(10), Duration::from_secs(1));
        let equal = times(every, false, second, 1);
        assert_eq!(equal.len(), 100);
        assert_eq!((equal[0], equal[99]), (Duration::ZERO, every * 99));
        let random = times(every, true, 100 * second, 1);
        assert_eq!(random, times(every, true, 100 * second, 1));
        assert_ne!(random, times(every, true, 100 * second, 2));
        // 10000 messages are expected, within four standard deviations.
        assert!((9600..10_400).contains(&random.len()), "{}", random.len());
        // A share of 1/e of the intervals is longer than the mean.
        let long = random.windows(2).filter(|pair| pair[1] - pair[0] > every);
        let share = long.count() as f64 / random.len() as f64;
        assert!((share - 0.368).abs() < 0.02, "{share}");
    }

    fn plan(workload: &str) -> Plan {
        let text = format!(
            "schedulers = \"lrf\"\n{workload}\n[[path]]\nname = \"a\"\nrate_mbit = 1\nowd_ms = 5\n"
        );
        let scenario = crate::scenario::Scenario::parse("x", &text);
        let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
        Plan::new(&scenario.workload, &[], 1)
    }

    fn request(size: u64, priority: i32) -> Request {
        Request {
            size,
            rate: 0.0,
            priority,
        }
    }

    #[test]
    fn each_workload_becomes_a_plan() {
        let object = |size, after: Range<usize>| Object {
            kind: 0,
            request: request(size, 0),
            after: std::iter::once(after).collect(),
            wait: Duration::ZERO,
        };
        let file = plan("workload = { kind = \"file\", size_kb = 3 }");
        assert_eq!(file, Plan::Objects(vec![object(3000, 0..0)]));
        let flows = plan("workload = { kind = \"flows\", count = 3, size_kb = 2 }");
        let expected = [object(2000, 0..0), object(2000, 0..1), object(2000, 1..2)];
        assert_eq!(flows.objects(), expected);
        let second = Duration::from_secs(1);
        let bulk = plan("workload = { kind = \"bulk\", duration_s = 1 }");
        assert_eq!(bulk, Plan::Stream(request(1 << 60, 0), second));
        assert!(bulk.objects().is_empty());
        let cbr = plan("workload = { kind = \"cbr\", rate_mbit = 3, duration_s = 1 }");
        let endless = Request {
            rate: 3e6,
            ..request(1 << 60, 0)
        };
        assert_eq!(cbr, Plan::Stream(endless, second));
        let messages =
            plan("workload = { kind = \"messages\", every_ms = 400, size_kb = 1, duration_s = 1 }");
        let at = |wait| Object {
            wait: Duration::from_millis(wait),
            after: Vec::new(),
            ..object(1000, 0..0)
        };
        assert_eq!(messages.objects(), [0, 400, 800].map(at));
        let video = plan(
            "workload = { kind = \"video\", rates_mbit = [2], segment_s = 1, duration_s = 3 }",
        );
        let expected = Video::new(vec![2.0], second, 3 * second);
        assert_eq!(video, Plan::Video(expected));
        assert_eq!(
            Plan::competitor(None),
            Plan::Stream(request(1 << 60, 0), Duration::MAX)
        );
        assert_eq!(
            Plan::competitor(Some(3.0)),
            Plan::Stream(endless, Duration::MAX)
        );
    }

    #[test]
    fn objects_of_a_page_wait_for_the_objects_they_need() {
        let mut page = plan(
            "workload = { kind = \"streams\", streams = [\n\
             { name = \"x\", size_kb = 1, count = 2 },\n\
             { name = \"y\", size_kb = 2, priority = 5, wait_ms = 7 },\n\
             { name = \"z\", size_kb = 3, after = [\"y\", \"x\"] },\n] }",
        );
        let object = |kind, size, priority, after: &[Range<usize>], wait| Object {
            kind,
            request: request(size, priority),
            after: after.to_vec(),
            wait: Duration::from_millis(wait),
        };
        let expected = [
            object(0, 1000, 0, &[], 0),
            object(0, 1000, 0, &[], 0),
            object(1, 2000, 5, &[], 7),
            object(2, 3000, 0, &[2..3, 0..2], 0),
        ];
        assert_eq!(page.objects(), expected);
        page.forget_priorities();
        assert!(
            page.objects()
                .iter()
                .all(|object| object.request.priority == 0)
        );
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = Request {
            size: 0x0102_0304_0506_0708,
            rate: 2.5e6,
            priority: -9,
        };
        let bytes = request.encode();
        assert_eq!(bytes[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[8..16], 2.5e6_f64.to_be_bytes());
        assert_eq!(bytes[16..], (-9_i32).to_be_bytes());
        assert_eq!(Request::decode(&bytes), Some(request));
        assert_eq!(Request::decode(&bytes[..19]), None);
    }

    #[test]
    fn messages_begin_before_the_end() {
        let millis = Duration::from_millis;
        let of = |every, duration| times(millis(every), false, millis(duration), 1).len();
        assert_eq!([of(10, 30), of(10, 31), of(10, 1)], [3, 4, 1]);
    }
}
