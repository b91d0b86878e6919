//! Options of clients for the choice of paths.

use clap::Args;

use crate::options::cost::{Cost, parse_cost};
use crate::options::{Local, parse_local};

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Args)]
pub(crate) struct Preference {
    /// Use paths from this local address or interface only while no other path works, for example
    /// if the link is paid by the byte; repeat for several
    #[arg(long, value_name = "ADDR|IFACE", value_parser = parse_local)]
    pub(crate) backup: Vec<Local>,
    /// Cost of paths from this local address or interface, 0 for other paths; repeat for several.
    /// Costly paths stand by, as with --backup, while cheaper paths work. With --rate, costly paths
    /// are also used while cheaper paths do not reach this rate
    #[arg(long, value_name = "ADDR|IFACE=N", conflicts_with = "backup", value_parser = parse_cost)]
    pub(crate) cost: Vec<Cost>,
}
