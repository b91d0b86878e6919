//! Shares of paths: `--weight`.

use mpquic_sched::SplitWeights;
use mpquic_tokio::{Connection, interface_addresses};

use crate::options::origin::starts_from;
use crate::options::{Local, parse_local};

/// The share of other paths.
const REST: f64 = 1.0;
/// The largest weight.
const MOST: f64 = 1000.0;

/// The share of the paths from somewhere.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Weight {
    pub(crate) from: Local,
    weight: f64,
}

pub(crate) fn parse_weight(text: &str) -> Result<Weight, String> {
    let expected = "expected IFACE=N or ADDR=N, with N above 0 and up to 1000";
    let (from, weight) = text.rsplit_once('=').ok_or(expected)?;
    let weight = weight.parse().ok();
    let weight = weight.filter(|weight| *weight > 0.0 && *weight <= MOST);
    Ok(Weight {
        weight: weight.ok_or(expected)?,
        from: parse_local(from)?,
    })
}

/// Sets the weights of a connection's paths as they come and go, on a task that ends with it.
pub(crate) fn follow(connection: &Connection, wanted: Vec<Weight>, weights: SplitWeights) {
    let connection = connection.clone();
    let mut events = connection.path_events();
    tokio::spawn(async move {
        loop {
            let listed = interface_addresses().unwrap_or_default();
            let set = connection.path_stats().into_iter().map(|path| {
                let ip = path.four_tuple.local.ip();
                let is_it = |wanted: &&Weight| starts_from(&wanted.from, ip, &listed);
                let wanted = wanted.iter().find(is_it);
                (path.id, wanted.map_or(REST, |wanted| wanted.weight))
            });
            weights.set(set);
            if events.next().await.is_none() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read() {
        let read = parse_weight("127.0.0.1=2.5").unwrap();
        assert_eq!(read.from, Local::Address([127, 0, 0, 1].into()));
        assert_eq!(read.weight, 2.5);
        for (text, weight) in [("127.0.0.1=1000", 1000.0), ("127.0.0.1=0.001", 0.001)] {
            assert_eq!(parse_weight(text).unwrap().weight, weight);
        }
        for wrong in ["", "127.0.0.1", "127.0.0.1=", "127.0.0.1=0", "127.0.0.1=-1"] {
            assert!(
                parse_weight(wrong)
                    .unwrap_err()
                    .starts_with("expected IFACE=N")
            );
        }
        for wrong in ["127.0.0.1=1001", "127.0.0.1=nan", "127.0.0.1=inf"] {
            assert!(parse_weight(wrong).unwrap_err().contains("up to 1000"));
        }
        let absent = Local::Interface("absent0".to_owned());
        assert_eq!(parse_weight("absent0=1").unwrap().from, absent);
        let wrong = parse_weight("no name=1").unwrap_err();
        assert!(wrong.starts_with("neither an address nor"), "{wrong}");
    }
}
