//! [`Live`]: choices of a client that the user changes while connections run.

use std::sync::{Arc, Mutex, PoisonError};

use mpquic_core::config::TransportOptions;
use mpquic_core::congestion::ControllerFactory;
use mpquic_core::sched::SchedulerFactory;
use mpquic_tokio::path_managers::{self, Origin, PathManagerFactory, Rules, Steering};
use mpquic_tokio::{Connection, EndpointBuilder, TrafficMeter};

/// Scheduler and controller in the place of those of the command line.
#[derive(Debug, Clone, Default)]
struct Policies {
    scheduler: Option<Arc<dyn SchedulerFactory>>,
    controller: Option<Arc<dyn ControllerFactory>>,
}

/// The choices, for the open connection and later ones, and the bytes of all connections.
#[derive(Debug, Default)]
pub(crate) struct Live {
    steering: Steering,
    meter: TrafficMeter,
    policies: Mutex<Policies>,
}

impl Live {
    /// The bytes of all connections.
    pub(crate) fn meter(&self) -> &TrafficMeter {
        &self.meter
    }

    /// Sets the rules for paths. An open connection follows at once.
    pub(crate) fn steer(&self, rules: Rules, open: Option<&Connection>) {
        self.steering.set(rules);
        if let Some(connection) = open {
            connection.review_paths();
        }
    }

    /// The rules for paths.
    #[cfg(test)]
    pub(crate) fn rules(&self) -> Rules {
        self.steering.rules()
    }

    /// True if paths are forbidden somewhere.
    pub(crate) fn has_closed(&self) -> bool {
        !self.steering.rules().closed.is_empty()
    }

    /// Sets the scheduler.
    pub(crate) fn set_scheduler(
        &self,
        scheduler: Arc<dyn SchedulerFactory>,
        open: Option<&Connection>,
    ) {
        if let Some(connection) = open {
            connection.set_scheduler(&*scheduler);
        }
        self.policies().scheduler = Some(scheduler);
    }

    /// Sets the controller. False if the open connection keeps its controller, whose packets are
    /// marked otherwise.
    pub(crate) fn set_controller(
        &self,
        controller: Arc<dyn ControllerFactory>,
        open: Option<&Connection>,
    ) -> bool {
        let is_set = open.is_none_or(|connection| connection.set_controller(&*controller));
        self.policies().controller = Some(controller);
        is_set
    }

    fn policies(&self) -> std::sync::MutexGuard<'_, Policies> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manager of the paths of each connection.
    pub(crate) fn path_manager(&self) -> Arc<dyn PathManagerFactory> {
        self.steering.factory(path_managers::default())
    }

    /// The transport of the next connection; `None` if it is that of the command line.
    pub(crate) fn transport(&self, options: &TransportOptions) -> Option<TransportOptions> {
        let Policies {
            scheduler,
            controller,
        } = self.policies().clone();
        if scheduler.is_none() && controller.is_none() {
            return None;
        }
        let mut options = options.clone();
        options.scheduler = scheduler.unwrap_or(options.scheduler);
        options.controller = controller.unwrap_or(options.controller);
        Some(options)
    }

    /// Counts the bytes of an endpoint, and lets its handshakes use costly interfaces last.
    pub(crate) fn adapt(&self, builder: EndpointBuilder) -> EndpointBuilder {
        let Rules {
            prices, backups, ..
        } = self.steering.rules();
        let costly = prices.into_iter().filter(|price| price.cost > 0);
        let last = costly.map(|price| price.from).chain(backups);
        last.fold(
            builder.traffic_meter(&self.meter),
            |builder, from| match from {
                Origin::Address(ip) => builder.backup_address(ip),
                Origin::Interface(name) => builder.backup_interface(&name),
            },
        )
    }
}
