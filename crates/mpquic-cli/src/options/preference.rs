//! The options of clients that say which paths are used.

use clap::Args;

use crate::options::cost::{Cost, parse_cost};
use crate::options::{Local, parse_local};

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Args)]
pub(crate) struct Preference {
    /// Send and receive over paths from this local address or interface only while no others work,
    /// for example if it is paid by the byte; repeat for several
    #[arg(long, value_name = "ADDR|IFACE", value_parser = parse_local)]
    pub(crate) backup: Vec<Local>,
    /// What paths from this local address or interface cost; others cost 0; repeat for several. Dearer
    /// ones stand by, as with --backup, while cheaper ones work; with --rate, they are used beside
    /// these while that rate is not reached
    #[arg(long, value_name = "ADDR|IFACE=N", conflicts_with = "backup", value_parser = parse_cost)]
    pub(crate) cost: Vec<Cost>,
}
