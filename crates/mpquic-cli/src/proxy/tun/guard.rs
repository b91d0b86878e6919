//! Drops packets that another interface brings for the addresses of the device.
//!
//! Linux takes a packet for any address of the machine, whatever interface brings the packet. So a
//! host in a local network could forge packets for connections through the tunnel
//! (CVE-2019-14899). A table of nftables for each device drops such packets.
//!
//! The kernel keeps the table of a killed client, whose device is gone. Each start with a device
//! and `mpquic proxy down` remove such tables.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::command::{output, run};
use super::kill_switch::is_missing;
use crate::process::failure::Failure;

/// The beginning of a table's name, of the family `inet`. The number of the device follows.
const PREFIX: &str = "mpquic_device_";

/// The table of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) device: String,
    /// The interface number of the device.
    pub(super) number: u32,
    /// The addresses of the device.
    pub(super) addresses: Vec<IpAddr>,
}

impl Table {
    fn name(&self) -> String {
        format!("{PREFIX}{}", self.number)
    }

    /// The table, in the language of `nft`. Numbers replace an earlier table in one transaction,
    /// and a device may have any name.
    fn script(&self) -> String {
        let (name, number) = (self.name(), self.number);
        let mut drops = String::new();
        for address in &self.addresses {
            let version = match address {
                IpAddr::V4(_) => "ip",
                IpAddr::V6(_) => "ip6",
            };
            let _ = writeln!(drops, "{version} daddr {address} counter drop");
        }
        // Programs of this machine reach the device's addresses over loopback.
        format!(
            "add table inet {name}
delete table inet {name}
table inet {name} {{
chain arriving {{
type filter hook prerouting priority raw; policy accept;
iifname \"lo\" accept
iif {number} accept
{drops}}}
}}
"
        )
    }

    fn set(&self) -> Result<(), Failure> {
        run("nft", &[self.script()])
    }

    fn is_set(&self) -> Result<bool, Failure> {
        let words = ["list", "table", "inet", &self.name()].map(str::to_owned);
        match output("nft", &words) {
            Err(failure) if is_missing(&failure) => Ok(false),
            told => told.map(|_| true),
        }
    }

    /// The warning about a table that cannot be made.
    fn told(&self, failure: &Failure) -> String {
        let told = failure.message();
        let reason = if told.contains("install nftables") {
            "the program `nft` is missing (install nftables)"
        } else {
            told
        };
        format!(
            "{reason}, so nothing drops packets that a host of the local network forges for the \
             addresses of {}: such packets reach connections through the tunnel",
            self.device
        )
    }
}

/// The table of this client's device; `None` before the table is set, without `nft`, and after the
/// end. Clones are handles to the same table.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard(Arc<Mutex<Option<Table>>>);

impl Guard {
    fn lock(&self) -> MutexGuard<'_, Option<Table>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the table, before the device has addresses. Without `nft`, a warning says what follows.
    pub(super) fn set(&self, table: Table) {
        match table.set() {
            Ok(()) => *self.lock() = Some(table),
            Err(failure) => tracing::warn!("{}", table.told(&failure)),
        }
    }

    /// True from the table's creation to its end.
    pub(super) fn is_set(&self) -> bool {
        self.lock().is_some()
    }

    /// Sets the table again after another program has removed the table.
    ///
    /// # Errors
    ///
    /// If `nft` fails.
    pub(super) fn keep(&self) -> Result<(), Failure> {
        // The lock lasts, so no table is set after the end.
        let table = self.lock();
        let Some(table) = table.as_ref() else {
            return Ok(());
        };
        if !table.is_set()? {
            table.set()?;
            tracing::warn!(
                "another program removed the rules that drop packets forged for the addresses of \
                 {}; they are set again",
                table.device
            );
        }
        Ok(())
    }

    /// Removes the table.
    fn end(&self) {
        let table = self.lock().take();
        if let Some(table) = table
            && let Err(failure) = remove(&table.name())
        {
            tracing::error!("{}", failure.message());
        }
    }
}

/// A guard that ends when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Guarded(pub(super) Guard);

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn remove(name: &str) -> Result<(), Failure> {
    let words = ["delete", "table", "inet", name].map(str::to_owned);
    match run("nft", &words) {
        Err(failure) if !is_missing(&failure) => Err(failure),
        _ => Ok(()),
    }
}

/// Removes the tables of devices that are gone: their clients were killed. Without `nft`, or
/// without the privilege, nothing happens.
pub(super) fn sweep() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let Ok(tables) = output("nft", &words("list tables inet")) else {
        return;
    };
    if !tables.contains(PREFIX) {
        return;
    }
    let Ok(devices) = output("ip", &words("-o link show")) else {
        return;
    };
    for name in left(&tables, &devices) {
        if let Err(failure) = remove(&name) {
            tracing::warn!("{}", failure.message());
        }
    }
}

/// The tables in a list of `nft` whose devices are missing in a list of `ip`.
fn left(tables: &str, devices: &str) -> Vec<String> {
    let number = |line: &str| line.split(':').next().and_then(|word| word.parse().ok());
    let there: Vec<u32> = devices.lines().filter_map(number).collect();
    let names = tables
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    let is_left = |name: &&str| {
        let number = name.strip_prefix(PREFIX).and_then(|word| word.parse().ok());
        number.is_some_and(|number: u32| !there.contains(&number))
    };
    names.filter(is_left).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(addresses: &[&str]) -> Table {
        Table {
            device: "tun*\"".to_owned(),
            number: 7,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn only_the_device_and_loopback_bring_packets_for_its_addresses() {
        let script = table(&["198.18.0.1", "fd6d:7071:7569:63a4::1"]).script();
        let lines: Vec<_> = script.lines().collect();
        assert_eq!(
            lines[5..],
            [
                "iifname \"lo\" accept",
                "iif 7 accept",
                "ip daddr 198.18.0.1 counter drop",
                "ip6 daddr fd6d:7071:7569:63a4::1 counter drop",
                "}",
                "}",
            ]
        );
        let begin = "add table inet mpquic_device_7\ndelete table inet mpquic_device_7\n";
        assert!(
            script.starts_with(begin) && !script.contains("tun"),
            "{script}"
        );
    }

    #[test]
    fn tables_of_devices_that_are_gone_are_left() {
        let tables = "table inet mpquic_device_7\ntable inet filter\ntable inet mpquic_device_8\n\
                      table inet mpquic_device_x\ntable inet mpquic_kill_switch\n";
        let devices = "1: lo: <LOOPBACK>\\    link\n8: mpquic0: <UP>\n70: near@if7: <UP>\n";
        assert_eq!(left(tables, devices), ["mpquic_device_7"]);
        assert!(left("", devices).is_empty());
    }

    #[test]
    fn a_missing_program_is_told_with_its_consequence() {
        let table = table(&[]);
        let missing = Failure::other("--kill-switch needs the program `nft`: install nftables");
        let told = table.told(&missing);
        let start = "the program `nft` is missing (install nftables), so nothing drops packets";
        assert!(told.starts_with(start) && !told.contains("kill"), "{told}");
        let told = table.told(&Failure::other("`nft` failed: not permitted"));
        assert!(
            told.starts_with("`nft` failed: not permitted, so nothing"),
            "{told}"
        );
    }
}
