//! The command line.

/// How to use the tool.
pub(crate) const USAGE: &str = "\
Emulates links between two network namespaces, a client's and a server's. Needs root.

netlab check SCENARIO.toml
    print the paths of the scenario
netlab up SCENARIO.toml [OPTIONS] [--in client|server|host] -- COMMAND...
    create the paths, run COMMAND (default: in the client's namespace), remove the paths again
netlab run SCENARIO.toml --client 'CMD' --server 'CMD' [OPTIONS]
    run the server in its namespace, then the client in its own, then print one JSON line
netlab gc
    remove namespaces of netlab processes that were killed

OPTIONS
  --wait-port [udp:|tcp:]N  run: start the client when the server listens there (default: after 0.5 s)
  --wait S                  run: seconds to wait for the server
  --timeout S               run: limit on the client (default 60; then exit code 124)
  --capture                 run: put the client's standard output into the JSON line
  --client-log F, --server-log F   run: files for their output (default: standard error of netlab)
  --seed N                  replaces the seed of the scenario
  --mptcp                   an MPTCP endpoint per path on the client, limits on both sides
  --sysctl net.K=V          in both namespaces (repeatable)
  --setup-client CMD, --setup-server CMD   run in the namespace before anything else (repeatable)
  --threads direction|single|link   forwarding threads (default direction: two)
  --nice N                  priority of the commands (such as -10 on a busy machine)
  --no-rt                   forwarding threads without real-time priority
  --intervals               delivered bytes per interval in the JSON line
  --csv FILE                all counters per interval
  --json FILE               up: file for the JSON line (default: standard error)

Environment of all commands: NETLAB_CLIENT_ADDRS, NETLAB_SERVER_ADDRS (comma separated, one per
path), NETLAB_CLIENT_NS, NETLAB_SERVER_NS, NETLAB_SCENARIO.
";

/// The options of a command.
#[derive(Default, Debug)]
pub(crate) struct Options {
    pub(crate) scenario: String,
    pub(crate) client: Option<String>,
    pub(crate) server: Option<String>,
    pub(crate) command: Vec<String>,
    pub(crate) inside: String,
    pub(crate) wait_port: Option<String>,
    /// Seconds, finite and not negative.
    pub(crate) wait: f64,
    /// Seconds, finite and not negative.
    pub(crate) timeout: f64,
    pub(crate) capture: bool,
    pub(crate) client_log: Option<String>,
    pub(crate) server_log: Option<String>,
    pub(crate) seed: Option<u64>,
    pub(crate) mptcp: bool,
    pub(crate) sysctl: Vec<(String, String)>,
    /// Commands of the client's namespace, commands of the server's.
    pub(crate) setup: [Vec<String>; 2],
    pub(crate) threads: Option<String>,
    pub(crate) nice: i32,
    pub(crate) no_rt: bool,
    pub(crate) intervals: bool,
    pub(crate) csv: Option<String>,
    pub(crate) json: Option<String>,
}

/// A whole year is longer than any experiment, and short enough for every clock.
const LONGEST_S: f64 = 366.0 * 86_400.0;

fn seconds(option: &str, text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|s| (0.0..=LONGEST_S).contains(s))
        .ok_or(format!("{option} {text}: not a number of seconds"))
}

impl Options {
    /// Options, and the scenario's file, from the arguments behind the command's name.
    pub(crate) fn parse(args: &[String]) -> Result<Options, String> {
        let mut o = Options {
            wait: 0.5,
            timeout: 60.0,
            inside: "client".into(),
            ..Options::default()
        };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if arg == "--" {
                o.command = rest.by_ref().cloned().collect();
            } else if !arg.starts_with("--") {
                if !o.scenario.is_empty() {
                    return Err(format!("unexpected argument {arg}"));
                }
                o.scenario = arg.clone();
            } else {
                let (name, inline) = match arg.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_string())),
                    None => (arg.as_str(), None),
                };
                o.set(name, || {
                    inline
                        .or_else(|| rest.next().cloned())
                        .ok_or(format!("{name} needs a value"))
                })?;
            }
        }
        if o.scenario.is_empty() {
            return Err("which scenario file?".into());
        }
        Ok(o)
    }

    fn set(
        &mut self,
        name: &str,
        value: impl FnOnce() -> Result<String, String>,
    ) -> Result<(), String> {
        match name {
            "--client" => self.client = Some(value()?),
            "--server" => self.server = Some(value()?),
            "--in" => self.inside = value()?,
            "--wait-port" => self.wait_port = Some(value()?),
            "--wait" => self.wait = seconds(name, &value()?)?,
            "--timeout" => self.timeout = seconds(name, &value()?)?,
            "--capture" => self.capture = true,
            "--client-log" => self.client_log = Some(value()?),
            "--server-log" => self.server_log = Some(value()?),
            "--seed" => self.seed = Some(whole(name, &value()?)?),
            "--mptcp" => self.mptcp = true,
            "--sysctl" => {
                let text = value()?;
                let (key, setting) = text
                    .split_once('=')
                    .ok_or(format!("--sysctl {text}: KEY=VALUE expected"))?;
                self.sysctl.push((key.into(), setting.into()));
            }
            "--setup-client" => self.setup[0].push(value()?),
            "--setup-server" => self.setup[1].push(value()?),
            "--threads" => self.threads = Some(value()?),
            "--nice" => self.nice = whole(name, &value()?)?,
            "--no-rt" => self.no_rt = true,
            "--intervals" => self.intervals = true,
            "--csv" => self.csv = Some(value()?),
            "--json" => self.json = Some(value()?),
            _ => return Err(format!("unknown option {name}")),
        }
        Ok(())
    }
}

fn whole<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{option} {text}: not a whole number"))
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parse(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        Options::parse(&words)
    }

    #[test]
    fn values_stand_behind_an_equals_sign_or_in_the_next_argument() {
        let o =
            parse("s.toml --wait=2 --timeout 7.5 --seed 9 --nice -5 --sysctl net.a=b=c -- x --y")
                .unwrap();
        assert_eq!((o.wait, o.timeout, o.seed, o.nice), (2.0, 7.5, Some(9), -5));
        assert_eq!(o.sysctl, [("net.a".to_string(), "b=c".to_string())]);
        assert_eq!(o.command, ["x", "--y"]);
        assert_eq!(o.scenario, "s.toml");
        assert_eq!(o.inside, "client");
    }

    #[test]
    fn options_that_are_not_given_have_defaults_and_flags_take_no_value() {
        let o = parse("s.toml").unwrap();
        assert_eq!((o.wait, o.timeout, o.seed, o.nice), (0.5, 60.0, None, 0));
        assert!(!o.capture && !o.mptcp && !o.no_rt && !o.intervals);
        let o = parse("--capture --mptcp --no-rt --intervals s.toml --wait 0").unwrap();
        assert!(o.capture && o.mptcp && o.no_rt && o.intervals);
        assert_eq!((o.scenario.as_str(), o.wait), ("s.toml", 0.0));
        let o = parse("s.toml --setup-client a --setup-server b --setup-client c").unwrap();
        assert_eq!(o.setup, [vec!["a", "c"], vec!["b"]]);
    }

    #[test]
    fn errors_name_the_option_and_the_value() {
        for (line, expected) in [
            ("", "which scenario file?"),
            ("a b", "unexpected argument b"),
            ("a --what", "unknown option --what"),
            ("a --csv", "--csv needs a value"),
            ("a --wait soon", "--wait soon: not a number of seconds"),
            ("a --timeout -1", "--timeout -1: not a number of seconds"),
            ("a --timeout nan", "--timeout nan: not a number of seconds"),
            ("a --seed 1.5", "--seed 1.5: not a whole number"),
            ("a --nice low", "--nice low: not a whole number"),
            ("a --sysctl net.x", "--sysctl net.x: KEY=VALUE expected"),
        ] {
            assert_eq!(parse(line).unwrap_err(), expected, "{line}");
        }
    }
}
