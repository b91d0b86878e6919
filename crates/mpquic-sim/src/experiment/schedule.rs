//! Spreads the runs of several experiments over several threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};

use super::results::{Run, ScenarioResults, Trace};
use super::runs::{Experiment, Outcomes, PARTS};

/// Does all runs of several experiments in `threads` threads, and calls `progress` after each run.
/// `done` gets the index and the results of each experiment, in order: once the runs of this
/// experiment and of all earlier experiments are over. The results do not depend on the number of
/// threads.
pub fn run_all(
    experiments: &[Experiment],
    threads: usize,
    progress: &(dyn Fn(&Experiment) + Sync),
    done: &mut dyn FnMut(usize, ScenarioResults),
) {
    let runs: usize = experiments.iter().map(Experiment::count).sum();
    let (sender, receiver) = mpsc::channel();
    let work = Work::new(experiments);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, runs.max(1)) {
            let (work, sender) = (&work, sender.clone());
            scope.spawn(move || {
                while let Some((index, case)) = work.take() {
                    let experiment = &experiments[index];
                    let outcome = experiment.run_case(experiment.case(case));
                    progress(experiment);
                    if let Some(outcomes) = work.put(index, case, outcome) {
                        let (runs, traces): (Vec<_>, Vec<_>) = outcomes.into_values().unzip();
                        let traces = traces.into_iter().flatten().collect();
                        if sender
                            .send((index, experiment.results(runs, traces)))
                            .is_err()
                        {
                            return;
                        }
                    }
                }
            });
        }
        drop(sender);
        let mut complete: Vec<Option<ScenarioResults>> = vec![None; experiments.len()];
        let mut first = 0;
        for (index, results) in receiver {
            complete[index] = Some(results);
            while let Some(results) = complete.get_mut(first).and_then(Option::take) {
                done(first, results);
                first += 1;
            }
        }
    });
}

impl Experiment {
    /// Does all runs in `threads` threads, and calls `progress` after each run. The results do not
    /// depend on the number of threads.
    pub fn run(&self, threads: usize, progress: &(dyn Fn() + Sync)) -> ScenarioResults {
        let mut results = None;
        run_all(
            std::slice::from_ref(self),
            threads,
            &|_| progress(),
            &mut |_, done| results = Some(done),
        );
        results.unwrap_or_else(|| self.results(Vec::new(), Vec::new()))
    }
}

/// The runs that are left to do.
struct Work<'a> {
    experiments: &'a [Experiment],
    /// The state of each experiment.
    state: Mutex<Vec<State>>,
    /// Notified after new runs, and after the last run of an experiment.
    changed: Condvar,
}

/// The progress of an experiment.
#[derive(Default)]
struct State {
    /// Number of parts that have begun.
    parts: usize,
    /// Runs of the begun parts that no thread has taken yet.
    waiting: VecDeque<usize>,
    /// Number of runs that threads have taken and not finished.
    running: usize,
    /// Finished runs.
    outcomes: Outcomes,
}

impl State {
    /// Begins parts until a run waits, or until no part is left.
    fn begin_next(&mut self, experiment: &Experiment) {
        while self.waiting.is_empty() && self.parts < PARTS {
            self.waiting.extend(experiment.part(self.parts));
            self.parts += 1;
        }
    }
}

impl<'a> Work<'a> {
    fn new(experiments: &'a [Experiment]) -> Self {
        let begun = |experiment: &Experiment| {
            let mut state = State::default();
            state.begin_next(experiment);
            state
        };
        Self {
            experiments,
            state: Mutex::new(experiments.iter().map(begun).collect()),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        // A panic of a thread that holds the lock leaves no state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next run: the index of its experiment, and its own index. Waits while runs under
    /// way may begin another part of their experiment. `None` once no run is left.
    fn take(&self) -> Option<(usize, usize)> {
        let mut states = self.lock();
        loop {
            for (index, state) in states.iter_mut().enumerate() {
                if let Some(case) = state.waiting.pop_front() {
                    state.running += 1;
                    return Some((index, case));
                }
            }
            if states.iter().all(|state| state.running == 0) {
                return None;
            }
            let waited = self.changed.wait(states);
            states = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Stores the outcome of a run. Returns all outcomes of the experiment after its last run.
    fn put(&self, index: usize, case: usize, outcome: (Run, Option<Trace>)) -> Option<Outcomes> {
        let experiment = &self.experiments[index];
        let mut states = self.lock();
        let state = &mut states[index];
        state.outcomes.insert(case, outcome);
        if !state.waiting.is_empty() || state.running > 1 {
            state.running -= 1;
            return None;
        }
        // This was the last run of the begun parts: no other thread works on the experiment now.
        let outcomes = std::mem::take(&mut state.outcomes);
        let more = state.parts < PARTS;
        drop(states);
        let decided = more && experiment.is_decided(&outcomes);
        let mut states = self.lock();
        let state = &mut states[index];
        state.running -= 1;
        if !decided {
            state.begin_next(experiment);
        }
        let is_over = state.waiting.is_empty();
        let result = if is_over {
            Some(outcomes)
        } else {
            state.outcomes = outcomes;
            None
        };
        self.changed.notify_all();
        result
    }
}
