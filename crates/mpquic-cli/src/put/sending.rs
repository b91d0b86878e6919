//! Sends one file: its requests one after the other, until the server has the file or retries are
//! over.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use mpquic_tokio::Connection;
use sha2::Digest;
use tokio::time::MissedTickBehavior;

use crate::client::backup;
use crate::client::http3;
use crate::client::knock;
use crate::client::protocol::{Ask, Body as _, Client as _, RequestError};
use crate::client::requests::AnyClient;
use crate::client::retry::Reached;
use crate::client::secrets::Secrets;
use crate::client::session::{Connected, Sessions};
use crate::files::attributes::{ATTRIBUTES, Attributes};
use crate::files::directory_page::Listed;
use crate::files::list_pages::Pages;
use crate::files::resuming;
use crate::files::unfinished::is_unfinished;
use crate::options::Alpn;
use crate::process::clock;
use crate::process::failure::{Cause, Failure};
use crate::process::screen;
use crate::put::input::Input;
use crate::put::local::Local;
use crate::put::remembered::{Begun, Remembered, Unfinished};
use crate::put::sources::{Directory, Item, cannot_read};
use crate::put::tries::Tries;
use crate::rate::pace::Pace;
use crate::report::progress::REFRESH;
use crate::report::{self, Counters, Report, links};
use crate::text::hex::hex;
use crate::text::percent::percent_decode;

/// Longest list of a directory, bytes.
const MAX_LIST: usize = 16 << 20;

/// The reasons for which `mpquic serve` may refuse the time and permissions of a directory.
const OF_DIRECTORY: &str = "`mpquic serve` changes no directory behind a link, of another owner, or that `--allow` \
                            names as a prefix or does not permit to the client";

/// The common part of all files.
pub(crate) struct Sending<'a> {
    pub(crate) sessions: &'a Sessions<'a>,
    /// Credentials for servers.
    pub(crate) secrets: Secrets,
    /// How long to try again while nothing is sent.
    pub(crate) retry: Duration,
    /// Give a request up if nothing goes on for so long.
    pub(crate) stall: Duration,
    /// Print errors only.
    pub(crate) quiet: bool,
    pub(crate) pace: Option<Pace>,
    /// Where unfinished uploads are noted for the next run.
    pub(crate) notes: Option<PathBuf>,
    /// The uploads that the next run can go on with.
    pub(crate) unfinished: Unfinished,
    pub(crate) total: Total,
    /// The number of the last connection whose break the user was told: many files may be sent over
    /// one connection.
    pub(crate) told: AtomicU64,
}

/// What was sent.
#[derive(Debug, Default)]
pub(crate) struct Total {
    /// Bytes of files, without repeated ones.
    pub(crate) bytes: AtomicU64,
    /// Bytes of files that the server already had.
    pub(crate) before: AtomicU64,
}

/// What became of a wanted directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    New,
    /// It exists.
    Old,
    /// It exists, and the server lets the client change neither its time nor its permissions.
    Fixed,
}

impl Sending<'_> {
    /// Sends a file, again if the connection is lost.
    pub(crate) async fn send_file(&self, item: &Item) -> Result<Report, Failure> {
        let started = clock::now();
        let traffic = self.sessions.traffic();
        let mut tries = Tries::new(self.retry);
        let file = item.file.as_ref().map(Local::path);
        let notes = self.notes.as_deref();
        let remembered = Remembered::new(notes, &item.url, file, &self.unfinished);
        tries.begun = remembered.begun();
        loop {
            let mut body = Input::open(item).await?;
            let flow = Flow::new(self, item, &remembered, &body);
            let failed = match self.attempt(&mut tries, &flow, &mut body).await {
                Ok((connected, before)) => {
                    remembered.forget();
                    let retries = tries.retry.count.into();
                    let report = report_of(&connected.connection, &before);
                    return Ok(Report {
                        url: item.url.to_string(),
                        bytes: body.bytes,
                        seconds: (clock::now() - started).as_secs_f64(),
                        sha256: hex(&body.hash.finalize()),
                        retries,
                        resumed_at: body.start,
                        links: links::between(&traffic, &self.sessions.traffic()),
                        file: file.map(|path| path.display().to_string()),
                        ..report
                    });
                }
                Err(failed) => failed,
            };
            self.next_try(&mut tries, failed, &item.url, body.is_repeatable)
                .await
                .map_err(|failure| remembered.told_with(failure))?;
        }
    }

    /// Makes a directory, unless it exists.
    pub(crate) async fn make_directory(&self, directory: &Directory) -> Result<Made, Failure> {
        let mut tries = Tries::new(self.retry);
        loop {
            let failed = match self.try_to_make(&mut tries, directory).await {
                Ok(made) => return Ok(made),
                Err(failed) => failed,
            };
            let url = &directory.url;
            self.next_try(&mut tries, failed, url, true).await?;
        }
    }

    /// Gives time and permissions to a file or directory that the server has.
    pub(crate) async fn set_attributes(
        &self,
        url: &Uri,
        attributes: Attributes,
    ) -> Result<(), Failure> {
        let mut tries = Tries::new(self.retry);
        loop {
            let failed = match self.try_to_set(&mut tries, url, attributes).await {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            let is_directory = url.path().ends_with('/');
            if is_directory && failed.status == Some(StatusCode::FORBIDDEN) {
                return Err(failed.failure.and(Some(OF_DIRECTORY.to_owned())));
            }
            self.next_try(&mut tries, failed, url, true).await?;
        }
    }

    async fn try_to_set(
        &self,
        tries: &mut Tries,
        url: &Uri,
        attributes: Attributes,
    ) -> Result<(), Unsent> {
        let (_connected, client) = self.client(tries, url).await?;
        Ok(self.give(&client, url, attributes).await?)
    }

    async fn give(
        &self,
        client: &http3::Client,
        url: &Uri,
        attributes: Attributes,
    ) -> Result<(), RequestError> {
        let mut ask = Ask {
            method: Method::PATCH,
            ..Ask::get(url)
        };
        self.secrets.add_to(url, &mut ask.fields);
        let kind = HeaderValue::from_static(ATTRIBUTES);
        ask.fields.insert(CONTENT_TYPE, kind);
        attributes.add_to(&mut ask.fields);
        self.ask(client, &ask).await?;
        Ok(())
    }

    /// The wanted content of a directory; empty if the server does not list the directory.
    pub(crate) async fn list(
        &self,
        url: &Uri,
        is_wanted: impl Fn(&Listed) -> bool,
    ) -> Result<Vec<Listed>, Failure> {
        let mut tries = Tries::new(self.retry);
        let (mut pages, mut all) = (Pages::new(url.clone()), Vec::new());
        loop {
            let failed = match self.try_to_list(&mut tries, &pages.url()).await {
                Ok(mut listed) => {
                    let turned = pages.turn(&mut listed);
                    all.extend(listed.into_iter().filter(&is_wanted));
                    match turned {
                        Ok(true) => continue,
                        // What else is there is sent again.
                        Ok(false) | Err(_) => return Ok(all),
                    }
                }
                Err(failed) if !failed.is_temporary => return Ok(all),
                Err(failed) => failed,
            };
            self.next_try(&mut tries, failed, url, true).await?;
        }
    }

    /// The failure of a request to a server that has been gone for too long, for this file or
    /// another one.
    fn given_up(&self, url: &Uri) -> Option<Failure> {
        let reached = &self.sessions.reached;
        reached.given_up(url, self.retry, clock::now())
    }

    /// Waits for the next try, unless there is no hope.
    async fn next_try(
        &self,
        tries: &mut Tries,
        failed: Unsent,
        url: &Uri,
        may_repeat: bool,
    ) -> Result<(), Failure> {
        let reached = &self.sessions.reached;
        let failure = reached.judge(url, failed.failure);
        let is_expected = reached.has(url) && self.given_up(url).is_none();
        let next = if failed.is_temporary && is_expected && may_repeat {
            tries.retry.next(tries.reached.at, clock::now())
        } else {
            None
        };
        let hopeless = || failure.clone().and(self.hint(failed.status, url));
        let (pause, is_first) = next.ok_or_else(hopeless)?;
        // An answer concerns one file. Any other failure concerns each file of the connection.
        let is_news = || {
            failed.status.is_some()
                || self.told.fetch_max(tries.connection, Relaxed) < tries.connection
        };
        if is_first && !self.quiet && is_news() {
            let why = failure.message();
            screen::say(format_args!("mpquic: {url}: {why}; trying again"));
        }
        self.sessions.give_up().await;
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// What the user, or the server's, can do after this status.
    fn hint(&self, status: Option<StatusCode>, url: &Uri) -> Option<String> {
        match status? {
            StatusCode::UNAUTHORIZED => Some(self.secrets.hint(url, &HeaderMap::new())),
            status => hint(status, url),
        }
    }

    async fn client(
        &self,
        tries: &mut Tries,
        url: &Uri,
    ) -> Result<(Connected, http3::Client), Unsent> {
        if let Some(failure) = self.given_up(url) {
            return Err(failure.into());
        }
        let connected = self.sessions.connection(url).await?;
        tries.connection = connected.number;
        match connected.clients.established().await? {
            AnyClient::Http(client) => Ok((connected, client)),
            AnyClient::Hq(_) => Err(Failure::other("the server does not speak HTTP/3").into()),
        }
    }

    async fn try_to_make(&self, tries: &mut Tries, directory: &Directory) -> Result<Made, Unsent> {
        let (_connected, client) = self.client(tries, &directory.url).await?;
        let method = Method::from_bytes(b"MKCOL").map_err(Failure::other)?;
        let mut ask = Ask {
            method,
            ..Ask::get(&directory.url)
        };
        self.secrets.add_to(&directory.url, &mut ask.fields);
        if let Some(here) = &directory.here {
            here.attributes().add_to(&mut ask.fields);
        }
        let mut is_changeable = true;
        let look = |fields: &HeaderMap| is_changeable = may_allow(&Method::PATCH, fields);
        match self.ask_and_look(&client, &ask, look).await {
            Ok(_) => Ok(Made::New),
            // RFC 4918 section 9.3.1: something is there.
            Err(error) if error.status() == Some(StatusCode::METHOD_NOT_ALLOWED) => {
                if !is_changeable {
                    return Ok(Made::Fixed);
                }
                self.check_directory(&client, &directory.url).await?;
                Ok(Made::Old)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Fails if the server has a file where a directory is wanted. The request gives no attributes,
    /// so it changes nothing.
    async fn check_directory(&self, client: &http3::Client, url: &Uri) -> Result<(), Unsent> {
        match self.give(client, url, Attributes::default()).await {
            Err(error)
                if matches!(
                    error.status(),
                    Some(StatusCode::CONFLICT | StatusCode::NOT_FOUND)
                ) =>
            {
                let told = "the server has a file of this name, and no directory";
                Err(Cause::Refused.failed(told).into())
            }
            // A server that does not know the request, or forbids it, does not tell.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Sends a request without a body, and gives the fields of the answer.
    async fn ask(&self, client: &http3::Client, ask: &Ask) -> Result<HeaderMap, RequestError> {
        self.ask_and_look(client, ask, |_| {}).await
    }

    /// The same. `look` gets the fields of an answer that refuses the request.
    async fn ask_and_look(
        &self,
        client: &http3::Client,
        ask: &Ask,
        look: impl FnOnce(&HeaderMap),
    ) -> Result<HeaderMap, RequestError> {
        let answered = async {
            let mut request = client.put(ask, None).await?;
            let finished = request.finish().await;
            request.refused().map(look);
            finished
        };
        let answered = tokio::time::timeout(self.stall, answered).await;
        answered.unwrap_or(Err(RequestError::Stalled(self.stall.as_secs())))
    }

    async fn try_to_list(&self, tries: &mut Tries, url: &Uri) -> Result<Vec<Listed>, Unsent> {
        let (_connected, client) = self.client(tries, url).await?;
        let mut ask = Ask::get(url);
        self.secrets.add_to(url, &mut ask.fields);
        let json = HeaderValue::from_static("application/json");
        ask.fields.insert(ACCEPT, json);
        let read = async {
            let mut answer = client.ask(&ask).await?;
            let mut list = Vec::new();
            let mut pieces = [Bytes::new()];
            while let Some(count) = answer.body.read(&mut pieces).await? {
                pieces[..count]
                    .iter()
                    .for_each(|piece| list.extend_from_slice(piece));
                if list.len() > MAX_LIST {
                    return Err(RequestError::Unsupported(
                        "the list of the directory is too long",
                    ));
                }
            }
            Ok(list)
        };
        let read = tokio::time::timeout(self.stall, read).await;
        let list = read.unwrap_or(Err(RequestError::Stalled(self.stall.as_secs())))?;
        Ok(serde_json::from_slice(&list).unwrap_or_default())
    }

    /// The number of bytes that the server has, and where it accepts the rest; `None` if it wants
    /// the whole file.
    async fn resumed(
        &self,
        client: &http3::Client,
        (flow, begun): (&Flow<'_>, Option<&Begun>),
        body: &Input,
    ) -> Result<Option<(u64, Uri)>, RequestError> {
        let is_same = |begun: &&Begun| flow.identity.as_ref() == Some(&begun.of);
        let Some(begun) = begun.filter(is_same) else {
            return Ok(None);
        };
        let mut ask = Ask {
            method: Method::HEAD,
            ..Ask::get(&begun.upload)
        };
        // The server of the upload's URL is the server of the file's URL, so the same credentials
        // apply.
        self.secrets.add_to(&flow.item.url, &mut ask.fields);
        match self.ask(client, &ask).await {
            Ok(fields) => {
                let offset = resuming::offset_of(&fields);
                let offset = offset.filter(|offset| body.length.is_some_and(|all| *offset <= all));
                Ok(offset.map(|offset| (offset, begun.upload.clone())))
            }
            // The server has forgotten the upload, or has completed it.
            Err(error) if !error.is_temporary() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn attempt(
        &self,
        tries: &mut Tries,
        flow: &Flow<'_>,
        body: &mut Input,
    ) -> Result<(Connected, Counters), Unsent> {
        let (connected, client) = self.client(tries, &flow.item.url).await?;
        let connection = &connected.connection;
        let before = if connected.is_old {
            Counters::of(connection)
        } else {
            Counters::default()
        };
        let sent = &flow.sent;
        let result = {
            let send = async {
                let begun = tries.begun.as_ref();
                let resumed = self.resumed(&client, (flow, begun), body).await?;
                let mut ask = flow.begin(resumed, body).await?;
                if let Some(age) = tries.first_request.age() {
                    let trip = connection.rtt().unwrap_or_default();
                    resuming::repeat(&mut ask.fields, age + trip);
                }
                let left = body.length.map(|length| length - body.start);
                let mut request = client.put(&ask, left).await?;
                flow.send(&mut request, body).await
            };
            tokio::pin!(send);
            tokio::select! {
                result = &mut send => result,
                error = self.until_hopeless(connection, sent, &mut tries.reached) => {
                    Err(error.into())
                }
            }
        };
        if result.is_err() {
            let bytes = sent.bytes.load(Relaxed);
            tries.reached.note(bytes, clock::now());
            if let Some(begun) = sent.begun().take() {
                tries.begun = Some(begun);
            }
            // The bytes have to be sent again.
            self.total.bytes.fetch_sub(bytes, Relaxed);
        }
        match result {
            // Somebody else writes there, or nobody may: send from the first byte.
            Err(failed) if body.start > 0 && !failed.is_temporary && failed.may_start_again() => {
                tries.begun = None;
                Err(Unsent {
                    is_temporary: true,
                    ..failed
                })
            }
            result => result.map(|()| (connected, before)),
        }
    }

    /// Waits until the connection is lost, nobody listens on the server's port any more, or nothing
    /// has gone on for too long. While a read takes its time, as of standard input, nothing else
    /// would tell.
    async fn until_hopeless(
        &self,
        connection: &Connection,
        sent: &Sent<'_>,
        reached: &mut Reached,
    ) -> RequestError {
        let mut ticks = tokio::time::interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let gone = knock::until_gone(connection.remote_address());
        tokio::pin!(gone);
        let (mut seen, mut moved) = ((0, 0), clock::now());
        loop {
            tokio::select! {
                error = connection.closed() => return error.into(),
                () = &mut gone => return RequestError::Gone,
                _ = ticks.tick() => {}
            }
            let now = clock::now();
            // Bytes in the send buffer say less than acknowledged bytes.
            let heard = connection.stats().bytes_received;
            let bytes = sent.bytes.load(Relaxed);
            if heard != seen.1 {
                gone.set(knock::until_gone(connection.remote_address()));
            }
            if sent.reading.load(Relaxed) || seen != (bytes, heard) {
                seen = (bytes, heard);
                moved = now;
                reached.note(bytes, now);
            } else if now >= moved + self.stall {
                return RequestError::Stalled(self.stall.as_secs());
            }
        }
    }
}

/// What the paths did for a file.
fn report_of(connection: &Connection, before: &Counters) -> Report {
    let after = Counters::of(connection);
    let (extra_bytes_sent, extra_bytes_received) = after.extra_since(before);
    let mut paths = report::paths(&before.paths, &after.paths);
    backup::mark(&mut paths, connection);
    Report {
        url: String::new(),
        bytes: 0,
        seconds: 0.0,
        sha256: String::new(),
        paths,
        links: vec![],
        extra_bytes_sent,
        extra_bytes_received,
        multipath: connection.is_multipath(),
        early_data: false,
        resumed_at: 0,
        retries: 0,
        longest_gap_ms: None,
        quic_version: connection.version().to_string(),
        key_exchange: report::key_exchange(connection),
        protocol: String::from_utf8_lossy(Alpn::H3.bytes()).into_owned(),
        file: None,
        is_sent: true,
    }
}

/// Why a try failed.
struct Unsent {
    failure: Failure,
    is_temporary: bool,
    /// The server gave an answer.
    is_refused: bool,
    status: Option<StatusCode>,
}

impl Unsent {
    /// The server may take the whole file after it has refused the rest. A newer version stays.
    fn may_start_again(&self) -> bool {
        self.is_refused && self.status != Some(StatusCode::PRECONDITION_FAILED)
    }
}

impl From<RequestError> for Unsent {
    fn from(error: RequestError) -> Self {
        Self {
            is_temporary: error.is_temporary(),
            is_refused: error.status().is_some(),
            status: error.status(),
            failure: error.into(),
        }
    }
}

impl From<Failure> for Unsent {
    fn from(failure: Failure) -> Self {
        let cause = failure.cause();
        Self {
            is_refused: false,
            status: None,
            is_temporary: matches!(cause, Some(Cause::Name | Cause::Connect | Cause::Broken)),
            failure,
        }
    }
}

/// True unless an answer with these fields lists the allowed methods without this one.
fn may_allow(method: &Method, fields: &HeaderMap) -> bool {
    let lists = fields.get_all(ALLOW).into_iter();
    let mut lists = lists.filter_map(|list| list.to_str().ok()).peekable();
    let is_it = |name: &str| name.trim() == method.as_str();
    lists.peek().is_none() || lists.any(|list| list.split(',').any(is_it))
}

/// The reason for which `mpquic serve` may refuse a file with this status, and the option of the
/// server that lets it take the file.
fn hint(status: StatusCode, url: &Uri) -> Option<String> {
    let option = match status {
        StatusCode::FORBIDDEN if needs_dot_files(url.path()) => {
            "takes names that begin with a dot if it is started with --dot-files"
        }
        StatusCode::FORBIDDEN if is_plain(url.path()) => {
            "refuses files that `--allow` does not permit to the client, and files that the server's user may not write"
        }
        StatusCode::URI_TOO_LONG => {
            "refuses names that are too long for its file system, often those above 255 bytes"
        }
        StatusCode::CONFLICT => {
            "has no directory for this name, or something of another kind with it; `mpquic put -r` makes the directories that it \
             sends, and not those of its URL"
        }
        StatusCode::PRECONDITION_FAILED => {
            "replaces no version that came after the first try of an upload; the same command sends the file anew"
        }
        StatusCode::PAYLOAD_TOO_LARGE => "takes larger files with a larger --max-put-size",
        StatusCode::METHOD_NOT_ALLOWED => "takes files if it is started with --allow-put",
        _ => return None,
    };
    Some(format!("`mpquic serve` {option}"))
}

/// True if the server refuses no name in a path for its form.
fn is_plain(path: &str) -> bool {
    let names: Option<Vec<_>> = path.split('/').map(percent_decode).collect();
    let is_refused = |name: &Vec<u8>| name.starts_with(b".") || name.contains(&b'/');
    names.is_some_and(|names| !names.iter().any(is_refused))
}

/// True if a name in a path begins with a dot, and the server refuses the path for no other reason:
/// it takes no name with a slash in it, and no name of an unfinished upload, with any option.
fn needs_dot_files(path: &str) -> bool {
    let names: Option<Vec<_>> = path.split('/').map(percent_decode).collect();
    let names = names.unwrap_or_default();
    let has_dot = |name: &Vec<u8>| name.starts_with(b".") && name != b"." && name != b"..";
    let is_refused = |name: &Vec<u8>| name.contains(&b'/') || is_put_name(name);
    names.iter().any(has_dot) && !names.iter().any(is_refused)
}

/// True for the name of an unfinished upload.
fn is_put_name(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(|name| is_unfinished(name.as_ref()))
}

/// The progress of a try.
struct Sent<'a> {
    bytes: AtomicU64,
    /// It waits for the disk, or for whoever writes standard input.
    reading: AtomicBool,
    /// How the upload can be resumed.
    begun: Mutex<Option<Begun>>,
    total: &'a Total,
}

/// How a body is sent.
struct Flow<'a> {
    item: &'a Item,
    secrets: &'a Secrets,
    pace: Option<&'a Pace>,
    remembered: &'a Remembered,
    /// The tag of the file's state, as it was opened.
    identity: Option<String>,
    sent: Sent<'a>,
}

impl Sent<'_> {
    fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.total.bytes.fetch_add(bytes, Relaxed);
    }

    fn begun(&self) -> MutexGuard<'_, Option<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Flow<'a> {
    fn new(
        sending: &'a Sending<'_>,
        item: &'a Item,
        remembered: &'a Remembered,
        body: &Input,
    ) -> Self {
        Self {
            item,
            secrets: &sending.secrets,
            pace: sending.pace.as_ref(),
            remembered,
            identity: body.watched.as_ref().map(|(_, opened)| opened.tag()),
            sent: Sent {
                bytes: AtomicU64::new(0),
                reading: AtomicBool::new(false),
                begun: Mutex::default(),
                total: &sending.total,
            },
        }
    }

    /// The server says where the upload can be resumed.
    fn on_upload(&self, upload: &Uri) {
        let mut begun = self.sent.begun();
        if begun.as_ref().is_some_and(|begun| begun.upload == *upload) {
            return;
        }
        *begun = self.identity.clone().map(|of| Begun {
            upload: upload.clone(),
            of,
        });
        if let Some(begun) = &*begun {
            self.remembered.note(begun);
        }
    }

    /// The request: for the whole file, or for the rest.
    async fn begin(&self, resumed: Option<(u64, Uri)>, body: &mut Input) -> Result<Ask, Unsent> {
        let item = self.item;
        let mut ask = Ask::get(&item.url);
        self.secrets.add_to(&item.url, &mut ask.fields);
        body.attributes.add_to(&mut ask.fields);
        match resumed {
            Some((offset, upload)) => {
                self.skip_to(offset, body).await?;
                ask.method = Method::PATCH;
                self.on_upload(&upload);
                ask.url = upload;
                resuming::go_on(&mut ask.fields, offset);
            }
            None => {
                ask.method = Method::PUT;
                if body.length.is_some() {
                    resuming::want(&mut ask.fields);
                }
            }
        }
        Ok(ask)
    }

    /// Sends the body, and waits for the answer.
    async fn send(&self, request: &mut http3::Put, body: &mut Input) -> Result<(), Unsent> {
        let most = self.pace.map_or(usize::MAX, Pace::piece);
        let name = self.item.shown();
        loop {
            self.sent.reading.store(true, Relaxed);
            let piece = body.read().await;
            let mut piece = piece.map_err(|error| cannot_read(name, &error))?;
            self.sent.reading.store(false, Relaxed);
            if piece.is_empty() {
                break;
            }
            while !piece.is_empty() {
                let part = piece.split_to(most.min(piece.len()));
                let bytes = part.len();
                if let Some(pace) = self.pace {
                    pace.wait(bytes).await;
                }
                if !request.send(part).await? {
                    return self.answered_early(request, body).await;
                }
                if let Some(upload) = request.upload() {
                    self.on_upload(upload);
                }
                self.sent.add(bytes as u64);
            }
        }
        request.finish().await?;
        Ok(())
    }

    /// The server has answered before the end of the body. It refuses the file, or it has the file
    /// already; then the report still needs the checksum of the whole file.
    async fn answered_early(
        &self,
        request: &mut http3::Put,
        body: &mut Input,
    ) -> Result<(), Unsent> {
        request.finish().await?;
        self.skip_to(body.length.unwrap_or(body.bytes), body)
            .await?;
        Ok(())
    }

    /// Reads bytes that the server has, and does not send them.
    async fn skip_to(&self, offset: u64, body: &mut Input) -> Result<(), Failure> {
        let name = self.item.shown();
        let sent = self.sent.bytes.load(Relaxed);
        self.sent.reading.store(true, Relaxed);
        let skipped = body.skip_to(offset).await;
        skipped.map_err(|error| cannot_read(name, &error))?;
        self.sent.reading.store(false, Relaxed);
        self.sent.add(offset.saturating_sub(sent));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
