//! Path managers for mpquic: they decide which network paths a client's connection has.
//!
//! A path manager is the third policy of a connection, beside its packet scheduler (which path
//! carries which packet) and its congestion controller (how much each path carries). It implements
//! [`PathManager`]: it hears of [`Event`]s, sees a [`View`] of the paths, and answers with an
//! [`Action`]: open, close, move, suspend a path, or set its status. It does no I/O and reads no
//! clock, so a plan is tested in virtual time.
//!
//! | Manager | Rule |
//! |---|---|
//! | [`Plan`] (default) | a path from every local address to every address of the server; failed paths are tried again, less and less |
//! | [`StandBy`] | paths from some local addresses carry data only while no others work |
//! | [`Costs`] | the cheapest paths that work, and dearer ones while a wanted rate is not reached |
//! | [`Shares`] | weights of paths for a scheduler, by where paths start |
//!
//! [`StandBy`], [`Costs`] and [`Shares`] wrap another manager.
//!
//! ```
//! use mpquic_paths::{Origin, StandBy};
//!
//! // The default plan, but paths over the modem stand by.
//! let modem = Origin::Interface("wwan0".to_owned());
//! let factory = StandBy::factory(mpquic_paths::default(), vec![modem]);
//! # drop(factory);
//! ```

mod cost;
mod local;
mod managed;
mod manager;
mod pairs;
mod plan;
mod shares;
mod source_address;
mod stand_by;
#[cfg(test)]
mod testing;
mod view;
mod ways;

use std::sync::Arc;

pub use cost::{Costs, Price};
pub use local::{Local, Origin};
pub use managed::{Managed, move_path};
pub use manager::{Action, Event, Outcome, PathManager, PathManagerFactory, Start, factory};
pub use pairs::address_pairs;
pub use plan::Plan;
pub use shares::{Share, Shares};
pub use source_address::{fit, label};
pub use stand_by::StandBy;
pub use view::{PathView, Snapshot, View};
pub use ways::{KnownWay, Ways};

/// Makes a [`Plan`] for each connection.
pub fn default() -> Arc<dyn PathManagerFactory> {
    factory("plan", |start| Box::new(Plan::new(start)))
}
