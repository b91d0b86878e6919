//! The emulated network with its forwarding threads, and commands inside.

use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::forward::{Forwarding, Job};
use crate::net::{Net, addr};
use crate::options::Options;
use crate::process::{Running, Signals, command, standard_error};
use crate::scenario::Scenario;

/// The kernel takes no more MPTCP subflows than these.
const MOST_SUBFLOWS: usize = 8;

/// The files of a command's standard output and standard error; `None` is netlab's standard error.
pub(crate) type Outputs = [Option<File>; 2];

/// A network with forwarding threads.
pub(crate) struct Lab {
    // Fields are dropped in this order, after the commands of `run` and `up`: first the threads.
    pub(crate) forwarding: Option<Forwarding>,
    pub(crate) net: Net,
    pub(crate) sc: Scenario,
    pub(crate) signals: Signals,
    nice: i32,
    env: Vec<(String, String)>,
}

impl Lab {
    /// Creates the network, starts the threads, and runs the setup commands.
    pub(crate) fn new(o: &Options, sc: Scenario) -> Result<Lab, String> {
        let signals = Signals::block()?;
        let mut sysctl = vec![];
        if o.mptcp {
            sysctl.push(("net.mptcp.enabled".into(), "1".into()));
        }
        sysctl.extend(o.sysctl.iter().cloned());
        let net = Net::new(&sc, &sysctl)?;
        let paths = sc.paths.len();
        let list = |side| {
            let all: Vec<String> = (0..paths).map(|i| addr(i, side)).collect();
            all.join(",")
        };
        let env = vec![
            ("NETLAB_CLIENT_ADDRS".into(), list(0)),
            ("NETLAB_SERVER_ADDRS".into(), list(1)),
            ("NETLAB_CLIENT_NS".into(), net.ns[0].clone()),
            ("NETLAB_SERVER_NS".into(), net.ns[1].clone()),
            ("NETLAB_SCENARIO".into(), sc.name.clone()),
        ];
        let mut lab = Lab {
            forwarding: None,
            net,
            sc,
            signals,
            nice: o.nice,
            env,
        };
        lab.start_forwarding(o)?;
        if o.mptcp {
            lab.mptcp()?;
        }
        for side in 0..2 {
            for text in &o.setup[side] {
                lab.must(side, text)?;
            }
        }
        Ok(lab)
    }

    fn start_forwarding(&mut self, o: &Options) -> Result<(), String> {
        let kind = o.threads.as_deref().or(self.sc.threads.as_deref());
        let count = match kind.unwrap_or("direction") {
            "single" => 1,
            "direction" => 2,
            "link" => self.sc.paths.len() * 2,
            other => {
                return Err(format!("threads = {other}: use direction, single or link"));
            }
        };
        let mut groups: Vec<Vec<Job>> = vec![];
        groups.resize_with(count, Vec::new);
        for (i, path) in self.sc.paths.iter().enumerate() {
            for dir in 0..2 {
                let fds = &self.net.tuns[i];
                groups[(i * 2 + dir) % count].push(Job {
                    path: i,
                    dir,
                    from: Arc::clone(&fds[dir]),
                    to: Arc::clone(&fds[1 - dir]),
                    plan: path.dir[dir].clone(),
                    mtu: path.mtu,
                });
            }
        }
        self.forwarding = Some(Forwarding::start(groups, !o.no_rt)?);
        Ok(())
    }

    /// Kernel MPTCP: the client opens a subflow from each of its addresses.
    fn mptcp(&self) -> Result<(), String> {
        let paths = self.sc.paths.len();
        let limit = paths.min(MOST_SUBFLOWS);
        for side in 0..2 {
            let limits = format!("ip mptcp limits set subflows {limit} add_addr_accepted {limit}");
            self.must(side, &limits)?;
        }
        for i in 0..paths {
            let (address, device) = (addr(i, 0), &self.net.names[i][0]);
            let endpoint = format!("ip mptcp endpoint add {address} dev {device} subflow");
            self.must(0, &endpoint)?;
        }
        Ok(())
    }

    /// Runs a command of the shell, which must succeed, in the namespace of the side.
    fn must(&self, side: usize, text: &str) -> Result<(), String> {
        let mut running = self.spawn(side, text, [None, None], false)?;
        if running.wait()?.success() {
            Ok(())
        } else {
            Err(format!("setup command failed: {text}"))
        }
    }

    /// A command in the namespace, or in netlab's own.
    pub(crate) fn command(&self, ns: Option<&str>, words: &[&str]) -> Command {
        let mut all = ns.map_or(vec![], |ns| vec!["ip", "netns", "exec", ns]);
        all.extend(words);
        let mut command = command(&all, self.nice);
        command.envs(self.env.iter().cloned());
        command
    }

    /// Starts a command of the shell in the namespace of the side. `ip netns exec` becomes the
    /// shell, so the child's process number is the shell's; signals go to its whole group, because
    /// a shell does not pass signals on.
    pub(crate) fn spawn(
        &self,
        side: usize,
        text: &str,
        [out, err]: Outputs,
        group: bool,
    ) -> Result<Running, String> {
        let mut command = self.command(Some(&self.net.ns[side]), &["sh", "-c", text]);
        command
            .stdin(Stdio::null())
            .stdout(out.map_or_else(standard_error, Ok)?)
            .stderr(err.map_or_else(standard_error, Ok)?);
        Running::start(&mut command, group).map_err(|e| format!("ip netns exec: {e}"))
    }

    /// The schedules of all links start now.
    pub(crate) fn start_schedule(&self) -> Result<(), String> {
        let forwarding = self.forwarding.as_ref();
        forwarding
            .ok_or("the forwarding threads do not run")?
            .start_schedule();
        Ok(())
    }
}
