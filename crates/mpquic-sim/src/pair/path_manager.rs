//! A path manager on a pair's connection.

use std::sync::Arc;

use mpquic_paths::{Local, Managed, PathManagerFactory, Start};

use super::Pair;

impl Pair {
    /// Lets a path manager decide on the paths of the client's connection, in place of
    /// [`Self::open_path`]. The interfaces have the names of the topology's paths. Call it after
    /// [`Self::connect`], before time passes.
    ///
    /// # Panics
    ///
    /// If the client has no connection.
    pub fn manage_paths(&mut self, manager: &dyn PathManagerFactory) {
        let Some(index) = self.client else {
            panic!("the client has no connection");
        };
        let names: Vec<_> = self.paths.iter().map(|path| path.name.clone()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let first = self.client().path_stats(mpquic_core::PathId::ZERO);
        let Some(first) = first.map(|stats| stats.four_tuple) else {
            panic!("path 0 is gone");
        };
        let servers: Vec<_> = (0..names.len())
            .map(|path| self.four_tuple(path).remote)
            .collect();
        let start = Start::new(first, self.locals(&names)).remotes(&servers);
        let host = self.client_host;
        let managed = Managed::new(manager, &start);
        self.lab.host_mut(host).manage_paths(index, managed);
    }

    /// The client has the addresses of these paths of the topology from now on, and no others.
    pub fn set_interfaces(&mut self, names: &[&str]) {
        let (now, locals) = (self.lab.now(), self.locals(names));
        self.lab.host_mut(self.client_host).set_locals(now, locals);
    }

    fn locals(&self, names: &[&str]) -> Arc<[Local]> {
        let locals = names.iter().map(|name| {
            let address = self.four_tuple(self.index_of(name)).local;
            Local::new(address).on(name)
        });
        locals.collect()
    }
}
