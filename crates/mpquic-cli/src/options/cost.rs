//! Costs of paths: `--cost`.

use mpquic_tokio::InterfaceAddress;
use mpquic_tokio::path_managers::Price;

use crate::options::origin::origins;
use crate::options::{Local, parse_local};

/// The highest cost.
const MOST: u32 = 1000;

/// The cost of the paths from an address or interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) from: Local,
    pub(crate) cost: u32,
}

pub(crate) fn parse_cost(text: &str) -> Result<Cost, String> {
    let expected = "expected IFACE=N or ADDR=N, with N from 0 to 1000";
    let (from, cost) = text.rsplit_once('=').ok_or(expected)?;
    let cost = cost.parse().ok().filter(|cost| *cost <= MOST);
    Ok(Cost {
        cost: cost.ok_or(expected)?,
        from: parse_local(from)?,
    })
}

/// The costs for a path manager.
pub(crate) fn prices(costs: &[Cost], listed: &[InterfaceAddress]) -> Vec<Price> {
    let prices = costs.iter().flat_map(|cost| {
        let origins = origins(&cost.from, listed);
        origins.map(|from| Price::new(from, cost.cost))
    });
    prices.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read() {
        let read = parse_cost("127.0.0.1=5").unwrap();
        assert_eq!(read.from, Local::Address([127, 0, 0, 1].into()));
        assert_eq!(read.cost, 5);
        assert_eq!(parse_cost("127.0.0.1=1000").unwrap().cost, 1000);
        for wrong in [
            "",
            "127.0.0.1",
            "127.0.0.1=",
            "127.0.0.1=-1",
            "127.0.0.1=1001",
        ] {
            let told = parse_cost(wrong).unwrap_err();
            assert_eq!(told, "expected IFACE=N or ADDR=N, with N from 0 to 1000");
        }
    }
}
