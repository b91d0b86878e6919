//! Path managers for mpquic: they decide which network paths a client's connection has.
//!
//! A connection has three policies. The scheduler chooses a path for each packet, the congestion
//! controller limits each path's rate, and the path manager chooses which paths exist. A path
//! manager implements [`PathManager`]: it receives [`Event`]s with a [`View`] of the paths, and
//! returns [`Action`]s (open, close, move or suspend a path, set its status). Managers do no I/O
//! and read no clock, so tests run in virtual time.
//!
//! | Manager | Rule |
//! |---|---|
//! | [`Plan`] (default) | a path from every local address to every address of the server; failed paths are tried again, less and less |
//! | [`StandBy`] | paths from some local addresses carry data only while no others work |
//! | [`Costs`] | the cheapest paths that work, and dearer ones while a wanted rate is not reached |
//! | [`Shares`] | weights of paths for a scheduler, by where paths start |
//! | [`Steering`] | costs, backups and closed addresses that the application changes while connections run |
//!
//! [`StandBy`], [`Costs`], [`Shares`] and [`Steering`] wrap another manager.
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
mod interface_name;
mod local;
mod managed;
mod manager;
mod pairs;
mod plan;
mod shares;
mod source_address;
mod stand_by;
mod steering;
#[cfg(test)]
mod testing;
mod view;
pub mod ways;

use std::sync::Arc;

pub use cost::{Costs, Price};
pub use interface_name::fits_interface;
pub use local::{AskSource, Local, Origin};
pub use managed::{Managed, move_path};
pub use manager::{Action, Event, Outcome, PathManager, PathManagerFactory, Start, factory};
pub use pairs::{address_pairs, second_choices};
pub use plan::Plan;
pub use shares::{Share, Shares};
pub use source_address::label;
pub use stand_by::StandBy;
pub use steering::{Rules, Steering};
pub use view::{PathView, Snapshot, View};

/// Makes a [`Plan`] for each connection.
pub fn default() -> Arc<dyn PathManagerFactory> {
    factory("plan", |start| Box::new(Plan::new(start)))
}
