//! [`Plan`]: what a client asks for and when, with all numbers fixed for one run.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::video::Video;
use crate::scenario::{Kind, Page, Workload};

/// Size of an object that never ends.
pub(super) const ENDLESS: u64 = 1 << 60;

/// An object that is transferred on a stream of its own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    /// Index into the names of the plan.
    pub(super) kind: usize,
    /// Bytes.
    pub(super) request: Request,
    /// Objects that must have arrived before it is asked for.
    pub(super) after: Range<usize>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Request {
    /// Bytes.
    pub(super) size: u64,
    /// Bit/s the source produces; 0 for as much as is taken.
    pub(super) rate: f64,
    /// Stream priority.
    pub(super) priority: i32,
}

impl Request {
    pub(super) const BYTES: usize = 20;

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

/// What a client transfers.
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
    pub(super) fn new(workload: &Workload, values: &[f64]) -> Self {
        let endless = |rate: f64| Request {
            size: ENDLESS,
            rate,
            priority: 0,
        };
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
            Kind::Video {
                rates,
                segment,
                duration,
            } => Self::Video(Video::new(rates.clone(), *segment, *duration)),
        }
    }

    /// All objects, if it consists of objects.
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

    /// Transfers as much as possible, until it is stopped.
    pub(super) fn competitor() -> Self {
        let request = Request {
            size: ENDLESS,
            rate: 0.0,
            priority: 0,
        };
        Self::Stream(request, Duration::MAX)
    }
}

fn flows(count: usize, size: u64) -> Vec<Object> {
    let object = |index: usize| Object {
        kind: 0,
        request: Request {
            size,
            rate: 0.0,
            priority: 0,
        },
        after: index.saturating_sub(1)..index,
    };
    (0..count).map(object).collect()
}

fn page_objects(page: &Page, values: &[f64]) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (kind, of_kind) in page.objects.iter().enumerate() {
        let first = objects.len();
        let after = of_kind.after.map_or(0..0, |kind| ranges[kind].clone());
        let request = Request {
            size: of_kind.size.bytes(values),
            rate: 0.0,
            priority: of_kind.priority,
        };
        objects.extend((0..of_kind.count).map(|_| Object {
            kind,
            request,
            after: after.clone(),
        }));
        ranges.push(first..objects.len());
    }
    objects
}

/// When an object was asked for, and how far its transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Progress {
    pub(super) requested: Option<Instant>,
    pub(super) finished: Option<Instant>,
}
