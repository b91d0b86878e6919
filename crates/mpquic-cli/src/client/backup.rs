//! Paths that stand by: `--backup`.

use std::net::IpAddr;

use mpquic_core::PathStatus;
use mpquic_tokio::path_managers::fits_interface;
use mpquic_tokio::{
    Connection, EndpointBuilder, InterfaceAddress, LeftOutReason, PathId, interface_addresses,
};

use crate::options::Local;
use crate::options::origin::{is_here, listed};
use crate::options::reach::Reach;
use crate::process::failure::Failure;
use crate::report::PathReport;

/// Checks that paths start from these addresses and interfaces.
pub(crate) fn check(reach: &Reach, option: &str, backups: &[Local]) -> Result<(), Failure> {
    if backups.is_empty() {
        return Ok(());
    }
    let listed = listed()?;
    let unused = backups.iter().find_map(|backup| {
        let why = why_unused(reach, backup, &listed)?;
        Some((backup, why))
    });
    match unused {
        None => Ok(()),
        Some((backup, why)) => Err(Failure::usage(format!("{option} {backup}: {why}"))),
    }
}

/// The reason why no path starts from `backup`; `None` if a path does.
fn why_unused(reach: &Reach, backup: &Local, listed: &[InterfaceAddress]) -> Option<&'static str> {
    let interface = interface_named(backup, listed);
    let is_excluded = |name: &String| {
        let mut excluded = reach.exclude.iter();
        excluded.any(|excluded| fits_interface(excluded, name))
    };
    if interface.is_some_and(is_excluded) {
        return Some("--exclude leaves this interface out; name one that is used");
    }
    if !reach.local.is_empty() {
        let is_it = |local: &Local| match (local.ip(), backup.ip()) {
            (Some(ip), None) | (None, Some(ip)) => {
                let named = (interface_named(local, listed), interface);
                overlap(named) || !is_here(ip, listed)
            }
            (None, None) => overlap((interface_named(local, listed), interface)),
            _ => local == backup,
        };
        let is_used = reach.local.iter().any(is_it);
        return (!is_used)
            .then_some("no path starts there; name an address or interface of --local");
    }
    let mut at = listed.iter().filter(|at| backup.is(at));
    let is_left_out = match backup {
        // The machine may get an absent address later.
        Local::Address(ip) if !is_here(*ip, listed) => false,
        Local::Address(_) | Local::OnLink(..) => at.all(|at| at.left_out.is_some()),
        // An interface without an address may get one, and a pattern may fit other interfaces.
        Local::Interface(name) => {
            at.clone().any(|at| at.name == *name)
                && at.any(|at| {
                    let why = at.left_out;
                    matches!(
                        why,
                        Some(
                            LeftOutReason::Loopback | LeftOutReason::Tunnel | LeftOutReason::Bridge
                        )
                    )
                })
        }
    };
    let told = "it is left out unless --local names it; `mpquic paths` lists what is used";
    is_left_out.then_some(told)
}

/// True for equal names, and for a pattern and a name that fits the pattern.
fn overlap(names: (Option<&String>, Option<&String>)) -> bool {
    match names {
        (Some(one), Some(other)) => fits_interface(one, other) || fits_interface(other, one),
        (one, other) => one == other,
    }
}

/// The named interface, or the interface with the named address.
fn interface_named<'a>(local: &'a Local, listed: &'a [InterfaceAddress]) -> Option<&'a String> {
    match local {
        Local::Interface(name) | Local::OnLink(_, name) => Some(name),
        Local::Address(ip) => interface_of(*ip, listed),
    }
}

fn interface_of(address: IpAddr, listed: &[InterfaceAddress]) -> Option<&String> {
    let listed = listed.iter().find(|listed| listed.ip == address);
    listed.map(|listed| &listed.name)
}

/// Lets paths from there stand by.
pub(crate) fn stand_by(
    mut builder: EndpointBuilder,
    backups: &[Local],
    locals: &[Local],
) -> EndpointBuilder {
    if backups.is_empty() {
        return builder;
    }
    let listed = interface_addresses().unwrap_or_default();
    for backup in backups {
        builder = match backup {
            Local::Address(ip) => builder.backup_address(*ip),
            Local::OnLink(ip, _) => builder.backup_address((*ip).into()),
            Local::Interface(name) => {
                let of_it = addresses_of(name, locals, &listed);
                of_it.fold(builder.backup_interface(name), |builder, address| {
                    builder.backup_address(address)
                })
            }
        };
    }
    builder
}

/// Addresses of an interface among named addresses: sockets of --local ADDR are bound to no
/// interface.
fn addresses_of(
    name: &str,
    locals: &[Local],
    listed: &[InterfaceAddress],
) -> impl Iterator<Item = IpAddr> {
    let named = locals.iter().filter_map(Local::ip);
    named.filter(|address| {
        interface_of(*address, listed).is_some_and(|interface| fits_interface(name, interface))
    })
}

/// Marks the paths that are backups.
pub(crate) fn mark(paths: &mut [PathReport], connection: &Connection) {
    for report in paths.iter_mut().filter(|report| report.state == "active") {
        if is_backup(connection, PathId(report.id)) {
            report.state = BACKUP.into();
        }
    }
}

/// The state of an active path that stands by.
pub(crate) const BACKUP: &str = "backup";

/// True for a path that stands by, as this side decided.
pub(crate) fn is_backup(connection: &Connection, path: PathId) -> bool {
    let path = connection.path(path);
    let status = path.and_then(|path| path.status().ok());
    status.is_some_and(|(ours, _)| ours == PathStatus::Backup)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::reach;

    #[test]
    fn unused_address_cannot_be_a_backup() {
        let loopback = interface_addresses().unwrap();
        let loopback = loopback.iter().find(|listed| listed.ip.is_loopback());
        let name = loopback.unwrap().name.clone();
        let why = |arguments: &[&str], backup: &Local| {
            let reach = reach(arguments);
            check(&reach, "--backup", std::slice::from_ref(backup)).err()
        };
        let interface = Local::Interface(name.clone());
        let address = |last| Local::Address(IpAddr::from([127, 0, 0, last]));
        let absent = Local::Address([192, 0, 2, 77].into());
        let both = ["--local", "127.0.0.1", "--local", &name];
        for (arguments, backup, told) in [
            (&both[..], &interface, None),
            (&both[..2], &interface, None),
            (&both[2..], &address(1), None),
            (&both[..2], &address(1), None),
            (
                &both[..2],
                &address(2),
                Some("an address or interface of --local"),
            ),
            (&[], &interface, Some("unless --local names it")),
            (
                &["--exclude", &name],
                &interface,
                Some("--exclude leaves this interface out"),
            ),
            // Patterns fit names and each other.
            (
                &["--local", "absent*"],
                &Local::Interface("absent0".to_owned()),
                None,
            ),
            (
                &["--local", "absent0"],
                &Local::Interface("abs*".to_owned()),
                None,
            ),
            (
                &["--local", "absent*"],
                &Local::Interface("other0".to_owned()),
                Some("an address or interface of --local"),
            ),
            (
                &["--exclude", "abs*"],
                &Local::Interface("absent0".to_owned()),
                Some("--exclude leaves this interface out"),
            ),
            (&[], &Local::Interface("*".to_owned()), None),
            // The interface or the address may appear later.
            (&[], &Local::Interface("absent0".to_owned()), None),
            (&[], &absent, None),
            (&["--local", "192.0.2.77"], &absent, None),
            (&["--local", &name], &absent, None),
            (&["--local", "192.0.2.77"], &interface, None),
            (&[], &address(9), Some("unless --local names it")),
            (
                &["--local", "absent0"],
                &Local::Interface("absent0".to_owned()),
                None,
            ),
        ] {
            let failure = why(arguments, backup);
            let message = failure.as_ref().map(Failure::message);
            let is_told = match (message, told) {
                (Some(message), Some(told)) => {
                    message.starts_with("--backup ") && message.contains(told)
                }
                (message, told) => message == told,
            };
            assert!(is_told, "{arguments:?} {backup:?}: {message:?}");
        }
    }

    #[test]
    fn interface_stands_for_its_named_addresses() {
        let any = interface_addresses().unwrap().remove(0);
        let listed = [("eth0", 1), ("eth0", 2), ("wlan0", 3)].map(|(name, last)| {
            let mut one = any.clone();
            (one.name, one.ip) = (name.to_owned(), IpAddr::from([192, 0, 2, last]));
            one
        });
        let address = |last| Local::Address([192, 0, 2, last].into());
        let locals = [
            address(2),
            Local::Interface("eth0".to_owned()),
            address(3),
            address(4),
        ];
        let of = |name: &str| {
            let name = name.to_owned();
            let addresses = addresses_of(&name, &locals, &listed);
            addresses.map(|ip| ip.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("eth0"), ["192.0.2.2"]);
        assert_eq!(of("wlan0"), ["192.0.2.3"]);
        assert_eq!(of("*0"), ["192.0.2.2", "192.0.2.3"]);
        assert!(of("none").is_empty());
    }
}
