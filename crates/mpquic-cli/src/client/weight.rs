//! Shares of paths: `--weight`.

use mpquic_tokio::InterfaceAddress;
use mpquic_tokio::path_managers::Share;

use crate::options::origin::origins;
use crate::options::{Local, parse_local};

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

/// The shares for a path manager.
pub(crate) fn shares(weights: &[Weight], listed: &[InterfaceAddress]) -> Vec<Share> {
    let shares = weights.iter().flat_map(|weight| {
        let origins = origins(&weight.from, listed);
        origins.map(|from| Share::new(from, weight.weight))
    });
    shares.collect()
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
