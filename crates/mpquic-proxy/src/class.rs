//! [`Class`]: the purpose of a flow, guessed from its port and its traffic, and the treatment of
//! the flow.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use mpquic_h3::Priority;
use thiserror::Error;
use tokio::time::Instant;

use crate::rules::{InvalidRule, Rule};
use crate::target::{Host, Target};

/// Length of the periods in which a flow's traffic is counted.
const PERIOD: Duration = Duration::from_secs(1);
/// A TCP flow with more bytes in a period is bulk.
const BULK: u64 = 256 << 10;
/// A bulk TCP flow with fewer bytes in a period is no longer bulk.
const QUIET: u64 = 16 << 10;
/// A TCP flow that waits for room this long in a period, and is not quiet, is bulk: it has more to
/// send than it may.
const KEPT_WAITING: Duration = Duration::from_millis(500);
/// A UDP flow with more bytes is judged by its traffic, whatever its port promised.
const REFUTED: u64 = 1 << 20;
/// A UDP flow with at least this number of payloads in a period, and at most [`SMALL`] bytes, is a
/// call or a game.
const STEADY: u64 = 8;
/// Most bytes of a call or a game in a period: 512 kbit/s.
const SMALL: u64 = 64 << 10;

/// UDP ports whose programs wait for each packet: DNS, NTP, STUN, SIP.
const REAL_TIME: [u16; 6] = [53, 123, 3478, 3479, 5060, 5061];
/// UDP ports of protocols with retransmission inside: IPsec, WireGuard, HTTP/3.
const REPEATED: [u16; 4] = [443, 500, 4500, 51820];

/// The purpose of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// As fast as possible. Streams come after streams of other classes, but get at least a tenth
    /// of the connection even if other classes leave no room.
    Bulk,
    /// A person waits. Streams come before streams of bulk flows.
    Interactive,
    /// Late payloads are useless. UDP payloads travel on two paths if the other side accepts
    /// copies, and streams come first.
    RealTime,
}

/// A text other than the name of a [`Class`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected bulk, interactive or real-time")]
pub struct InvalidClass;

impl Class {
    /// The priority of a request before its flow is open: each request is short, and an application
    /// waits for the answer.
    pub(crate) const REQUEST: i32 = 4;

    /// The priority of a stream of this class.
    pub(crate) fn priority(self) -> i32 {
        match self {
            Self::Bulk => 0,
            Self::Interactive => 1,
            Self::RealTime => 3,
        }
    }

    /// The urgency of the class in a request (RFC 9218 section 4.1): 3 is the default, and 0 the
    /// most urgent.
    pub(crate) fn urgency(self) -> u8 {
        match self {
            Self::RealTime => 0,
            Self::Interactive => 2,
            Self::Bulk => 5,
        }
    }

    /// The class for a DSCP of an application's packets; `None` for a DSCP without a class of
    /// traffic (RFC 4594 section 3, RFC 8622).
    #[cfg_attr(
        not(all(feature = "tun", target_os = "linux")),
        allow(dead_code, reason = "only devices see packets")
    )]
    pub(crate) fn from_dscp(dscp: u8) -> Option<Self> {
        match dscp {
            // EF and VOICE-ADMIT, CS5 (signalling of calls), CS4 (games).
            46 | 44 | 40 | 32 => Some(Self::RealTime),
            // AF4x (conference video, too much to send twice), AF2x, which SSH uses, and CS2.
            34 | 36 | 38 | 18 | 20 | 22 | 16 => Some(Self::Interactive),
            // AF1x, CS1, LE.
            10 | 12 | 14 | 8 | 1 => Some(Self::Bulk),
            _ => None,
        }
    }

    /// The class for the priority of a request; `None` for the default priority.
    pub(crate) fn from_priority(priority: Priority) -> Option<Self> {
        match priority.urgency() {
            0 | 1 => Some(Self::RealTime),
            2 => Some(Self::Interactive),
            4.. => Some(Self::Bulk),
            3 => None,
        }
    }
}

impl FromStr for Class {
    type Err = InvalidClass;

    fn from_str(text: &str) -> Result<Self, InvalidClass> {
        match text {
            "bulk" => Ok(Self::Bulk),
            "interactive" => Ok(Self::Interactive),
            "real-time" => Ok(Self::RealTime),
            _ => Err(InvalidClass),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bulk => "bulk",
            Self::Interactive => "interactive",
            Self::RealTime => "real-time",
        })
    }
}

/// The class of flows to certain targets: `CLASS=RULE`, such as `real-time=:5004-5010` or
/// `bulk=10.0.0.0/8:22`. Rules with networks do not match targets that are names.
///
/// ```
/// use mpquic_proxy::{Class, ClassRule};
///
/// let rule: ClassRule = "bulk=:22".parse()?;
/// assert_eq!(rule.class_of(&"example.org:22".parse()?), Some(Class::Bulk));
/// assert_eq!(rule.class_of(&"example.org:23".parse()?), None);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassRule {
    class: Class,
    rule: Rule,
}

/// A text other than a [`ClassRule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidClassRule {
    /// No class before an equals sign.
    #[error(
        "expected CLASS=RULE, such as real-time=:5004-5010; a class is bulk, interactive or real-time"
    )]
    Class,
    /// An invalid rule after the equals sign.
    #[error("{0}")]
    Rule(#[from] InvalidRule),
}

impl FromStr for ClassRule {
    type Err = InvalidClassRule;

    fn from_str(text: &str) -> Result<Self, InvalidClassRule> {
        let (class, rule) = text.split_once('=').ok_or(InvalidClassRule::Class)?;
        Ok(Self {
            class: class.parse().map_err(|_| InvalidClassRule::Class)?,
            rule: rule.parse()?,
        })
    }
}

impl ClassRule {
    /// The class of flows to this target, if the rule matches.
    pub fn class_of(&self, target: &Target) -> Option<Class> {
        let address = match target.host() {
            Host::Address(address) => Some(*address),
            Host::Name(_) => None,
        };
        (self.rule.names_target(address, target.port())).then_some(self.class)
    }
}

/// The protocol of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowKind {
    /// A TCP connection, by CONNECT.
    Tcp,
    /// UDP, by CONNECT-UDP.
    Udp,
    /// IP packets of other protocols, by CONNECT-IP.
    Ip,
}

/// Guesses the class of a flow from its traffic in one direction.
#[derive(Debug)]
pub(crate) struct Guess {
    kind: FlowKind,
    class: Class,
    /// Where the class comes from.
    source: Source,
    /// Bytes of the flow while its port counts.
    total: u64,
    /// The time of this period in which the flow waited for room.
    waited: Duration,
    began: Instant,
    bytes: u64,
    payloads: u64,
}

/// The source of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A rule, the client, a mark on packets, or a port of protocols with retransmission inside.
    Fixed,
    /// The port, until the flow has carried [`REFUTED`] bytes.
    Port,
    Traffic,
}

impl Guess {
    /// A guess for a flow to this port. A class in `said` replaces the guess.
    pub(crate) fn new(kind: FlowKind, port: u16, said: Option<Class>, now: Instant) -> Self {
        let (class, source) = match (said, kind) {
            (Some(said), _) => (said, Source::Fixed),
            (None, FlowKind::Udp) if REAL_TIME.contains(&port) => (Class::RealTime, Source::Port),
            (None, FlowKind::Udp) if REPEATED.contains(&port) => (Class::Bulk, Source::Fixed),
            (None, _) => (Class::Interactive, Source::Traffic),
        };
        Self {
            kind,
            class,
            source,
            total: 0,
            waited: Duration::ZERO,
            began: now,
            bytes: 0,
            payloads: 0,
        }
    }

    /// The current class.
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// The flow carries a payload, or a piece of a stream. Returns the class if it has changed.
    pub(crate) fn on_payload(&mut self, bytes: usize, now: Instant) -> Option<Class> {
        match self.source {
            Source::Fixed => return None,
            Source::Port if self.total + bytes as u64 <= REFUTED => {
                self.total += bytes as u64;
                return None;
            }
            Source::Port => (self.source, self.began) = (Source::Traffic, now),
            Source::Traffic => {}
        }
        let elapsed = now.saturating_duration_since(self.began);
        let before = self.class;
        if elapsed >= PERIOD {
            // The traffic of a period that is already over is unknown.
            self.class = if elapsed < 2 * PERIOD || self.has_more() {
                self.of_period()
            } else {
                Class::Interactive
            };
            (self.began, self.bytes, self.payloads) = (now, 0, 0);
            self.waited = Duration::ZERO;
        }
        self.bytes += bytes as u64;
        self.payloads += 1;
        let most = match self.kind {
            FlowKind::Tcp => BULK,
            FlowKind::Udp | FlowKind::Ip => SMALL,
        };
        if self.bytes > most || self.has_more() && self.bytes >= QUIET {
            self.class = Class::Bulk;
        }
        (self.class != before).then_some(self.class)
    }

    /// The flow waited this time for room to send.
    pub(crate) fn on_waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// True for a TCP flow whose data had to wait.
    fn has_more(&self) -> bool {
        self.kind == FlowKind::Tcp && self.waited >= KEPT_WAITING
    }

    /// The class after a whole period.
    fn of_period(&self) -> Class {
        match self.kind {
            // A starved bulk flow has few bytes, too, but is not quiet.
            FlowKind::Tcp
                if self.class == Class::Bulk && (self.bytes >= QUIET || self.has_more()) =>
            {
                Class::Bulk
            }
            FlowKind::Tcp => Class::Interactive,
            FlowKind::Ip => Class::Interactive,
            FlowKind::Udp if self.bytes > SMALL => Class::Bulk,
            FlowKind::Udp if self.payloads >= STEADY => Class::RealTime,
            FlowKind::Udp => Class::Interactive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The class of a flow at the end of each second, from the number and size of payloads in each
    /// second.
    fn seconds(kind: FlowKind, port: u16, seconds: &[(u32, usize)]) -> Vec<Class> {
        let mut now = Instant::now();
        let mut guess = Guess::new(kind, port, None, now);
        let second = |(payloads, size): &(u32, usize)| {
            for _ in 0..*payloads {
                now += PERIOD / *payloads;
                let before = guess.class();
                let told = guess.on_payload(*size, now);
                assert_eq!(told, (guess.class() != before).then_some(guess.class()));
            }
            guess.class()
        };
        seconds.iter().map(second).collect()
    }

    #[test]
    fn behaviour_tells() {
        use Class::{Bulk, Interactive, RealTime};
        let calls = seconds(FlowKind::Udp, 40_000, &[(50, 172), (50, 172), (50, 172)]);
        assert_eq!(calls[1..], [RealTime, RealTime]);
        let video = seconds(
            FlowKind::Udp,
            40_000,
            &[(50, 172), (200, 1200), (200, 1200), (50, 172)],
        );
        assert_eq!(video[1..3], [Bulk, Bulk]);
        let slow = seconds(FlowKind::Udp, 40_000, &[(2, 100), (2, 100), (2, 100)]);
        assert_eq!(slow, [Interactive; 3]);
        let download = [
            (100, 65_536),
            (100, 65_536),
            (4, 1000),
            (4, 1000),
            (4, 1000),
        ];
        let download = seconds(FlowKind::Tcp, 443, &download);
        assert_eq!(download[..2], [Bulk, Bulk]);
        assert_eq!(download[4], Interactive);
        // The same for the port of SSH, which also copies files.
        let copying = [(100, 65_536), (100, 65_536), (10, 50), (10, 50), (10, 50)];
        let copying = seconds(FlowKind::Tcp, 22, &copying);
        assert_eq!((copying[1], copying[4]), (Bulk, Interactive));
        let typing = seconds(FlowKind::Tcp, 443, &[(10, 50), (10, 50), (20, 2000)]);
        assert_eq!(typing, [Interactive; 3]);
    }

    /// On a slow link no flow has many bytes in a second.
    #[test]
    fn flow_that_waits_has_more_to_send() {
        let began = Instant::now();
        let after = |waits: bool| {
            let mut guess = Guess::new(FlowKind::Tcp, 22, None, began);
            for step in 1..20 {
                if waits {
                    guess.on_waited(PERIOD / 20);
                }
                guess.on_payload(1000, began + PERIOD / 20 * step);
            }
            guess.class()
        };
        assert_eq!(after(true), Class::Bulk);
        assert_eq!(after(false), Class::Interactive);
    }

    #[test]
    fn a_megabyte_refutes_what_a_port_promised() {
        let mut now = Instant::now();
        let mut guess = Guess::new(FlowKind::Udp, 53, None, now);
        let mut classes = Vec::new();
        for _ in 0..3000 {
            now += PERIOD / 500;
            classes.extend(guess.on_payload(1000, now));
        }
        assert_eq!(classes, [Class::Bulk]);
        let mut said = Guess::new(FlowKind::Udp, 53, Some(Class::RealTime), now);
        for _ in 0..3000 {
            now += PERIOD / 500;
            assert_eq!(said.on_payload(1000, now), None);
        }
    }

    #[test]
    fn after_a_pause_it_is_a_new_flow() {
        let mut now = Instant::now();
        let mut guess = Guess::new(FlowKind::Udp, 40_000, None, now);
        for _ in 0..100 {
            now += PERIOD / 50;
            guess.on_payload(172, now);
        }
        assert_eq!(guess.class(), Class::RealTime);
        now += 10 * PERIOD;
        assert_eq!(guess.on_payload(172, now), Some(Class::Interactive));
    }

    #[test]
    fn ports_and_rules_tell_more() {
        let now = Instant::now();
        for (kind, port, said, class) in [
            (FlowKind::Udp, 53, None, Class::RealTime),
            (FlowKind::Udp, 443, None, Class::Bulk),
            (FlowKind::Tcp, 22, Some(Class::Bulk), Class::Bulk),
            (FlowKind::Udp, 443, Some(Class::RealTime), Class::RealTime),
        ] {
            let mut guess = Guess::new(kind, port, said, now);
            assert_eq!(guess.class(), class);
            assert_eq!(guess.on_payload(1 << 10, now + PERIOD), None);
            assert_eq!(guess.class(), class);
        }
        let rule = |text: &str| text.parse::<ClassRule>();
        let target = |text: &str| text.parse::<Target>().unwrap();
        let network = rule("interactive=10.0.0.0/8").unwrap();
        assert_eq!(
            network.class_of(&target("10.1.1.1:5")),
            Some(Class::Interactive)
        );
        assert_eq!(network.class_of(&target("name.example:5")), None);
        for wrong in ["", "bulk", "slow=:1", "bulk=x"] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn packets_tell_it() {
        for (dscp, class) in [
            (46, Some(Class::RealTime)),
            (34, Some(Class::Interactive)),
            (18, Some(Class::Interactive)),
            (8, Some(Class::Bulk)),
            (1, Some(Class::Bulk)),
            (0, None),
            (63, None),
        ] {
            assert_eq!(Class::from_dscp(dscp), class, "{dscp}");
        }
    }

    #[test]
    fn requests_tell_it() {
        let told = |field: &str| {
            let mut fields = http::HeaderMap::new();
            fields.insert("priority", field.parse().unwrap());
            Class::from_priority(Priority::of_request(&fields))
        };
        for class in [Class::Bulk, Class::Interactive, Class::RealTime] {
            assert_eq!(told(&format!("u={}", class.urgency())), Some(class));
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        for (field, class) in [
            ("u=3, i", None),
            ("i", None),
            ("", None),
            ("u=0", Some(Class::RealTime)),
            ("i, u=7", Some(Class::Bulk)),
            ("u=9", None),
            ("u=1,u=2", Some(Class::Interactive)),
        ] {
            assert_eq!(told(field), class, "{field}");
        }
        assert_eq!(Class::from_priority(Priority::default()), None);
    }
}
