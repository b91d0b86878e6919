//! The forwarding threads. A thread reads packets from TUN devices, runs the packets through the
//! model of their link, and writes each packet to the device of the other side when it is due.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{Errno, read, write};
use rustix::time::{ClockId, clock_gettime};
use thread_priority::unix::{
    RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

use crate::link::{Link, Plan, Stats};
use crate::packet::IpPacket;
use crate::process::end_netlab;

/// Packets read from one device before the other devices and due packets get a turn.
const BATCH: usize = 32;
/// Priority among real-time threads; any value beats ordinary programs.
const REALTIME_PRIORITY: u8 = 10;
/// A thread without a due packet looks around after a minute all the same.
const LONGEST_WAIT_NS: u64 = 60_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Events that one wait can bring.
const EVENTS: usize = 16;

/// The monotonic clock in nanoseconds.
fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * SECOND_NS + t.tv_nsec as u64
}

/// How well netlab itself kept time: the delivery of packets minus their due times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lateness {
    pub(crate) packets: u64,
    /// Nanoseconds.
    pub(crate) sum: u64,
    /// Nanoseconds.
    pub(crate) max: u64,
    pub(crate) over_200us: u64,
    pub(crate) over_1ms: u64,
    pub(crate) write_errors: u64,
}

impl Lateness {
    fn add(&mut self, ns: u64) {
        self.packets += 1;
        self.sum += ns;
        self.max = self.max.max(ns);
        self.over_200us += u64::from(ns > 200_000);
        self.over_1ms += u64::from(ns > 1_000_000);
    }
}

/// The counters of one direction of one path.
pub(crate) struct LinkReport {
    pub(crate) path: usize,
    pub(crate) dir: usize,
    pub(crate) stats: Stats,
    pub(crate) late: Lateness,
    /// Packets still inside the link.
    pub(crate) left: usize,
}

/// One direction of one path, for a forwarding thread.
pub(crate) struct Job {
    pub(crate) path: usize,
    pub(crate) dir: usize,
    pub(crate) from: Arc<OwnedFd>,
    pub(crate) to: Arc<OwnedFd>,
    pub(crate) plan: Plan,
    pub(crate) mtu: u32,
}

struct Shared {
    stop: AtomicBool,
    /// The start of the schedule in nanoseconds; 0 before it.
    t0: AtomicU64,
    /// One for each thread.
    wake: Vec<OwnedFd>,
    failed: AtomicBool,
}

/// The forwarding threads of all links.
pub(crate) struct Forwarding {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Vec<LinkReport>>>,
}

impl Forwarding {
    /// Starts a thread for each group of jobs.
    pub(crate) fn start(groups: Vec<Vec<Job>>, realtime: bool) -> Result<Forwarding, String> {
        let wake = groups
            .iter()
            .map(|_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("eventfd: {e}"))?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            t0: AtomicU64::new(0),
            wake,
            failed: AtomicBool::new(false),
        });
        let mut forwarding = Forwarding {
            shared,
            threads: vec![],
        };
        for (i, jobs) in groups.into_iter().enumerate() {
            let shared = forwarding.shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("link{i}"))
                .spawn(move || run_thread(jobs, &shared, i, realtime))
                .map_err(|e| e.to_string())?;
            forwarding.threads.push(thread);
        }
        Ok(forwarding)
    }

    fn wake(&self) {
        for fd in &self.shared.wake {
            let _ = write(fd, &1u64.to_ne_bytes());
        }
    }

    /// The schedules of all links start now.
    pub(crate) fn start_schedule(&self) {
        self.shared.t0.store(now(), Ordering::SeqCst);
        self.wake();
    }

    /// Whether a thread failed.
    pub(crate) fn failed(&self) -> bool {
        self.shared.failed.load(Ordering::SeqCst)
    }

    /// Ends the threads.
    pub(crate) fn stop(mut self) -> Vec<LinkReport> {
        self.halt()
    }

    fn halt(&mut self) -> Vec<LinkReport> {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.wake();
        let mut reports: Vec<LinkReport> = vec![];
        for thread in self.threads.drain(..) {
            reports.extend(thread.join().unwrap_or_default());
        }
        reports.sort_by_key(|r| (r.path, r.dir));
        reports
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.halt();
    }
}

fn run_thread(jobs: Vec<Job>, shared: &Shared, index: usize, realtime: bool) -> Vec<LinkReport> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        prepare_thread(realtime);
        let mut forwarder = Forwarder::new(jobs, shared, index)?;
        forwarder.run()?;
        Ok::<_, String>(forwarder.reports())
    }));
    if let Ok(Ok(reports)) = result {
        return reports;
    }
    if let Ok(Err(e)) = result {
        eprintln!("netlab: forwarding thread: {e}");
    }
    shared.failed.store(true, Ordering::SeqCst);
    end_netlab();
    vec![]
}

/// Without the right to real-time priority the thread runs as it is.
fn prepare_thread(realtime: bool) {
    if realtime && let Ok(priority) = ThreadPriorityValue::try_from(REALTIME_PRIORITY) {
        let _ = set_thread_priority_and_policy(
            thread_native_id(),
            ThreadPriority::Crossplatform(priority),
            ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo),
        );
    }
    // The kernel may otherwise end a wait 50 microseconds late.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// One direction of one path.
struct Port {
    path: usize,
    dir: usize,
    from: Arc<OwnedFd>,
    to: Arc<OwnedFd>,
    link: Link<IpPacket>,
    late: Lateness,
    readable: bool,
    mtu: usize,
}

impl Port {
    fn new(job: Job) -> Port {
        Port {
            path: job.path,
            dir: job.dir,
            from: job.from,
            to: job.to,
            link: Link::new(job.plan),
            late: Lateness::default(),
            readable: false,
            mtu: job.mtu as usize,
        }
    }

    /// Takes packets from the device into the link. The port stays readable if a whole batch came.
    fn receive(&mut self, pool: &mut Pool) {
        self.readable = false;
        for k in 0..BATCH {
            let mut data = pool.take();
            match read(&*self.from, spare_capacity(&mut data)) {
                Ok(n) if n > 0 => {}
                _ => {
                    pool.give(data);
                    break;
                }
            }
            let t = now();
            self.link.advance_with(t, &mut |p| pool.give(p.data));
            if let Some(dropped) = self.link.enqueue(t, IpPacket { data }) {
                pool.give(dropped.data);
            }
            self.readable = k + 1 == BATCH;
        }
    }

    /// Writes the packets that are due to the device of the other side.
    fn deliver(&mut self, pool: &mut Pool) {
        let mut t = now();
        self.link.advance_with(t, &mut |p| pool.give(p.data));
        while let Some((due, packet)) = self.link.pop_due(t) {
            self.late.add(t - due);
            if write(&*self.to, &packet.data) == Ok(packet.data.len()) {
                self.link.delivered(t, packet.data.len());
            } else {
                self.late.write_errors += 1;
            }
            pool.give(packet.data);
            t = now();
        }
    }

    fn report(self) -> LinkReport {
        let (queued, flying) = self.link.backlog();
        LinkReport {
            path: self.path,
            dir: self.dir,
            left: queued + flying,
            stats: self.link.stats,
            late: self.late,
        }
    }
}

/// Buffers of packets that left, for packets to come.
struct Pool {
    buffers: Vec<Vec<u8>>,
    /// Bytes of each buffer.
    room: usize,
}

impl Pool {
    fn take(&mut self) -> Vec<u8> {
        let mut data = self.buffers.pop().unwrap_or_default();
        data.clear();
        data.reserve(self.room);
        data
    }

    fn give(&mut self, data: Vec<u8>) {
        self.buffers.push(data);
    }
}

/// The work of one thread.
struct Forwarder<'a> {
    shared: &'a Shared,
    wake: &'a OwnedFd,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    ports: Vec<Port>,
    pool: Pool,
    started: bool,
}

impl<'a> Forwarder<'a> {
    fn new(jobs: Vec<Job>, shared: &'a Shared, index: usize) -> Result<Self, String> {
        let ports: Vec<Port> = jobs.into_iter().map(Port::new).collect();
        let wake = &shared.wake[index];
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| format!("epoll: {e}"))?;
        for (i, fd) in ports.iter().map(|p| &*p.from).chain([wake]).enumerate() {
            let data = epoll::EventData::new_u64(i as u64);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN)
                .map_err(|e| format!("epoll: {e}"))?;
        }
        let mtu = ports.iter().map(|p| p.mtu).max().unwrap_or(1500);
        Ok(Forwarder {
            shared,
            wake,
            epoll,
            events: Vec::with_capacity(EVENTS),
            ports,
            pool: Pool {
                buffers: vec![],
                room: mtu + 64,
            },
            started: false,
        })
    }

    fn run(&mut self) -> Result<(), String> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let mut again = false;
            let mut next = u64::MAX;
            for port in &mut self.ports {
                if port.readable {
                    port.receive(&mut self.pool);
                    again |= port.readable;
                }
                port.deliver(&mut self.pool);
                next = next.min(port.link.next_wake());
            }
            let wait = if again { 0 } else { next.saturating_sub(now()) };
            self.wait(wait.min(LONGEST_WAIT_NS))?;
            self.start_schedule();
        }
        Ok(())
    }

    /// Waits for packets, for a call of `Forwarding::wake`, or for the end of the time in
    /// nanoseconds.
    fn wait(&mut self, ns: u64) -> Result<(), String> {
        let limit = Timespec {
            tv_sec: (ns / SECOND_NS) as i64,
            tv_nsec: (ns % SECOND_NS) as i64,
        };
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("epoll_pwait2: {e}")),
        }
        for event in &self.events {
            if let Some(port) = self.ports.get_mut(event.data.u64() as usize) {
                port.readable = true;
            } else {
                let _ = read(self.wake, &mut [0u8; 8]);
            }
        }
        Ok(())
    }

    fn start_schedule(&mut self) {
        if self.started {
            return;
        }
        let t0 = self.shared.t0.load(Ordering::SeqCst);
        if t0 != 0 {
            self.started = true;
            for port in &mut self.ports {
                port.link.start(t0);
            }
        }
    }

    fn reports(self) -> Vec<LinkReport> {
        self.ports.into_iter().map(Port::report).collect()
    }
}
