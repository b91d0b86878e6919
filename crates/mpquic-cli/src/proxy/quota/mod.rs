//! `--quota`: bytes a month on an interface, counted over restarts.

mod book;
mod month;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use mpquic_tokio::path_managers::{Origin, fits_interface};
use mpquic_tokio::{InterfaceAddress, Traffic};
use serde::{Deserialize, Serialize};

use book::{Book, Months};
use month::{Month, written};

use crate::options::Local;
use crate::options::quota::Quota;

/// At most the counts of this time are lost in a crash.
const KEEP: Duration = Duration::from_secs(60);

/// The quota of one interface, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuotaRow {
    /// Bytes of this month, sent and received.
    pub(crate) used: u64,
    /// The bytes of a month.
    pub(crate) limit: u64,
    /// The day on which the next month begins; `None` until the clock is believed.
    pub(crate) until: Option<String>,
    /// The interface is closed.
    pub(crate) used_up: bool,
}

/// The count of one interface with a quota.
#[derive(Debug, Clone, Copy)]
struct Account {
    month: Month,
    /// Bytes that the file does not have yet.
    unsaved: u64,
    /// Bytes of all sockets at the last look.
    seen: u64,
    is_closed: bool,
}

impl Account {
    fn used(&self) -> u64 {
        self.month.used.saturating_add(self.unsaved)
    }
}

/// The time of a look: by the clock of the machine, which may jump, and by one that does not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    pub(crate) clock: SystemTime,
    pub(crate) steady: Instant,
}

impl Time {
    fn seconds(&self) -> u64 {
        let since = self.clock.duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }
}

/// The counts of all interfaces with a quota.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// The first quota that fits an interface counts.
    quotas: Vec<Quota>,
    /// `None` if the machine has no place for files.
    book: Option<Book>,
    accounts: BTreeMap<String, Account>,
    saved: Option<Instant>,
    looked: Option<Instant>,
    /// True once the log has the last failure.
    has_failed: bool,
}

impl Quotas {
    /// Counts of these quotas, kept in this file.
    pub(crate) fn new(quotas: Vec<Quota>, file: Option<PathBuf>) -> Self {
        if file.is_none() && !quotas.is_empty() {
            tracing::warn!(
                "no directory for lasting data (HOME and XDG_STATE_HOME are not set): the next start counts anew; \
                 --quota-file names a file"
            );
        }
        Self {
            quotas,
            book: file.map(Book::new),
            accounts: BTreeMap::new(),
            saved: None,
            looked: None,
            has_failed: false,
        }
    }

    /// Puts a quota before the others.
    pub(crate) fn set(&mut self, quota: Quota) {
        self.quotas.retain(|other| other.from != quota.from);
        self.quotas.insert(0, quota);
    }

    /// The quotas, the first one that fits counts.
    pub(crate) fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// Bytes a month, and the day on which months begin.
    fn limit(&self, interface: &str) -> Option<(u64, u8)> {
        let fits = |quota: &&Quota| match &quota.from {
            Local::Interface(pattern) => fits_interface(pattern, interface),
            _ => false,
        };
        let quota = self.quotas.iter().find(fits)?;
        Some((quota.bytes?, quota.reset))
    }

    /// Counts, follows the clock, and keeps the counts now and then. Returns true if the closed
    /// interfaces have changed. `listed` are the interfaces of the machine.
    pub(crate) fn look(
        &mut self,
        now: Time,
        traffic: &[Traffic],
        listed: &[InterfaceAddress],
    ) -> bool {
        let before = self.closed();
        if self.looked.is_none() {
            self.recall();
        }
        let ran = self.looked.map(|looked| now.steady - looked);
        let ran = ran.unwrap_or_default();
        self.count(traffic, listed);
        let of_interest = self.quotas.iter().any(|quota| quota.bytes.is_some());
        let since = self.saved.map(|saved| now.steady - saved);
        let is_due = since.is_none_or(|since| since >= KEEP)
            || self.accounts.iter().any(|(name, account)| {
                let limit = self.limit(name);
                limit.is_some_and(|(bytes, reset)| {
                    let is_over = account.used() >= bytes && !account.is_closed;
                    is_over || account.month.is_due(now.seconds(), reset, ran)
                })
            });
        self.looked = Some(now.steady);
        if of_interest && is_due {
            self.save(now);
        }
        self.close();
        before != self.closed()
    }

    /// Takes the counts of earlier runs from the file.
    fn recall(&mut self) {
        let Some(book) = &self.book else {
            return;
        };
        let mut months = None;
        // The first change replaces a faulty file, so the log names the fault once.
        if book.change(|kept| months = Some(kept.clone())).is_err() {
            months = Some(book.read());
        }
        let months = months.unwrap_or_default();
        for (name, month) in months {
            self.account(&name).month = month;
        }
    }

    fn account(&mut self, name: &str) -> &mut Account {
        let reset = self.limit(name).map_or(1, |(_, reset)| reset);
        let new = || Account {
            month: Month::new(reset),
            unsaved: 0,
            seen: 0,
            is_closed: false,
        };
        self.accounts.entry(name.to_owned()).or_insert_with(new)
    }

    /// Adds the bytes since the last look.
    fn count(&mut self, traffic: &[Traffic], listed: &[InterfaceAddress]) {
        let mut seen = BTreeMap::<&str, u64>::new();
        for one in traffic {
            let name = match &one.at {
                Origin::Interface(name) => Some(name.as_str()),
                Origin::Address(ip) => {
                    let found = listed.iter().find(|at| at.ip == *ip);
                    found.map(|at| at.name.as_str())
                }
            };
            if let Some(name) = name {
                *seen.entry(name).or_default() += one.sent + one.received;
            }
        }
        for (name, bytes) in seen {
            let has_quota = self.limit(name).is_some();
            let account = self.account(name);
            // Bytes before a quota at run time do not count.
            if has_quota {
                account.unsaved += bytes.saturating_sub(account.seen);
            }
            account.seen = bytes;
        }
    }

    /// Adds the counts to those in the file, and follows the clock.
    pub(crate) fn save(&mut self, now: Time) {
        let ran = self.saved.map(|saved| now.steady - saved);
        let ran = ran.unwrap_or_default();
        self.saved = Some(now.steady);
        let mut added = self.accounts.clone();
        added.retain(|name, _| self.limit(name).is_some());
        let limits: Vec<_> = added.keys().map(|name| self.limit(name)).collect();
        let update = |months: &mut Months| {
            for ((name, account), limit) in added.iter_mut().zip(limits) {
                let reset = limit.map_or(1, |(_, reset)| reset);
                let month = months.entry(name.clone());
                let month = month.or_insert(Month::new(reset));
                month.used = month.used.saturating_add(account.unsaved);
                if month.follow(now.seconds(), reset, ran) {
                    tracing::info!("{name}: a new month of its quota begins");
                }
                (account.month, account.unsaved) = (*month, 0);
            }
        };
        match &self.book {
            Some(book) => match book.change(update) {
                Ok(()) => self.has_failed = false,
                Err(error) => {
                    let path = book.path().display();
                    if !std::mem::replace(&mut self.has_failed, true) {
                        tracing::warn!(
                            "cannot keep the counts of quotas in {path}: {error}; trying again each minute"
                        );
                    }
                    return self.follow_alone(now, ran);
                }
            },
            None => return self.follow_alone(now, ran),
        }
        self.accounts.extend(added);
    }

    /// Follows the clock without a file.
    fn follow_alone(&mut self, now: Time, ran: Duration) {
        let limits: Vec<_> = self.accounts.keys().map(|name| self.limit(name)).collect();
        for (account, limit) in self.accounts.values_mut().zip(limits) {
            if let Some((_, reset)) = limit
                && account.month.follow(now.seconds(), reset, ran)
            {
                account.unsaved = 0;
            }
        }
    }

    /// Closes the interfaces whose quota is used up, and opens the others.
    fn close(&mut self) {
        let limits: Vec<_> = self.accounts.keys().map(|name| self.limit(name)).collect();
        for ((name, account), limit) in self.accounts.iter_mut().zip(limits) {
            let is_over = limit.is_some_and(|(bytes, _)| account.used() >= bytes);
            if is_over == std::mem::replace(&mut account.is_closed, is_over) {
                continue;
            }
            let bytes = limit.map_or(0, |(bytes, _)| bytes);
            let used = gigabytes(account.used());
            if is_over {
                tracing::warn!(
                    "{name} has used up its quota ({used} of {}): its paths are closed {}",
                    gigabytes(bytes),
                    match account.month.until {
                        Some(until) => format!("until {}", written(until)),
                        None => "until the clock is set, and a month has passed".to_owned(),
                    }
                )
            } else {
                tracing::warn!("{name}: its paths are open again")
            }
        }
    }

    /// The interfaces whose quota is used up.
    pub(crate) fn closed(&self) -> Vec<String> {
        let closed = self
            .accounts
            .iter()
            .filter(|(_, account)| account.is_closed);
        closed.map(|(name, _)| name.clone()).collect()
    }

    /// The interfaces with a quota.
    pub(crate) fn rows(&self) -> BTreeMap<String, QuotaRow> {
        let rows = self.accounts.iter().filter_map(|(name, account)| {
            let (limit, _) = self.limit(name)?;
            let row = QuotaRow {
                used: account.used(),
                limit,
                until: account.month.until.map(written),
                used_up: account.is_closed,
            };
            Some((name.clone(), row))
        });
        rows.collect()
    }
}

/// "1.50 GB", or "1.50 MB" below 1 GB: powers of 1000, as providers count.
pub(crate) fn gigabytes(bytes: u64) -> String {
    match bytes {
        ..1_000_000_000 => format!("{:.2} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests;
