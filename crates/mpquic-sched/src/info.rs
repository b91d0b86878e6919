//! [`SchedulerInfo`]: an entry of the lists of schedulers.

use mpquic_core::sched::Scheduler;

/// A built-in scheduler, described for lists.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerInfo {
    /// The name to pass to [`by_name`](crate::by_name).
    pub name: &'static str,
    /// A description of one line.
    pub description: &'static str,
    /// The publication or system that the scheduler comes from.
    pub source: &'static str,
    pub(crate) make: fn() -> Box<dyn Scheduler>,
}

/// A list of schedulers: name, constructor, source and description of each.
macro_rules! schedulers {
    ($($name:literal => $make:expr, $source:expr, $description:literal;)*) => {
        &[$($crate::info::SchedulerInfo {
            name: $name,
            description: $description,
            source: $source,
            make: || Box::new($make),
        }),*]
    };
}
pub(crate) use schedulers;
