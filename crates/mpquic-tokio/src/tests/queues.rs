//! The scheduler's knowledge of the queues behind sockets.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mpquic_core::sched::{
    self, Decision, Needs, Scheduler, SchedulerEvent, SchedulerFactory, View,
};
use tokio::time::sleep;

use crate::default_transport;
use crate::testing::{Pair, TestResult, client, server, transfer};

/// Lengths of the reported queues.
type Told = Arc<Mutex<BTreeSet<u64>>>;

/// A scheduler that behaves like another one, and keeps the reported queues.
#[derive(Debug)]
struct Listening {
    inner: Box<dyn Scheduler>,
    needs: Needs,
    told: Told,
}

impl Scheduler for Listening {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let mut told = self.told.lock().unwrap();
        told.extend(view.paths.iter().filter_map(|path| path.local_queue));
        self.inner.select(view)
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.inner.on_event(event, view);
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }

    fn name(&self) -> &'static str {
        "listening"
    }
}

fn listening(
    needs: Needs,
    told: &Told,
) -> Result<Arc<dyn SchedulerFactory>, crate::testing::Error> {
    let (inner, told) = (mpquic_sched::by_name("lrf")?, told.clone());
    Ok(sched::factory("listening", move || {
        Box::new(Listening {
            inner: inner.build(),
            needs,
            told: told.clone(),
        })
    }))
}

/// The lengths include data that waits in the connection for a full socket.
#[tokio::test(start_paused = true)]
async fn asking_scheduler_gets_queue_lengths() -> TestResult {
    for asks in [true, false] {
        let told = Told::default();
        let needs = if asks {
            Needs::default().with_local_queue()
        } else {
            Needs::default()
        };
        let mut transport = default_transport();
        transport.scheduler = listening(needs, &told)?;
        let pair = Pair::new(
            (server(default_transport())?, &["10.0.0.1:443"]),
            (client(transport)?, &["10.0.1.1:1", "10.0.2.1:1"]),
        )?;
        let (a, b) = pair.connect_over(2).await?;
        transfer(&a, &b, 1 << 20).await?;
        assert_eq!(!std::mem::take(&mut *told.lock().unwrap()).is_empty(), asks);
        for port in &pair.at_client {
            port.fill_after(1);
        }
        let refill = async {
            for _ in 0..20 {
                sleep(Duration::from_millis(15)).await;
                for port in &pair.at_client {
                    port.empty();
                    port.fill_after(1);
                }
            }
            pair.at_client.iter().for_each(|port| port.empty());
            Ok(())
        };
        tokio::try_join!(transfer(&a, &b, 1 << 20), refill)?;
        let told = told.lock().unwrap();
        assert_eq!(told.iter().any(|bytes| *bytes > 1000), asks, "{told:?}");
    }
    Ok(())
}
