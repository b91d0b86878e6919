//! [`Control`]: the settings of a running client, changed by `mpquic proxy ctl` and by quotas.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mpquic_tokio::path_managers::{Origin, Rules, fits_interface};
use mpquic_tokio::{Connection, InterfaceAddress, LeftOutReason, interface_addresses};

use crate::client::live::Live;
use crate::options::Local;
use crate::options::cost::{Cost, prices};
use crate::options::origin::{is_here, origins};
use crate::process::clock;
use crate::process::failure::one_line;
use crate::proxy::args::ProxyClient;
use crate::proxy::change::{Change, Reply, Switch};
use crate::proxy::quota::{Quotas, Time};
use crate::proxy::settings::{InterfaceRow, Settings};

/// The time between two looks at the bytes of quotas.
const LOOK: Duration = Duration::from_secs(1);

/// The client's open connection; `None` while the client waits for one.
pub(crate) type Current = Arc<Mutex<Option<Connection>>>;

/// The settings of a running client.
pub(crate) struct Control {
    live: Arc<Live>,
    current: Current,
    /// Names of --local and --exclude.
    local: Vec<Local>,
    exclude: Vec<String>,
    state: Mutex<State>,
}

struct State {
    scheduler: String,
    controller: String,
    /// The first one that fits counts, here and in quotas.
    costs: Vec<Cost>,
    backups: Vec<Local>,
    paused: Vec<Local>,
    quotas: Quotas,
}

impl Control {
    /// The settings of the options. Interfaces without any bytes left are closed at once.
    pub(crate) fn new(args: &ProxyClient, live: &Arc<Live>, current: &Current) -> Self {
        let (scheduler, controller) = args.reach.connections.policies();
        let quotas = Quotas::new(args.quota.clone(), args.quota_book());
        let control = Self {
            live: live.clone(),
            current: current.clone(),
            local: args.reach.local.clone(),
            exclude: args.reach.exclude.clone(),
            state: Mutex::new(State {
                scheduler,
                controller,
                costs: args.preference.cost.clone(),
                backups: args.preference.backup.clone(),
                paused: Vec::new(),
                quotas,
            }),
        };
        control.look();
        control.apply(&control.state());
        control
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Option<Connection> {
        let current = self.current.lock();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes connections follow the settings.
    fn apply(&self, state: &State) {
        let listed = interface_addresses().unwrap_or_default();
        let mut rules = Rules::default();
        rules.prices = prices(&state.costs, &listed);
        let all = |locals: &[Local]| -> Vec<Origin> {
            let origins = locals.iter().flat_map(|local| origins(local, &listed));
            origins.collect()
        };
        rules.backups = all(&state.backups);
        let used_up = state.quotas.closed().into_iter().map(Local::Interface);
        let closed: Vec<_> = state.paused.iter().cloned().chain(used_up).collect();
        rules.closed = all(&closed);
        self.live.steer(rules, self.open().as_ref());
    }

    /// Counts bytes for quotas, and closes and opens interfaces accordingly.
    fn look(&self) {
        let mut state = self.state();
        let listed = interface_addresses().unwrap_or_default();
        let traffic = self.live.meter().traffic();
        if state.quotas.look(now(), &traffic, &listed) {
            self.apply(&state);
        }
    }

    /// Follows the quotas until dropped.
    pub(crate) async fn follow(self: &Arc<Self>) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            let control = self.clone();
            // The counts go to a file, which may be slow.
            let looked = tokio::task::spawn_blocking(move || {
                if control.state().quotas.quotas().is_empty() {
                    return;
                }
                control.look();
            });
            if let Err(error) = looked.await {
                tracing::error!("quotas are not looked at any more: {error}");
                std::future::pending::<()>().await;
            }
        }
    }

    /// The settings of each interface from which paths start.
    pub(crate) fn rows(&self) -> Vec<InterfaceRow> {
        let state = self.state();
        let listed = interface_addresses().unwrap_or_default();
        let quotas = state.quotas.rows();
        let mut names = self.interfaces(&listed);
        names.extend(quotas.keys().cloned());
        names.sort();
        names.dedup();
        let row = |name: String| {
            let fits = |local: &Local| {
                let at = listed.iter().filter(|at| at.name == name);
                let is_named = match local {
                    Local::Interface(pattern) => fits_interface(pattern, &name),
                    _ => false,
                };
                is_named || at.clone().any(|at| local.is(at))
            };
            let cost = state.costs.iter().find(|cost| fits(&cost.from));
            InterfaceRow {
                cost: cost.map_or(0, |cost| cost.cost),
                backup: state.backups.iter().any(fits),
                paused: state.paused.iter().any(fits),
                quota: quotas.get(&name).cloned(),
                name,
            }
        };
        names.into_iter().map(row).collect()
    }

    /// The names of interfaces from which paths may start, of those that exist.
    fn interfaces(&self, listed: &[InterfaceAddress]) -> Vec<String> {
        // A tunnel has a link-local address as well.
        let is_left_out = |name: &str| {
            let mut of_it = listed.iter().filter(|at| at.name == name);
            of_it.any(|at| {
                let why = at.left_out;
                matches!(
                    why,
                    Some(LeftOutReason::Loopback | LeftOutReason::Tunnel | LeftOutReason::Bridge)
                )
            })
        };
        let is_used = |at: &&InterfaceAddress| {
            if self.local.is_empty() {
                let mut exclude = self.exclude.iter();
                !is_left_out(&at.name) && !exclude.any(|pattern| fits_interface(pattern, &at.name))
            } else {
                self.local.iter().any(|local| local.is(at))
            }
        };
        let mut names: Vec<_> = listed
            .iter()
            .filter(is_used)
            .map(|at| at.name.clone())
            .collect();
        // A modem without a network has no address.
        let seen = self.live.meter().traffic().into_iter();
        names.extend(seen.filter_map(|traffic| match traffic.at {
            Origin::Interface(name) => Some(name),
            Origin::Address(_) => None,
        }));
        names.sort();
        names.dedup();
        names
    }

    /// Fails if no path can start there, with the names of interfaces where one can.
    fn check(&self, state: &State, from: &Local) -> Result<(), String> {
        let listed = interface_addresses().unwrap_or_default();
        let names = self.interfaces(&listed);
        let named = self.local.iter().chain(&state.backups).chain(&state.paused);
        let named = named.chain(state.costs.iter().map(|cost| &cost.from));
        let quotas = state.quotas.quotas().iter().map(|quota| &quota.from);
        let mut named = named.chain(quotas);
        let is_known = match from {
            Local::Interface(pattern) => {
                names.iter().any(|name| fits_interface(pattern, name))
                    || named.any(|other| match other {
                        Local::Interface(other) => fits_interface(other, pattern),
                        _ => false,
                    })
            }
            Local::Address(ip) => is_here(*ip, &listed),
            Local::OnLink(ip, _) => is_here((*ip).into(), &listed),
        };
        let mut right: Vec<_> = self.local.iter().map(Local::to_string).collect();
        right.extend(names);
        right.sort();
        right.dedup();
        if is_known {
            Ok(())
        } else {
            Err(format!(
                "{from}: no path starts there; there are: {}",
                right.join(", ")
            ))
        }
    }

    /// Does what a line of `mpquic proxy ctl` says.
    pub(crate) fn command(&self, line: &str) -> Reply {
        let done = line.parse().and_then(|change| self.change(change));
        done.unwrap_or_else(|told| Reply::Error(one_line(&told)))
    }

    fn change(&self, change: Change) -> Result<Reply, String> {
        if let Change::Show { .. } = change {
            return Ok(Reply::Settings(Box::new(self.settings())));
        }
        let mut state = self.state();
        let told = match change {
            Change::Cost { cost } => {
                self.check(&state, &cost.from)?;
                let told = format!("cost of {}: {}", cost.from, cost.cost);
                state.costs.retain(|other| other.from != cost.from);
                state.costs.insert(0, cost);
                told
            }
            Change::Backup { from, state: on } => {
                self.check(&state, &from)?;
                switch(&mut state.backups, &from, on, "a backup")?
            }
            Change::Pause { from } => {
                self.check(&state, &from)?;
                switch(&mut state.paused, &from, Switch::On, "paused")?
            }
            Change::Resume { from } => {
                self.check(&state, &from)?;
                switch(&mut state.paused, &from, Switch::Off, "paused")?
            }
            Change::Scheduler { name } => {
                let scheduler = mpquic_sched::by_name(&name).map_err(|error| error.to_string())?;
                self.live.set_scheduler(scheduler, self.open().as_ref());
                let told = format!("scheduler: {name}");
                state.scheduler = name;
                told
            }
            Change::Controller { name } => {
                let controller = mpquic_cc::by_name(&name).map_err(|error| error.to_string())?;
                let is_set = self.live.set_controller(controller, self.open().as_ref());
                let told = if is_set {
                    format!("controller: {name}")
                } else {
                    format!(
                        "controller: {name}, from the next connection on: it marks packets otherwise than the \
                         controller of the open connection"
                    )
                };
                state.controller = name;
                told
            }
            Change::Quota { quota } => {
                self.check(&state, &quota.from)?;
                let told = format!("quota: {quota}");
                state.quotas.set(quota);
                let listed = interface_addresses().unwrap_or_default();
                let traffic = self.live.meter().traffic();
                state.quotas.look(now(), &traffic, &listed);
                told
            }
            Change::Show { .. } => String::new(),
        };
        self.apply(&state);
        drop(state);
        tracing::info!("ctl: {told}");
        Ok(Reply::Done(told))
    }

    fn settings(&self) -> Settings {
        let interfaces = self.rows();
        let state = self.state();
        let written = |locals: &[Local]| locals.iter().map(Local::to_string).collect();
        let costs = state.costs.iter();
        let costs = costs.map(|cost| format!("{}={}", cost.from, cost.cost));
        let quotas = state.quotas.quotas().iter();
        Settings {
            scheduler: state.scheduler.clone(),
            controller: state.controller.clone(),
            costs: costs.collect(),
            backups: written(&state.backups),
            paused: written(&state.paused),
            quotas: quotas.map(ToString::to_string).collect(),
            interfaces,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        if !state.quotas.quotas().is_empty() {
            let listed = interface_addresses().unwrap_or_default();
            state
                .quotas
                .look(now(), &self.live.meter().traffic(), &listed);
            state.quotas.save(now());
        }
    }
}

fn now() -> Time {
    Time {
        clock: clock::time_of_day(),
        steady: clock::now(),
    }
}

/// Adds a name to a list, or removes it, and tells so in words.
fn switch(list: &mut Vec<Local>, from: &Local, on: Switch, what: &str) -> Result<String, String> {
    let is_there = list.contains(from);
    match on {
        Switch::On => {
            if !is_there {
                list.push(from.clone());
            }
            return Ok(format!("{from}: {what}"));
        }
        Switch::Off => list.retain(|other| other != from),
    }
    let covers = |other: &&Local| match (other, from) {
        (Local::Interface(pattern), Local::Interface(name)) => fits_interface(pattern, name),
        _ => false,
    };
    match list.iter().find(covers) {
        Some(pattern) => Err(format!(
            "{from} is {what} by the name {pattern}: name {pattern}"
        )),
        None if is_there => Ok(format!("{from}: no longer {what}")),
        None => Err(format!("{from} is not {what}; {}", named(list, what))),
    }
}

/// The names in a list, in words.
fn named(list: &[Local], what: &str) -> String {
    let names: Vec<_> = list.iter().map(Local::to_string).collect();
    if names.is_empty() {
        format!("nothing is {what}")
    } else {
        format!("{what}: {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests;
