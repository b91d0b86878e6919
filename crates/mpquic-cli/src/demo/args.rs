//! The options of `mpquic demo`.

use clap::Args;

use crate::options::{Policy, Qlog};
use crate::rate::Limit;

/// Watch a download over two paths, all in this process
///
/// A server and a client run on loopback, with paths from 127.0.0.1 and 127.0.0.2, and transfer
/// generated data, which the client checks. A rate limits each path, as a link would. At 40 % of
/// the data one path starts to drop every packet, without notice to either side; at 70 % it works
/// again. The other path carries the data meanwhile.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Size of the download, MiB
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) mib: u64,
    /// Rate of each path, in bits per second with a unit, such as 20M or 1.5G; 0 for no limit
    #[arg(long, value_name = "RATE", default_value = "300M")]
    pub(crate) rate: Limit,
    /// Do not cut a path
    #[arg(long)]
    pub(crate) steady: bool,
    #[command(flatten)]
    pub(crate) policy: Policy,
    #[command(flatten)]
    pub(crate) qlog: Qlog,
    /// Print a JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}
