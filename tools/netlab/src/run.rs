//! The commands `run` and `up`.

#![expect(
    clippy::disallowed_methods,
    reason = "how long commands take is measured by the clock"
)]

use std::fs::File;
use std::io::{IsTerminal, Read, Seek, Write};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::lab::{Lab, Outputs};
use crate::net::port_open;
use crate::options::Options;
use crate::process::{Processor, Running, exit_code, memory_file};
use crate::scenario::Scenario;

/// Bytes of the client's output that go into the JSON line.
const CAPTURE_LIMIT: u64 = 1 << 20;
/// Seconds that a server has at least until it listens on its port.
const PORT_WAIT_S: f64 = 10.0;
/// The exit code of a client that ran out of time.
const TIMED_OUT: u8 = 124;
/// The exit code when a signal ended netlab.
const INTERRUPTED: u8 = 130;

fn log(file: &Option<String>) -> Result<Outputs, String> {
    let Some(file) = file else {
        return Ok([None, None]);
    };
    let out = File::create(file).map_err(|e| format!("{file}: {e}"))?;
    let err = out.try_clone().map_err(|e| format!("{file}: {e}"))?;
    Ok([Some(out), Some(err)])
}

/// How the waiting for the client ended.
enum End {
    Itself,
    TimedOut,
    Signal(Signal),
}

/// Waits until the server listens, or as long as `--wait` says.
fn wait_for_server(lab: &Lab, server: &mut Running, o: &Options) -> Result<(), String> {
    let limit = match o.wait_port {
        Some(_) => o.wait.max(PORT_WAIT_S),
        None => o.wait,
    };
    let end = Instant::now() + Duration::from_secs_f64(limit);
    loop {
        if let Some(port) = &o.wait_port
            && port_open(&lab.net.ns[1], port)
        {
            return Ok(());
        }
        if let Some(status) = server.poll() {
            return Err(format!(
                "the server ended before the client was started: {status}"
            ));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return match &o.wait_port {
                Some(port) => Err(format!(
                    "the server does not listen on {port} after {limit} s"
                )),
                None => Ok(()),
            };
        }
        match lab.signals.wait(left.min(Duration::from_millis(10))) {
            None | Some(Signal::SIGCHLD) => {}
            Some(signal) => return Err(format!("stopped by signal {}", signal as i32)),
        }
    }
}

fn wait_for_client(lab: &Lab, client: &mut Running, end: Instant) -> End {
    while client.poll().is_none() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return End::TimedOut;
        }
        match lab.signals.wait(left.min(Duration::from_millis(500))) {
            None | Some(Signal::SIGCHLD) => {}
            Some(signal) => return End::Signal(signal),
        }
    }
    End::Itself
}

/// The client's output: parsed if it is JSON.
fn captured_output(mut file: File) -> Value {
    let mut bytes = vec![];
    let _ = file.rewind();
    let _ = file.take(CAPTURE_LIMIT).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    serde_json::from_str::<Value>(text.trim()).unwrap_or(json!(text))
}

fn exit_of(line: &Value) -> u8 {
    let code = line["exit"].as_u64();
    code.and_then(|c| u8::try_from(c).ok()).unwrap_or(1)
}

/// `netlab run`: a server, a client, and one JSON line.
pub(crate) fn run(o: &Options, sc: Scenario) -> Result<u8, String> {
    let client_text = o.client.as_deref().ok_or("--client 'CMD' is missing")?;
    let mut lab = Lab::new(o, sc)?;
    let mut server = None;
    if let Some(text) = &o.server {
        let running = lab.spawn(1, text, log(&o.server_log)?, true)?;
        wait_for_server(&lab, server.insert(running), o)?;
    }
    let [mut out, err] = log(&o.client_log)?;
    let mut captured = None;
    if o.capture {
        let file = memory_file()?;
        out = Some(file.try_clone().map_err(|e| e.to_string())?);
        captured = Some(file);
    }
    let processor = Processor::now();
    lab.start_schedule()?;
    let t0 = Instant::now();
    let mut client = lab.spawn(0, client_text, [out, err], true)?;
    let end = wait_for_client(&lab, &mut client, t0 + Duration::from_secs_f64(o.timeout));
    let wall = t0.elapsed();
    client.stop();
    // Null if the server ran until netlab stopped it.
    let server_exit = exit_code(server.as_mut().and_then(Running::poll));
    if let Some(server) = &mut server {
        server.stop();
    }
    let timed_out = matches!(end, End::TimedOut);
    let mut line = json!({
        "scenario": lab.sc.name,
        "seed": lab.sc.seed,
        "wall_s": (wall.as_secs_f64() * 1e6).round() / 1e6,
        "exit": if timed_out { json!(TIMED_OUT) } else { exit_code(client.status()) },
        "timed_out": timed_out,
        "server_exit": server_exit,
        "cpu": Processor::since(processor),
    });
    if let End::Signal(signal) = end {
        line["interrupted_by"] = json!(signal as i32);
    }
    if let Some(file) = captured {
        line["client_stdout"] = captured_output(file);
    }
    lab.report(o, &mut line)?;
    drop((client, server, lab));
    println!("{line}");
    Ok(match end {
        End::Signal(_) => INTERRUPTED,
        _ => exit_of(&line),
    })
}

/// `netlab up`: one command, with the links until it ends.
pub(crate) fn up(o: &Options, sc: Scenario) -> Result<u8, String> {
    if o.command.is_empty() {
        return Err("-- COMMAND... is missing".into());
    }
    let mut lab = Lab::new(o, sc)?;
    let ns = match o.inside.as_str() {
        "client" => Some(lab.net.ns[0].as_str()),
        "server" => Some(lab.net.ns[1].as_str()),
        "host" => None,
        other => return Err(format!("--in {other}: use client, server or host")),
    };
    // A shell at a terminal must stay in the terminal's foreground group.
    let terminal = std::io::stdin().is_terminal();
    let words: Vec<&str> = o.command.iter().map(String::as_str).collect();
    let processor = Processor::now();
    lab.start_schedule()?;
    let t0 = Instant::now();
    let mut running = Running::start(&mut lab.command(ns, &words), !terminal)
        .map_err(|e| format!("{}: {e}", o.command[0]))?;
    while running.poll().is_none() {
        match lab.signals.wait(Duration::from_millis(500)) {
            None | Some(Signal::SIGCHLD) => {}
            // At a terminal the command got the Ctrl-C as well and decides for itself.
            Some(Signal::SIGINT) if terminal => {}
            Some(_) => running.stop(),
        }
    }
    let wall = t0.elapsed().as_secs_f64();
    let status = running.status();
    drop(running);
    let mut line = json!({
        "scenario": lab.sc.name,
        "seed": lab.sc.seed,
        "wall_s": wall,
        "exit": exit_code(status),
        "cpu": Processor::since(processor),
    });
    lab.report(o, &mut line)?;
    drop(lab);
    match &o.json {
        Some(file) => {
            std::fs::write(file, format!("{line}\n")).map_err(|e| format!("{file}: {e}"))?;
        }
        None => {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    Ok(exit_of(&line))
}
