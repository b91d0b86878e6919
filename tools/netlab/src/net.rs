//! Namespaces, TUN devices and routes. Each netlab has two namespaces, `nl-c-PID` and `nl-s-PID`,
//! which it removes when `Net` is dropped.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, Layer};

use crate::process::pid;
use crate::scenario::Scenario;

/// Packets that the kernel keeps for netlab, in each device.
const TXQUEUE: u32 = 20_000;

/// The client's and the server's namespace, with the devices of all paths.
pub(crate) struct Net {
    /// Client, server.
    pub(crate) ns: [String; 2],
    /// For each path the devices of client and server.
    pub(crate) tuns: Vec<[Arc<OwnedFd>; 2]>,
    /// The names of the devices.
    pub(crate) names: Vec<[String; 2]>,
}

/// The address of a side (0 is the client) on a path.
pub(crate) fn addr(path: usize, side: usize) -> String {
    format!("10.{}.0.{}", 100 + path, side + 1)
}

fn ip(args: &[&str], stdin: Option<&str>) -> Result<String, String> {
    let mut command = Command::new("ip");
    command
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.stdin(if stdin.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    let mut child = command
        .spawn()
        .map_err(|e| format!("ip (package iproute2): {e}"))?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        pipe.write_all(text.as_bytes()).map_err(|e| e.to_string())?;
    }
    let out = child.wait_with_output().map_err(|e| e.to_string())?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(format!(
        "ip {}: {}{}",
        args.join(" "),
        String::from_utf8_lossy(&out.stderr).trim(),
        stdin.map_or(String::new(), |s| format!("\nin batch:\n{s}"))
    ))
}

/// Runs `f` on a thread that entered the namespace `ns`.
fn within<T: Send>(ns: &str, f: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    let file =
        fs::File::open(format!("/run/netns/{ns}")).map_err(|e| format!("namespace {ns}: {e}"))?;
    std::thread::scope(|scope| {
        scope
            .spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|e| format!("setns {ns}: {e}"))?;
                f()
            })
            .join()
            .unwrap_or_else(|_| Err("namespace thread panicked".into()))
    })
}

/// A new TUN device of the thread's namespace: plain packets without a header, one for each read,
/// no offloads, not yet up.
fn open_tun(name: &str) -> Result<OwnedFd, String> {
    let device = DeviceBuilder::new()
        .name(name)
        .layer(Layer::L3)
        .packet_information(false)
        .offload(false)
        .inherit_enable_state()
        .build_sync()
        .map_err(|e| format!("/dev/net/tun, device {name}: {e}"))?;
    let fd = device
        .as_fd()
        .try_clone_to_owned()
        .map_err(|e| e.to_string())?;
    rustix::io::ioctl_fionbio(&fd, true).map_err(|e| format!("device {name}: {e}"))?;
    Ok(fd)
}

fn set_sysctl(key: &str, value: &str) -> Result<(), String> {
    let path = sysctl_path(key)?;
    fs::write(format!("/proc/sys/{path}"), value)
        .map_err(|e| format!("sysctl {key} = {value}: {e}"))
}

/// The setting's file below /proc/sys. Slashes instead of dots let a device's name have dots.
fn sysctl_path(key: &str) -> Result<String, String> {
    let path = if key.contains('/') {
        key.to_string()
    } else {
        key.replace('.', "/")
    };
    if path.split('/').any(|p| p == ".." || p.is_empty()) {
        return Err(format!("sysctl {key}: bad name"));
    }
    // Only networking settings belong to the namespace, others would be the machine's.
    if !path.starts_with("net/") {
        return Err(format!("sysctl {key}: only net.* may be set"));
    }
    Ok(path)
}

impl Net {
    /// Creates namespaces, devices, addresses and routes.
    pub(crate) fn new(sc: &Scenario, extra_sysctl: &[(String, String)]) -> Result<Net, String> {
        gc();
        let pid = std::process::id();
        let mut net = Net {
            ns: [format!("nl-c-{pid}"), format!("nl-s-{pid}")],
            tuns: vec![],
            names: vec![],
        };
        for ns in &net.ns {
            ip(&["netns", "add", ns], None)?;
        }
        for i in 0..sc.paths.len() {
            let names = [format!("p{i}c"), format!("p{i}s")];
            let client = within(&net.ns[0], || open_tun(&names[0]))?;
            let server = within(&net.ns[1], || open_tun(&names[1]))?;
            net.tuns.push([Arc::new(client), Arc::new(server)]);
            net.names.push(names);
        }
        for side in 0..2 {
            net.configure(side, sc, extra_sysctl)?;
        }
        Ok(net)
    }

    fn configure(
        &self,
        side: usize,
        sc: &Scenario,
        extra_sysctl: &[(String, String)],
    ) -> Result<(), String> {
        let names: Vec<&str> = self.names.iter().map(|n| n[side].as_str()).collect();
        within(&self.ns[side], || {
            set_sysctl("net.ipv4.conf.all.rp_filter", "0")?;
            set_sysctl("net.ipv4.conf.default.rp_filter", "0")?;
            for name in &names {
                set_sysctl(&format!("net/ipv4/conf/{name}/rp_filter"), "0")?;
                // The kernel would send IPv6 packets of its own over the paths.
                let _ = set_sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1");
            }
            for (key, value) in sc.sysctl.iter().chain(extra_sysctl) {
                set_sysctl(key, value)?;
            }
            Ok(())
        })?;
        let mut batch = String::from("link set lo up\n");
        for (i, path) in sc.paths.iter().enumerate() {
            let (dev, a, table) = (names[i], addr(i, side), 100 + i);
            batch += &format!("link set {dev} mtu {} txqueuelen {TXQUEUE} up\n", path.mtu);
            batch += &format!("addr add {a}/24 dev {dev}\n");
            batch += &format!("route add default dev {dev} table {table}\n");
            batch += &format!("rule add oif {dev} lookup {table} pref {}\n", 2000 + i);
            // A client's socket that is bound to an address uses the path of the address. The
            // server answers along the path of the client's address (a connected route), so both
            // directions of a pair of addresses use one path, unless source routing is asked for.
            if side == 0 || sc.source_routing {
                batch += &format!("rule add from {a} lookup {table} pref {}\n", 1000 + i);
            }
        }
        ip(&["-n", &self.ns[side], "-batch", "-"], Some(&batch))?;
        Ok(())
    }

    /// Packets that the kernel could not hand to netlab because the device's queue was full, for
    /// each path and direction.
    pub(crate) fn ring_drops(&self) -> Vec<[u64; 2]> {
        let mut drops = vec![[0; 2]; self.names.len()];
        for side in 0..2 {
            let text = within(&self.ns[side], || {
                fs::read_to_string("/proc/thread-self/net/dev").map_err(|e| e.to_string())
            });
            for line in text.unwrap_or_default().lines() {
                let Some((dev, rest)) = line.trim().split_once(':') else {
                    continue;
                };
                if let Some(i) = self.names.iter().position(|n| n[side] == dev) {
                    let fields: Vec<u64> = rest
                        .split_whitespace()
                        .filter_map(|x| x.parse().ok())
                        .collect();
                    drops[i][side] = fields.get(11).copied().unwrap_or(0);
                }
            }
        }
        drops
    }

    /// Overflows of UDP receive buffers at client and server: losses that are not the link's.
    pub(crate) fn udp_overflows(&self) -> [u64; 2] {
        [0, 1].map(|side| {
            let text = within(&self.ns[side], || {
                fs::read_to_string("/proc/thread-self/net/snmp").map_err(|e| e.to_string())
            })
            .unwrap_or_default();
            let mut udp = text.lines().filter(|l| l.starts_with("Udp:"));
            let (Some(head), Some(values)) = (udp.next(), udp.next()) else {
                return 0;
            };
            head.split_whitespace()
                .zip(values.split_whitespace())
                .find(|(key, _)| *key == "RcvbufErrors")
                .and_then(|(_, value)| value.parse().ok())
                .unwrap_or(0)
        })
    }
}

/// Processes in the namespace: what netlab's commands left behind.
fn pids(ns: &str) -> Vec<u32> {
    let text = ip(&["netns", "pids", ns], None).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|x| x.parse().ok())
        .collect()
}

fn kill(number: u32, signal: Signal) {
    if let Some(process) = pid(number) {
        let _ = rustix::process::kill_process(process, signal);
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let own = std::process::id();
        for signal in [Signal::TERM, Signal::KILL] {
            let mut left: Vec<u32> = self.ns.iter().flat_map(|ns| pids(ns)).collect();
            left.retain(|p| *p != own);
            if left.is_empty() {
                break;
            }
            for process in left {
                kill(process, signal);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.tuns.clear();
        for ns in &self.ns {
            let _ = ip(&["netns", "del", ns], None);
        }
    }
}

/// Removes the namespaces of netlab processes that no longer exist, and says how many.
pub(crate) fn gc() -> usize {
    let mut removed = 0;
    let Ok(dir) = fs::read_dir("/run/netns") else {
        return 0;
    };
    for entry in dir.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("nl-c-").or(name.strip_prefix("nl-s-"));
        let Some(owner) = owner.and_then(|p| p.parse::<u32>().ok()) else {
            continue;
        };
        if fs::metadata(format!("/proc/{owner}")).is_err() {
            // What the commands left running is in the namespace that netlab made for them.
            for process in pids(&name) {
                kill(process, Signal::KILL);
            }
            removed += usize::from(ip(&["netns", "del", &name], None).is_ok());
        }
    }
    removed
}

/// Whether a program in the namespace listens on the port ("udp:N", "tcp:N", or "N" for either).
pub(crate) fn port_open(ns: &str, spec: &str) -> bool {
    let (udp, tcp, port) = match spec.split_once(':') {
        Some(("udp", port)) => (true, false, port),
        Some(("tcp", port)) => (false, true, port),
        _ => (true, true, spec),
    };
    let Ok(port) = port.parse::<u16>() else {
        return false;
    };
    let files = [
        (udp, "udp", false),
        (udp, "udp6", false),
        (tcp, "tcp", true),
        (tcp, "tcp6", true),
    ];
    within(ns, || {
        Ok(files
            .iter()
            .filter(|(asked, _, _)| *asked)
            .any(|(_, file, tcp)| {
                let text = fs::read_to_string(format!("/proc/thread-self/net/{file}"));
                text.unwrap_or_default()
                    .lines()
                    .any(|line| listens(line, port, *tcp))
            }))
    })
    .unwrap_or(false)
}

/// Whether a line of /proc/net/tcp or /proc/net/udp is a socket that listens on the port.
fn listens(line: &str, port: u16, tcp: bool) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let local = words
        .next()
        .is_some_and(|address| address.ends_with(&format!(":{port:04X}")));
    let state = words.nth(1);
    // TCP's state LISTEN.
    local && (!tcp || state == Some("0A"))
}

#[cfg(test)]
mod tests {
    use super::{listens, sysctl_path};

    #[test]
    fn only_settings_of_the_network_are_set() {
        assert_eq!(sysctl_path("net.ipv4.tcp_ecn").unwrap(), "net/ipv4/tcp_ecn");
        assert_eq!(sysctl_path("net/a/b.0/c").unwrap(), "net/a/b.0/c");
        for key in ["kernel.panic", "net/../kernel/panic", "net..x", ""] {
            let error = sysctl_path(key).unwrap_err();
            assert!(error.starts_with(&format!("sysctl {key}: ")), "{error}");
        }
    }

    #[test]
    fn a_listening_port_is_found_by_address_and_state() {
        let listening = "0: 00000000:1151 00000000:0000 0A 00000000:00000000";
        let connected = "1: 0200640A:1151 0100640A:D431 01 00000000:00000000";
        assert!(listens(listening, 4433, true));
        assert!(!listens(listening, 4434, true));
        assert!(!listens(connected, 4433, true));
        assert!(listens(connected, 4433, false));
        assert!(!listens(
            "  sl  local_address rem_address   st",
            4433,
            false
        ));
    }
}
