//! [`Agent`]: a program that answers observations with weights.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Most bytes of an answer. The limit ends the reading from a program that writes without end.
const MAX_ANSWER: u64 = 64 * 1024;

/// The question to an agent: one line of JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Observation {
    /// Virtual time since the first observation.
    pub seconds: f64,
    /// A seed for random numbers, the same in equal runs.
    pub seed: u64,
    /// Stream bytes that wait to be sent.
    pub unsent: u64,
    /// The paths that may carry these bytes.
    pub paths: Vec<PathObservation>,
}

/// A path as an agent sees it. Counters grow over the life of the path.
#[derive(Debug, Clone, Serialize)]
pub struct PathObservation {
    pub id: u64,
    pub rtt_ms: f64,
    pub min_rtt_ms: f64,
    pub window: u64,
    pub in_flight: u64,
    pub bytes_sent: u64,
    pub bytes_acked: u64,
    pub bytes_lost: u64,
    /// Bytes per second, once measured.
    pub delivery_rate: Option<u64>,
}

/// The command that starts an agent.
#[derive(Debug, Clone)]
pub struct AgentCommand {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// The longest real time for one answer, and for the end of the agent.
    pub deadline: Duration,
}

/// The reason for a missing answer.
#[derive(Debug)]
enum Problem {
    /// The program no longer reads or writes.
    Closed,
    /// The program wrote something other than one line.
    Answer(String),
}

/// A running agent. Virtual time stands still from a question to its answer.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    /// Sends lines to the thread that talks with the program. `None` ends the program's input.
    questions: Option<Sender<String>>,
    answers: Receiver<Result<String, Problem>>,
    deadline: Duration,
    name: String,
}

impl Agent {
    /// Starts the program. Its standard error is the standard error of this process.
    pub fn start(command: &AgentCommand) -> Result<Self, String> {
        let name = command.words.join(" ");
        let (program, arguments) = command.words.split_first().ok_or("no agent is given")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("agent `{name}` does not start: {error}"))?;
        let (question_sender, questions) = mpsc::channel();
        let (answer_sender, answers) = mpsc::channel();
        if let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) {
            // Writing and reading can block for ever, so a thread of its own does both.
            std::thread::spawn(move || talk(&questions, &answer_sender, input, output));
        }
        Ok(Self {
            child,
            questions: Some(question_sender),
            answers,
            deadline: command.deadline,
            name,
        })
    }

    /// The agent's weights for the paths of an observation, in the order of the paths.
    pub fn ask(&mut self, observation: &Observation) -> Result<Vec<f64>, String> {
        let answer = self.exchange(observation);
        let weights = answer.and_then(|line| weights(&line, observation.paths.len()));
        weights.map_err(|problem| {
            // The program gets no further question, so its end need not be waited for.
            let _ = self.child.kill();
            format!("agent `{}` {problem}", self.name)
        })
    }

    fn exchange(&mut self, observation: &Observation) -> Result<String, String> {
        let question = serde_json::to_string(observation).map_err(|error| error.to_string())?;
        if let Some(questions) = &self.questions {
            // If the thread is gone, no answer comes, and the receiver reports the missing answer.
            let _ = questions.send(question + "\n");
        }
        match self.answers.recv_timeout(self.deadline) {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(Problem::Answer(problem))) => Err(problem),
            Ok(Err(Problem::Closed)) => Err(self.ended().unwrap_or("closed a pipe".into())),
            Err(_) => Err(format!("gave no answer within {:?}", self.deadline)),
        }
    }

    /// The words about the program's end, if it has ended or ends within a second.
    fn ended(&mut self) -> Option<String> {
        let status = wait(&mut self.child, Duration::from_secs(1).min(self.deadline))?;
        Some(format!("ended too early, {status}"))
    }
}

impl Drop for Agent {
    /// Ends the program's input, so that the program can save its state and end. Kills the program
    /// after the deadline.
    fn drop(&mut self) {
        self.questions = None;
        if wait(&mut self.child, self.deadline).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn wait(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Passes questions to a program and its answers back, one line each, until one side ends.
fn talk(
    questions: &Receiver<String>,
    answers: &Sender<Result<String, Problem>>,
    mut input: ChildStdin,
    output: ChildStdout,
) {
    let mut output = BufReader::new(output);
    for question in questions {
        let answer = input
            .write_all(question.as_bytes())
            .and_then(|()| input.flush())
            .map_err(|_| Problem::Closed)
            .and_then(|()| read_line(&mut output));
        let failed = answer.is_err();
        if answers.send(answer).is_err() || failed {
            return;
        }
    }
}

fn read_line(output: &mut BufReader<ChildStdout>) -> Result<String, Problem> {
    let mut line = String::new();
    let wrong = |what: &str| Err(Problem::Answer(what.into()));
    let read = output.by_ref().take(MAX_ANSWER).read_line(&mut line);
    match read {
        Ok(0) => Err(Problem::Closed),
        Ok(_) if !line.ends_with('\n') => wrong("wrote a line that is too long or has no end"),
        Ok(_) if !output.buffer().is_empty() => wrong("wrote more than one line per question"),
        Ok(_) => Ok(line),
        Err(error) => wrong(&format!("wrote something that cannot be read: {error}")),
    }
}

/// Reads an answer: a number for each path, no number negative, at least one number positive.
fn weights(line: &str, paths: usize) -> Result<Vec<f64>, String> {
    let shown: String = line.trim_end().chars().take(60).collect();
    let wrong = |what: &str| format!("answered {shown:?}: {what}");
    let weights: Vec<f64> = serde_json::from_str(line)
        .map_err(|error| wrong(&format!("not a list of numbers: {error}")))?;
    if weights.len() != paths {
        return Err(wrong(&format!("{paths} weights are needed")));
    }
    let usable = weights
        .iter()
        .all(|weight| weight.is_finite() && *weight >= 0.0);
    if !usable || weights.iter().all(|weight| *weight == 0.0) {
        return Err(wrong(
            "weights are positive, or zero for paths not to be used",
        ));
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation() -> Observation {
        let path = |id| PathObservation {
            id,
            rtt_ms: 20.0,
            min_rtt_ms: 20.0,
            window: 12_000,
            in_flight: 0,
            bytes_sent: 0,
            bytes_acked: 0,
            bytes_lost: 0,
            delivery_rate: None,
        };
        Observation {
            seconds: 0.0,
            seed: 1,
            unsent: 1000,
            paths: vec![path(0), path(1)],
        }
    }

    fn python(script: &str, deadline: Duration) -> AgentCommand {
        AgentCommand {
            words: ["python3", "-c", script].map(str::to_owned).into(),
            deadline,
        }
    }

    const PATIENT: Duration = Duration::from_secs(60);

    #[test]
    fn the_agent_of_this_example_answers() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/agent.py");
        let words = ["python3", file].map(str::to_owned).into();
        let command = AgentCommand {
            words,
            deadline: PATIENT,
        };
        let mut agent = Agent::start(&command).unwrap();
        for _ in 0..3 {
            let weights = agent.ask(&observation()).unwrap();
            assert_eq!(weights.len(), 2);
        }
    }

    #[test]
    fn an_agent_that_is_of_no_use_is_told_apart_and_never_waited_for_in_vain() {
        let cases = [
            ("raise SystemExit(3)", "ended too early, exit status: 3"),
            (
                "print('hello', input()[:0])",
                "answered \"hello\": not a list of numbers",
            ),
            ("print('[1.0]', input()[:0])", "2 weights are needed"),
            ("print('[0, 0]', input()[:0])", "weights are positive"),
            ("print('[1, -1]', input()[:0])", "weights are positive"),
            ("print('[1, 1e999]', input()[:0])", "number out of range"),
            (
                "input(); print('[1,1]\\n[1,1]', flush=True); input()",
                "more than one line",
            ),
            ("print('9' * 1000000, end='')", "too long"),
            (
                "import sys; sys.stdout.buffer.write(b'\\xff\\n')",
                "cannot be read",
            ),
            (
                "import os, time; os.close(1); time.sleep(99)",
                "closed a pipe",
            ),
        ];
        for (script, expected) in cases {
            let mut agent = Agent::start(&python(script, PATIENT)).unwrap();
            let problem = agent.ask(&observation()).unwrap_err();
            assert!(problem.contains(expected), "{script}: {problem}");
        }
        let command = AgentCommand {
            words: vec!["/nonexistent".into()],
            deadline: PATIENT,
        };
        let problem = Agent::start(&command).unwrap_err();
        assert!(
            problem.contains("`/nonexistent` does not start"),
            "{problem}"
        );
    }

    #[test]
    fn an_agent_that_does_not_answer_is_ended() {
        let sleeps = "import time; time.sleep(1000)";
        let mut agent = Agent::start(&python(sleeps, Duration::from_millis(300))).unwrap();
        let problem = agent.ask(&observation()).unwrap_err();
        assert!(problem.contains("no answer within 300ms"), "{problem}");
        let started = Instant::now();
        drop(agent);
        assert!(started.elapsed() < Duration::from_secs(100));
    }
}
