//! A run: a connection between a client and a server while faults come and go.

use std::net::SocketAddr;
use std::time::Duration;

use mpquic_core::{Event, PathState, PathStatus, RouteCounts, TransportErrorCode, VarInt};
use mpquic_sim::{Change, Hosted, LinkConfig, OnResume, Pair, Side};

use super::plan::{Act, Ending, Fault, Plan, changed};
use super::verdict::{REASON, Verdict};

const SECOND: Duration = Duration::from_secs(1);
const SIDES: [Side; 2] = [Side::Client, Side::Server];
/// How often the client looks for paths to open, and processes are seen to.
const TICK: Duration = SECOND;
/// Longest time without arriving data after the network's recovery: faults may have doubled the
/// probe timeout to nearly their own length, and packets may still be seconds late.
const STANDSTILL: Duration = Duration::from_secs(60);
/// How long the end of a connection may take for a side that missed the news: two idle timeouts and
/// a handshake.
const END: Duration = Duration::from_secs(720);

pub(super) struct Run {
    plan: Plan,
    pair: Pair,
    verdict: Verdict,
    /// Each path's links without faults.
    links: Vec<[LinkConfig; 2]>,
    /// Since the start of the plan.
    elapsed: Duration,
    is_slow: [bool; 2],
    /// Interfaces of each side that are gone.
    is_down: Vec<[bool; 2]>,
    /// Applications that no longer read.
    is_gone: [bool; 2],
    /// Processes that were killed.
    is_dead: [bool; 2],
    /// The next port that the client moves to.
    port: u16,
}

impl Run {
    pub(super) fn new(plan: Plan) -> Self {
        let mut pair = Pair::new(&plan.drawn.topology, plan.drawn.setup.clone());
        let config = |link| pair.network.link(link).config().clone();
        let links = pair.links().iter();
        let links: Vec<_> = links.map(|path| path.links().map(config)).collect();
        pair.connect();
        Self {
            verdict: Verdict::new(&pair, &plan),
            is_down: vec![[false; 2]; links.len()],
            plan,
            pair,
            links,
            elapsed: Duration::ZERO,
            is_slow: [false; 2],
            is_gone: [false; 2],
            is_dead: [false; 2],
            port: 51_000,
        }
    }

    /// True if all sent data arrived before an application closed the connection.
    pub(super) fn run(mut self) -> bool {
        if !self.plan.is_early {
            self.until(10 * SECOND, |run| {
                let confirmed = Event::HandshakeConfirmed;
                run.pair.has_event(Side::Client, &confirmed)
            });
        }
        for (at, act) in self.plan.acts.clone() {
            self.pass(at);
            if self.is_over() {
                break;
            }
            self.act(act);
        }
        self.finish();
        check_memory(self.pair, self.is_dead);
        self.verdict.is_complete()
    }

    /// Handles all events until `done` is true, within this time. Returns whether `done` was true.
    fn until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.pair.now() + limit;
        while !done(self) {
            match self.pair.next_event() {
                Some(time) if time <= end => self.pair.step(),
                _ => {
                    let rest = end - self.pair.now();
                    self.pair.drive(rest);
                    return false;
                }
            };
            self.verdict.listen(&self.pair);
        }
        true
    }

    /// Lets time pass up to a time of the plan, while faults come and go.
    fn pass(&mut self, to: Duration) {
        while self.elapsed < to {
            let bounds = self.plan.episodes.iter().flat_map(|it| [it.from, it.to]);
            let next = bounds.filter(|time| *time > self.elapsed).min();
            let next = next.unwrap_or(to).min(to).min(self.elapsed + TICK);
            let length = next - self.elapsed;
            self.until(length, |_| false);
            self.elapsed = next;
            self.apply();
        }
    }

    fn active(&self) -> Vec<Fault> {
        let episodes = self.plan.episodes.iter();
        let active = episodes.filter(|it| (it.from..it.to).contains(&self.elapsed));
        active.map(|it| it.fault).collect()
    }

    /// Applies the current faults to network, processes and applications.
    fn apply(&mut self) {
        let active = self.active();
        self.apply_to_links(&active);
        for side in SIDES {
            let stop = |fault: &Fault| match fault {
                Fault::Stop(of, first) if *of == side => Some(*first),
                _ => None,
            };
            match active.iter().find_map(stop) {
                Some(_) => self.pair.stop(side),
                None => self.pair.resume(side, self.on_resume(side)),
            }
            let slow = |fault: &Fault| matches!(fault, Fault::Slow(of) if *of == side);
            let slow = active.iter().any(slow) || self.is_gone[side as usize];
            if self.runs(side) && slow != self.is_slow[side as usize] {
                self.is_slow[side as usize] = slow;
                self.set_slow(side, slow);
            }
        }
        for side in SIDES
            .into_iter()
            .filter(|side| self.runs(*side))
            .collect::<Vec<_>>()
        {
            self.apply_to_interfaces(side, &active);
        }
        if self.runs(Side::Client) {
            self.open_paths();
        }
        // A continued process has read its waiting datagrams; applications hear of the results.
        self.verdict.listen(&self.pair);
        self.pair.next_event();
    }

    fn apply_to_links(&mut self, active: &[Fault]) {
        for index in 0..self.links.len() {
            let ids = self.pair.links()[index].links();
            for (number, id) in ids.into_iter().enumerate() {
                let outage = Change::Outage(true);
                let changes = active.iter().filter_map(|fault| match *fault {
                    Fault::Link(path, direction, ref change)
                        if path == index && direction.includes(SIDES[number]) =>
                    {
                        Some(change)
                    }
                    Fault::Down(_, path) if path == index => Some(&outage),
                    _ => None,
                });
                for change in changed(&self.links[index][number], changes) {
                    self.pair.network.change_link(id, &change);
                }
            }
        }
    }

    /// A stopped process's first action, as the ended episode says.
    fn on_resume(&self, side: Side) -> OnResume {
        let mut episodes = self.plan.episodes.iter();
        let first = episodes.find_map(|it| match it.fault {
            Fault::Stop(of, first) if of == side && it.to <= self.elapsed => Some(first),
            _ => None,
        });
        first.unwrap_or(OnResume::Packets)
    }

    /// A side has a connection, and a process that runs.
    fn runs(&self, side: Side) -> bool {
        let is_stopped = self.pair.host(self.pair.host_id(side)).is_stopped();
        let hosted = self.pair.hosted(side);
        let is_alive = hosted.is_some_and(|hosted| !hosted.is_drained());
        is_alive && !is_stopped && !self.is_dead[side as usize]
    }

    fn set_slow(&mut self, side: Side, slow: bool) {
        let now = self.pair.time(side);
        let hosted = self.pair.hosted_mut(side);
        if slow {
            hosted.application.pause();
        } else {
            hosted.application.resume(now, &mut hosted.connection);
        }
    }

    /// Tells a side's connection which interfaces there are.
    fn apply_to_interfaces(&mut self, side: Side, active: &[Fault]) {
        for index in 0..self.is_down.len() {
            let down = |fault: &Fault| matches!(fault, Fault::Down(of, path) if (*of, *path) == (side, index));
            let down = active.iter().any(down);
            let was_down = std::mem::replace(&mut self.is_down[index][side as usize], down);
            if was_down == down {
                continue;
            }
            let links = &self.pair.links()[index];
            let ip = match side {
                Side::Client => links.client,
                Side::Server => links.server,
            };
            let now = self.pair.time(side);
            let connection = self.pair.connection(side);
            for path in connection.paths().collect::<Vec<_>>() {
                let stats = connection.path_stats(path);
                if stats.is_some_and(|stats| stats.four_tuple.local.ip() == ip) {
                    let _may_be_closed = connection.set_path_usable(now, path, !down);
                }
            }
        }
    }

    /// The client opens a path on each interface without one.
    fn open_paths(&mut self) {
        for index in 0..self.is_down.len() {
            let ip = self.pair.links()[index].client;
            let client = self.pair.client();
            let has_one = client.paths().any(|path| {
                let stats = client.path_stats(path);
                stats.is_some_and(|stats| stats.four_tuple.local.ip() == ip)
            });
            if !has_one && !self.is_down[index][Side::Client as usize] && !client.is_closed() {
                let name = self.plan.drawn.names[index].clone();
                let _may_be_too_many = self.pair.open_path(&name, PathStatus::Available);
            }
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Jump(side, by) => self.pair.jump_clock(side, by),
            Act::Rebind(path, other_ip) => self.rebind(path, other_ip),
            Act::Move(path, to) => self.move_path(path, to),
            Act::Close(path) => self.close_path(path),
            Act::Send(side, size) if self.runs(side) => {
                self.pair.send(side, size);
            }
            Act::Ask(side, size, answer) if self.runs(side) && self.runs(!side) => {
                self.pair.ask(side, size, answer);
            }
            Act::Datagram(side, size) if self.runs(side) => {
                let hosted = self.pair.hosted_mut(side);
                let application = &mut hosted.application;
                let _may_be_refused = application.send_datagram(&mut hosted.connection, size);
            }
            Act::Reset(side) if self.runs(side) => {
                let hosted = self.pair.hosted_mut(side);
                let newest = hosted.application.outgoing().keys().next_back().copied();
                if let Some(id) = newest {
                    let code = VarInt::from_u32(7);
                    hosted.application.reset(&mut hosted.connection, id, code);
                }
            }
            Act::Stop(side) if self.runs(side) => {
                let hosted = self.pair.hosted_mut(side);
                let newest = hosted.application.incoming().keys().next_back().copied();
                if let Some(id) = newest {
                    let code = VarInt::from_u32(8);
                    hosted.application.stop(&mut hosted.connection, id, code);
                }
            }
            Act::UpdateKeys(side) if self.runs(side) => {
                let now = self.pair.time(side);
                self.pair.connection(side).initiate_key_update(now);
            }
            // A stopped process does nothing.
            _ => {}
        }
    }

    fn is_confirmed(&self) -> bool {
        let confirmed = Event::HandshakeConfirmed;
        self.pair.has_event(Side::Client, &confirmed)
    }

    /// Only once the server follows a client (RFC 9000 section 9).
    fn rebind(&mut self, path: usize, other_ip: bool) {
        if self.pair.links()[path].nat.is_some() && self.is_confirmed() {
            let name = self.plan.drawn.names[path].clone();
            self.pair.rebind(&name, other_ip);
            self.verdict.on_new_address();
        }
    }

    fn move_path(&mut self, from: usize, to: usize) {
        if !self.runs(Side::Client) {
            return;
        }
        // From elsewhere, only the address of all paths can be reached.
        let is_single = self.plan.drawn.single_server_address;
        let to = if is_single { to } else { from };
        let links = self.pair.links();
        let (old, new) = (links[from].client, links[to].client);
        self.port += 1;
        let local = SocketAddr::new(new, self.port);
        let now = self.pair.time(Side::Client);
        let client = self.pair.client();
        for path in client.paths().collect::<Vec<_>>() {
            let stats = client.path_stats(path);
            if stats.is_some_and(|stats| stats.four_tuple.local.ip() == old)
                && let Ok(mut path) = client.path_mut(path)
            {
                let _may_be_refused = path.set_local_address(now, local);
            }
        }
        self.verdict.on_new_address();
    }

    fn close_path(&mut self, index: usize) {
        if !self.runs(Side::Client) {
            return;
        }
        let (now, ip) = (
            self.pair.time(Side::Client),
            self.pair.links()[index].client,
        );
        let client = self.pair.client();
        let stats = client.paths().filter_map(|path| client.path_stats(path));
        let open: Vec<_> = stats
            .filter(|stats| stats.state != PathState::Abandoned)
            .collect();
        let path = open.iter().find(|stats| stats.four_tuple.local.ip() == ip);
        if let Some(path) = path.filter(|_| open.len() > 1) {
            let closed = client.close_path(now, path.id, TransportErrorCode::NO_ERROR);
            if closed.is_ok() {
                self.verdict.on_path_closed();
            }
        }
    }

    /// True after a side's connection was lost or closed, or its process killed.
    fn is_over(&self) -> bool {
        let lost = |event: &Event| matches!(event, Event::ConnectionLost { .. });
        let mut events = SIDES.into_iter().flat_map(|side| self.pair.events(side));
        self.verdict.is_closed() || self.is_dead != [false; 2] || events.any(|event| lost(&event))
    }

    fn finish(&mut self) {
        if !self.is_over() {
            self.end();
        }
        self.heal();
        let over = self.until(END, |run| {
            let mut sides = SIDES.into_iter();
            // Packets that were seconds late may have begun other connections.
            sides.all(|side| {
                let host = run.pair.host(run.pair.host_id(side));
                let mut connections = host.connections().iter();
                run.is_dead[side as usize] || connections.all(Hosted::is_drained)
            })
        });
        assert!(over, "state is left: {}", self.progress());
        self.verdict.check(&self.pair, self.is_dead);
    }

    /// No fault is left, and processes run.
    fn heal(&mut self) {
        self.plan.episodes.iter_mut().for_each(|it| {
            it.to = it.to.min(self.elapsed);
        });
        self.apply();
    }

    fn end(&mut self) {
        match self.plan.ending {
            Ending::Heal => {
                self.heal();
                self.verdict.on_healed(&self.pair);
                self.complete();
            }
            Ending::Close(side) => {
                let first = self.on_resume(side);
                self.pair.resume(side, first);
                self.close(side);
            }
            Ending::Abandon(side) => {
                self.is_gone[side as usize] = true;
                self.pass(self.elapsed + 20 * SECOND);
                self.pair.resume(!side, OnResume::Packets);
                if !self.is_over() {
                    self.close(!side);
                }
            }
            Ending::Vanish(side) => self.kill(side),
            Ending::Restart => {
                if self.pair.hosted(Side::Server).is_some() {
                    self.kill(Side::Server);
                    self.pair.restart_server();
                    self.begin_again();
                }
            }
        }
    }

    /// A client whose handshake was not over goes on with the server that took the place of the
    /// other, until it closes the connection.
    fn begin_again(&mut self) {
        let connected = |event: &Event| matches!(event, Event::Connected { .. });
        if !self.pair.events(Side::Client).iter().any(connected) {
            self.heal();
            self.pass(self.elapsed + 20 * SECOND);
            if self.pair.events(Side::Client).iter().any(connected)
                && !self.pair.client().is_closed()
            {
                self.close(Side::Client);
            }
        }
    }

    fn kill(&mut self, side: Side) {
        self.is_dead[side as usize] = true;
        let host = self.pair.host_id(side);
        self.pair.host_mut(host).crash();
    }

    /// Closes a side's connection.
    fn close(&mut self, side: Side) {
        if self.pair.hosted(side).is_none() {
            return self.close(!side);
        }
        self.verdict.on_close(side, &self.pair);
        let now = self.pair.time(side);
        let connection = self.pair.connection(side);
        connection.close(now, VarInt::from_u32(0), REASON.into());
    }

    /// The network works: all sent data arrives, unless the connection was lost before.
    fn complete(&mut self) {
        let mut received = None;
        loop {
            let mut next = self.elapsed + TICK;
            let delivered = self.until(STANDSTILL, |run| {
                // Paths that failed are opened again.
                if run.elapsed_since_heal() >= next {
                    next += TICK;
                    if run.runs(Side::Client) {
                        run.open_paths();
                    }
                }
                run.is_over() || run.is_delivered()
            });
            if self.is_over() {
                return;
            }
            if delivered {
                break;
            }
            let now = self.received();
            assert!(received < Some(now), "stuck: {}", self.progress());
            received = Some(now);
        }
        let acknowledged = self.until(STANDSTILL, |run| run.is_over() || run.is_acknowledged());
        assert!(acknowledged, "unacknowledged: {}", self.progress());
        if !self.is_over() {
            self.verdict.on_complete();
            let side = SIDES[usize::from(self.port.is_multiple_of(2))];
            self.close(side);
        }
    }

    fn elapsed_since_heal(&self) -> Duration {
        self.elapsed + self.verdict.since_healed(&self.pair)
    }

    fn is_delivered(&self) -> bool {
        SIDES.into_iter().all(|side| self.pair.is_delivered(side))
    }

    fn is_acknowledged(&self) -> bool {
        let hosted = SIDES.into_iter().filter_map(|side| self.pair.hosted(side));
        let streams = hosted.flat_map(|hosted| hosted.application.outgoing().values());
        let mut whole = streams.filter(|stream| stream.is_whole());
        whole.all(|stream| stream.finished.is_some())
    }

    fn received(&self) -> u64 {
        let hosted = SIDES.into_iter().filter_map(|side| self.pair.hosted(side));
        hosted.map(|hosted| hosted.application.received()).sum()
    }

    fn progress(&self) -> String {
        let [client, server] = SIDES.map(|side| self.pair.progress(side));
        format!("client {client}\nserver {server}")
    }
}

/// Connections are over and dropped: the endpoints of live processes keep no state of them.
fn check_memory(pair: Pair, is_dead: [bool; 2]) {
    for (endpoint, side) in pair.into_endpoints().iter().zip(SIDES) {
        if !is_dead[side as usize] {
            let (memory, routes) = (endpoint.stats().memory, endpoint.routes());
            assert_eq!(memory, 0, "{side:?} keeps memory");
            assert_eq!(routes, RouteCounts::default(), "{side:?}");
        }
    }
}
