//! Downloads one URL: its requests one after the other, until the file is complete or retries are
//! over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, Uri};

use crate::client::content::has_rest;
use crate::client::protocol::{Ask, RequestError};
use crate::client::redirect;
use crate::client::retry::Retry;
use crate::client::secrets::Secrets;
use crate::client::session::{Connected, Sessions};
use crate::files::attributes::Attributes;
use crate::get::download::{Download, Ended, Treatment};
use crate::get::sink::Destination;
use crate::process::clock;
use crate::process::failure::{Cause, Failure};
use crate::process::screen;
use crate::report::{Counters, Report, links, size};
use crate::text::count::count;

/// The settings for all URLs of a command.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) method: Method,
    pub(crate) fields: HeaderMap,
    pub(crate) secrets: Secrets,
    pub(crate) treatment: Treatment,
    /// Retries end when no new byte has arrived for this time.
    pub(crate) retry: Duration,
    /// The number of the last connection whose end was reported: of several files at a time, only
    /// the first file that lost the connection reports the end. `None` if each file reports
    /// outages, or no file does.
    pub(crate) outage: Option<Arc<AtomicU64>>,
    pub(crate) max_redirects: u32,
    /// The SHA-256 of the file.
    pub(crate) expected: Option<[u8; 32]>,
}

/// The requests for one URL.
pub(crate) struct Fetch<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) sessions: &'a Sessions<'a>,
    pub(crate) url: &'a Uri,
    pub(crate) destination: Destination,
}

/// The result of a successful attempt.
struct Done {
    connected: Connected,
    early_data: bool,
}

impl Fetch<'_> {
    pub(crate) async fn run(&self) -> Result<Report, Failure> {
        let (report, _) = self.run_with_attributes().await?;
        Ok(report)
    }

    /// [`Self::run`], with the attributes in the answer that had the end of the file.
    pub(crate) async fn run_with_attributes(&self) -> Result<(Report, Attributes), Failure> {
        let plan = self.plan;
        let started = Download::start(self.url, &self.destination, plan.treatment.clone());
        let mut download = started.await?;
        let mut ask = Ask {
            method: plan.method.clone(),
            fields: plan.fields.clone(),
            ..Ask::get(self.url)
        };
        plan.secrets.add_to(self.url, &mut ask.fields);
        let traffic = self.sessions.traffic();
        let mut retry = Retry::new(plan.retry, clock::now());
        let mut redirects = 0;
        // The number of the last connection; 0 before the first connection.
        let mut connection = 0;
        loop {
            let ended = match self.attempt(&ask, &mut download, &mut connection).await {
                Ok(Done {
                    connected,
                    early_data,
                }) => {
                    let attributes = download.attributes;
                    let report = download
                        .finish(&connected.connection, plan.expected)
                        .await?;
                    let report = Report {
                        early_data,
                        retries: retry.count.into(),
                        links: links::between(&traffic, &self.sessions.traffic()),
                        ..report
                    };
                    return Ok((report, attributes));
                }
                Err(ended) => ended,
            };
            if let Ended::Request(RequestError::Redirected { status, location }) = &ended
                && plan.max_redirects > 0
            {
                redirects += 1;
                if redirects > plan.max_redirects {
                    let many = format!("more than {}", count(plan.max_redirects, "redirection"));
                    return Err(Cause::Refused.failed(many));
                }
                if let Some(next) = redirect::follow(&ask, *status, location) {
                    ask = next;
                    continue;
                }
            }
            // A server that cannot be reached at all is reported at once; the URL may be wrong.
            let reached = &self.sessions.reached;
            let is_temporary =
                reached.has(&ask.url) && self.given_up(&ask).is_none() && self.is_temporary(&ended);
            let (hint, has_rest) = self.hint(&ask, &ended);
            let failure = reached.judge(&ask.url, ended.into());
            let next = if is_temporary {
                retry.next(download.reached.at, clock::now())
            } else {
                None
            };
            let Some((pause, is_first)) = next else {
                let rest = download.leave().await.filter(|_| has_rest);
                return Err(failure.and(rest).and(hint));
            };
            if let Some(json) = &plan.treatment.json {
                json.retry(self.url, &failure, download.have());
            }
            if is_first {
                self.say_again(&download, connection, failure.message());
            }
            self.sessions.give_up().await;
            tokio::time::sleep(pause).await;
        }
    }

    /// A hint for the user after this end, and true if --continue could get the rest.
    fn hint(&self, ask: &Ask, ended: &Ended) -> (Option<String>, bool) {
        match ended {
            Ended::Request(error) => {
                let has_rest = has_rest(ask, Err(error));
                match error {
                    RequestError::ServerFailed if has_rest => {
                        let told = "the same command fetches the new version".to_owned();
                        (Some(told), false)
                    }
                    _ if error.status() == Some(StatusCode::UNAUTHORIZED) => {
                        let told = self.plan.secrets.hint(&ask.url, &self.plan.fields);
                        (Some(told), has_rest)
                    }
                    _ => (None, has_rest),
                }
            }
            Ended::Failed(_) => (None, true),
        }
    }

    /// Tells the user that the request is sent again.
    fn say_again(&self, download: &Download<'_>, connection: u64, message: &str) {
        let have = size(download.have());
        download.say(format_args!("{message}; trying again, {have} are there"));
        if let Some(outage) = &self.plan.outage
            && outage.fetch_max(connection, Relaxed) < connection
        {
            let url = self.url;
            screen::say(format_args!("mpquic: {url}: {message}; trying again"));
        }
    }

    /// The failure of a request to a server that has been gone for too long, for this file or
    /// another one.
    fn given_up(&self, ask: &Ask) -> Option<Failure> {
        let (reached, limit) = (&self.sessions.reached, self.plan.retry);
        reached.given_up(&ask.url, limit, clock::now())
    }

    /// True if the same request may succeed later.
    fn is_temporary(&self, ended: &Ended) -> bool {
        // Other methods may not be repeated (RFC 9110 section 9.2.2).
        matches!(self.plan.method, Method::GET | Method::HEAD)
            && match ended {
                Ended::Request(error) => error.is_temporary(),
                Ended::Failed(failure) => matches!(
                    failure.cause(),
                    Some(Cause::Name | Cause::Connect | Cause::Broken)
                ),
            }
    }

    /// Sends the request once, or twice if the server rejects 0-RTT.
    async fn attempt(
        &self,
        ask: &Ask,
        download: &mut Download<'_>,
        number: &mut u64,
    ) -> Result<Done, Ended> {
        if let Some(failure) = self.given_up(ask) {
            return Err(Ended::Failed(failure));
        }
        let connected = self.sessions.connection(&ask.url).await;
        let connected = connected.map_err(Ended::Failed)?;
        *number = connected.number;
        let connection = &connected.connection;
        download.before = if connected.is_old {
            Counters::of(connection)
        } else {
            Counters::default()
        };
        let clients = &connected.clients;
        let mut early_data = false;
        if let Some(accepted) = connected.zero_rtt.clone() {
            let result = match clients.early().await {
                Ok(client) => download.fetch(ask, connection, client).await,
                Err(failure) => Err(Ended::Failed(failure)),
            };
            early_data = accepted.await;
            if early_data {
                result?;
            }
        }
        if !early_data {
            // The server rejected 0-RTT, or the request did not use it.
            let client = clients.established().await.map_err(Ended::Failed)?;
            download.fetch(ask, connection, client).await?;
        }
        Ok(Done {
            connected,
            early_data,
        })
    }
}
