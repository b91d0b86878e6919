//! Answers to HTTP requests, whatever carries them: files with conditions and ranges, and a page
//! for each directory.

use std::time::Instant;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, DATE, ETAG, LAST_MODIFIED, LOCATION, RETRY_AFTER, VARY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, response};

use crate::files::attributes::{ATTRIBUTES, Attributes};
use crate::files::directory_page::{Form, Page};
use crate::files::resuming::PARTIAL;
use crate::files::selection::{Selection, Version};
use crate::files::{LISTING_MEMORY, OpenContent, OpenError, is_well_formed, path_of};
use crate::process::clock;
use crate::serve::change::{Client, RequestBody};
use crate::serve::http_upload::Change;
use crate::serve::limits::{Memory, OpenFile};
use crate::serve::rights::{Deed, Denied, Since};
use crate::serve::send_file::{Exchange, Over, Refusal, Session, Tally};
use crate::text::count::count;
use crate::text::percent::{percent_decode, percent_encode};
use crate::text::times;

/// The media type of lists for programs.
const JSON: &str = "application/json";
const PDF: &str = "application/pdf";
/// The methods of a server that takes files.
const METHODS: &str = "GET, HEAD, PUT, PATCH, MKCOL";
const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
/// The file that represents a directory, if it exists.
const INDEX: &str = "index.html";

/// The length of the body that an answer announces.
pub(crate) fn content_length(head: &Response<()>) -> Option<u64> {
    let length = head.headers().get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Answers a request, and adds it to the log.
pub(crate) async fn answer(
    session: &Session,
    request: &Request<()>,
    exchange: &mut impl Exchange,
    body: &mut impl RequestBody,
) -> Result<(), Refusal> {
    let began = clock::now();
    let protocol = exchange.protocol();
    let mut answer = Answer {
        session,
        request,
        exchange: Tally::new(exchange),
        user: None,
        changed: None,
    };
    let outcome = answer.run(body).await;
    let told = Told {
        protocol,
        began,
        user: answer.user,
        status: answer.exchange.status,
        changed: answer.changed,
        bytes: answer.exchange.bytes,
    };
    log(session, request, told, outcome);
    outcome
}

/// The parts of a log line besides the request and its outcome.
struct Told {
    protocol: &'static str,
    began: Instant,
    user: Option<String>,
    status: Option<StatusCode>,
    /// The outcome of a change, which holds even if its answer does not arrive.
    changed: Option<StatusCode>,
    bytes: u64,
}

fn log(session: &Session, request: &Request<()>, told: Told, outcome: Result<(), Refusal>) {
    let (status, bytes) = (told.status.map(|status| status.as_u16()), told.bytes);
    let changed = told.changed.map(|status| status.as_u16());
    let what = match (outcome, changed) {
        (Ok(()), _) => status.map_or_else(String::new, |status| status.to_string()),
        (Err(refusal), None) => refusal.cut_short().to_owned(),
        (Err(refusal), Some(changed)) => {
            format!("{changed}, but the answer was {}", refusal.cut_short())
        }
    };
    let (method, path) = (request.method(), request.uri().path());
    let sent = count(bytes, "byte");
    tracing::info!("{method} {}: {what}, {sent}", path.escape_debug());
    session.on_over(&Over {
        method: method.as_str(),
        target: request
            .uri()
            .path_and_query()
            .map_or(path, PathAndQuery::as_str),
        protocol: told.protocol,
        user: told.user,
        status: status.filter(|_| outcome.is_ok()).or(changed),
        bytes,
        is_cut: outcome.is_err() && (status.is_some() || changed.is_some()),
        began: told.began,
    });
}

/// What a request's path leads to.
enum Found {
    File(OpenContent),
    /// The page of a directory with its memory; `None` for HEAD.
    Directory(Option<(Page, Memory)>),
    /// A directory, but the path does not end with a slash: links on its page would lead astray.
    WithoutSlash,
}

/// The answer to a request.
struct Answer<'a, E> {
    session: &'a Session,
    request: &'a Request<()>,
    exchange: Tally<'a, E>,
    /// The user, once known.
    user: Option<String>,
    /// The outcome of a change.
    changed: Option<StatusCode>,
}

impl<E: Exchange> Answer<'_, E> {
    async fn run(&mut self, body: &mut impl RequestBody) -> Result<(), Refusal> {
        if !self.session.limits.may_request() {
            let response = status(StatusCode::TOO_MANY_REQUESTS).header(RETRY_AFTER, 1);
            return self.text(response, "too many requests\n").await;
        }
        let method = self.request.method();
        let takes_files = self.session.source.max_upload().is_some();
        let change = Change::of(self.request).filter(|_| takes_files);
        if !matches!(*method, Method::GET | Method::HEAD) && change.is_none() {
            return self.unknown(takes_files).await;
        }
        if !is_well_formed(self.request.uri().path()) {
            let response = status(StatusCode::BAD_REQUEST);
            return self.text(response, "the path is not valid\n").await;
        }
        let session = self.session;
        let deed = change.as_ref().map_or(Deed::Read, Change::deed);
        let since = session.rights.now();
        let (fields, path) = (self.request.headers(), self.request.uri().path());
        let asked = (deed, path);
        match session
            .rights
            .look(&session.caller, session.client, fields, asked)
        {
            Ok(user) => self.user = user,
            Err(denied) => return self.deny(denied).await,
        }
        let open = session
            .admit(&mut self.exchange, self.user.as_deref())
            .await?;
        match change {
            Some(change) => self.change(&change, body, (&open, &since)).await,
            None => open.keep(self.read(&open)).await,
        }
    }

    /// Refuses a request with a method that the server does not answer, or with a content that the
    /// method does not take.
    async fn unknown(&mut self, takes_files: bool) -> Result<(), Refusal> {
        if takes_files && self.request.method() == Method::PATCH {
            let kinds = format!("{ATTRIBUTES}, {PARTIAL}");
            let response = status(StatusCode::UNSUPPORTED_MEDIA_TYPE).header(ACCEPT_PATCH, &kinds);
            let told = format!(
                "PATCH takes {ATTRIBUTES}, and {PARTIAL} at the URL of an unfinished upload\n"
            );
            return self.text(response, &told).await;
        }
        let (allowed, told) = if takes_files {
            (METHODS, "only GET, HEAD, PUT, PATCH and MKCOL\n")
        } else {
            (
                "GET, HEAD",
                "only GET and HEAD, as the server runs without --allow-put\n",
            )
        };
        let response = status(StatusCode::METHOD_NOT_ALLOWED).header(ALLOW, allowed);
        self.text(response, told).await
    }

    /// Refuses a request for lack of rights, with the scheme of credentials or the time to wait.
    async fn deny(&mut self, denied: Denied) -> Result<(), Refusal> {
        let wait;
        let (response, told) = match denied {
            Denied::Unknown => {
                let response = status(StatusCode::UNAUTHORIZED)
                    .header(
                        WWW_AUTHENTICATE,
                        "Basic realm=\"mpquic\", charset=\"UTF-8\"",
                    )
                    .header(WWW_AUTHENTICATE, "Bearer");
                (response, "the credentials of a user are wanted\n")
            }
            Denied::Wait(seconds) => {
                let response = status(StatusCode::TOO_MANY_REQUESTS).header(RETRY_AFTER, seconds);
                wait = format!("too many wrong credentials; try again in {seconds} s\n");
                (response, &*wait)
            }
            Denied::Forbidden(user) => {
                self.user = user;
                (status(StatusCode::FORBIDDEN), "you may not do that\n")
            }
        };
        self.text(response, told).await
    }

    /// Answers a request that changes nothing.
    async fn read(&mut self, open: &OpenFile) -> Result<(), Refusal> {
        match self.find().await {
            Ok(Found::File(content)) => self.file(content, open).await,
            Ok(Found::Directory(page)) => self.directory(page, open).await,
            Ok(Found::WithoutSlash) => {
                let response = status(StatusCode::MOVED_PERMANENTLY);
                let response = response.header(LOCATION, with_slash(self.request.uri().path()));
                self.text(response, "see the same path with a slash\n")
                    .await
            }
            Err(Refusal::NotFound) => {
                self.text(status(StatusCode::NOT_FOUND), "not found\n")
                    .await
            }
            Err(Refusal::Forbidden) => {
                let response = status(StatusCode::FORBIDDEN);
                self.text(response, "the server may not read the file\n")
                    .await
            }
            Err(Refusal::Failed) => {
                let response = status(StatusCode::INTERNAL_SERVER_ERROR);
                self.text(response, "the file cannot be read\n").await
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Stores what follows the request, or makes a directory.
    async fn change(
        &mut self,
        change: &Change,
        body: &mut impl RequestBody,
        (open, since): (&OpenFile, &Since),
    ) -> Result<(), Refusal> {
        let client = Client {
            session: self.session,
            user: self.user.as_deref(),
            since,
        };
        let taken = change
            .run(client, self.request, (&mut self.exchange, body), open)
            .await?;
        self.changed = Some(taken.status());
        let mut response = taken.add_fields(status(taken.status()));
        if taken.status() == StatusCode::METHOD_NOT_ALLOWED {
            response = response.header(ALLOW, self.allowed_there());
        }
        match taken.told() {
            Some(told) => self.text(response, &told).await,
            None => {
                self.head(response).await?;
                self.finish().await
            }
        }
    }

    /// The methods that the client may use for the file or directory with the name that MKCOL asks
    /// for.
    fn allowed_there(&self) -> String {
        let path = self.request.uri().path();
        let Session {
            rights,
            caller,
            client,
            ..
        } = self.session;
        let may = |deed| {
            let fields = self.request.headers();
            rights.look(caller, *client, fields, (deed, path)).is_ok()
        };
        let (may_read, may_write) = (may(Deed::Read), may(Deed::Write));
        let methods = [
            ("GET", may_read),
            ("HEAD", may_read),
            ("PUT", may_write && !path.ends_with('/')),
            ("PATCH", may_write),
        ];
        let methods = methods.into_iter().filter(|(_, is_allowed)| *is_allowed);
        methods.map(|(name, _)| name).collect::<Vec<_>>().join(", ")
    }

    /// True for programs that read the lists of directories.
    fn wants_json(&self) -> bool {
        let accepted = self.request.headers().get_all(ACCEPT).into_iter();
        let accepted = accepted.filter_map(|value| value.to_str().ok());
        let mut types = accepted.flat_map(|value| value.split(','));
        types.any(|accepted| accepted.split(';').next().map(str::trim) == Some(JSON))
    }

    async fn find(&self) -> Result<Found, Refusal> {
        let path = self.request.uri().path();
        if !path.ends_with('/') {
            match self.session.open(path).await {
                Ok(content) => return Ok(Found::File(content)),
                Err(Refusal::NotFound) => {}
                Err(refusal) => return Err(refusal),
            }
            let (source, path) = (self.session.source.clone(), path.to_owned());
            let is_directory = move || source.is_directory(&path);
            return match tokio::task::spawn_blocking(is_directory).await {
                Ok(true) => Ok(Found::WithoutSlash),
                _ => Err(Refusal::NotFound),
            };
        }
        if self.wants_json() {
            return self.list().await.map(Found::Directory);
        }
        match self.session.open(&format!("{path}{INDEX}")).await {
            Ok(content) => Ok(Found::File(content)),
            Err(Refusal::NotFound) => self.list().await.map(Found::Directory),
            Err(refusal) => Err(refusal),
        }
    }

    /// The page of the directory. HEAD reads nothing, because it costs the client nearly nothing.
    async fn list(&self) -> Result<Option<(Page, Memory)>, Refusal> {
        let source = self.session.source.clone();
        let target = self.request.uri().path_and_query();
        let path = target.map_or("/", |target| target.as_str()).to_owned();
        if self.request.method() == Method::HEAD {
            let is_there = tokio::task::spawn_blocking(move || source.is_directory(&path)).await;
            return if is_there.map_err(std::io::Error::other)? {
                Ok(None)
            } else {
                Err(Refusal::NotFound)
            };
        }
        let limits = &self.session.limits;
        let memory = limits.progress(limits.memory(LISTING_MEMORY)).await?;
        let form = if self.wants_json() {
            Form::Json
        } else {
            Form::Html
        };
        let page = move || {
            let listing = source.list(&path)?;
            Ok::<_, OpenError>(Page::new(form, &path, listing))
        };
        let made = tokio::task::spawn_blocking(page).await;
        let page = made.map_err(std::io::Error::other)??;
        memory.shrink(page.memory());
        Ok(Some((page, memory)))
    }

    /// A page, or only its header fields for HEAD.
    async fn directory(
        &mut self,
        page: Option<(Page, Memory)>,
        open: &OpenFile,
    ) -> Result<(), Refusal> {
        let response = status(StatusCode::OK)
            .header(CACHE_CONTROL, "no-cache")
            .header(VARY, ACCEPT.as_str())
            .header(X_CONTENT_TYPE_OPTIONS, "nosniff");
        let response = if self.wants_json() {
            response.header(CONTENT_TYPE, JSON)
        } else {
            response
                .header(CONTENT_TYPE, "text/html; charset=utf-8")
                .header(
                    CONTENT_SECURITY_POLICY,
                    "default-src 'none'; style-src 'unsafe-inline'",
                )
        };
        let Some((mut page, memory)) = page else {
            self.head(response).await?;
            return self.finish().await;
        };
        let response = response.header(CONTENT_LENGTH, page.length());
        let session = self.session;
        let sending = async {
            self.head(response).await?;
            session
                .send_page(&mut self.exchange, &mut page, open)
                .await?;
            self.finish().await
        };
        memory.keep(sending).await?
    }

    async fn file(&mut self, mut content: OpenContent, open: &OpenFile) -> Result<(), Refusal> {
        let whole = content.length;
        let version = Version::new(&content.state);
        let selection = version.select(self.request.method(), self.request.headers());
        let (code, range) = match selection {
            Selection::Whole => (StatusCode::OK, 0..whole),
            Selection::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
            Selection::NotModified => (StatusCode::NOT_MODIFIED, 0..0),
            Selection::PreconditionFailed => {
                let response = status(StatusCode::PRECONDITION_FAILED);
                return self.text(response, "the file has another version\n").await;
            }
            Selection::Unsatisfiable => {
                let response = status(StatusCode::RANGE_NOT_SATISFIABLE)
                    .header(CONTENT_RANGE, format!("bytes */{whole}"));
                return self.text(response, "the file is shorter\n").await;
            }
        };
        let mut response = status(code).header(ACCEPT_RANGES, "bytes");
        let media_type = media_type(self.request.uri().path());
        // Any client may have sent the file. Browsers show PDF files in another sandbox, and refuse
        // PDF files in this sandbox.
        let is_of_clients = self.session.source.max_upload().is_some();
        if is_of_clients && media_type != PDF {
            response = response.header(CONTENT_SECURITY_POLICY, "sandbox");
        }
        for (name, value) in [
            (ETAG, version.etag()),
            (LAST_MODIFIED, version.last_modified()),
        ] {
            if let Some(value) = value {
                response = response.header(name, value);
            }
        }
        if Attributes::are_asked(self.request.headers())
            && let Some(fields) = response.headers_mut()
        {
            Attributes::of_state(&content.state).add_to(fields);
        }
        if code == StatusCode::NOT_MODIFIED {
            self.head(response).await?;
            return self.finish().await;
        }
        if code == StatusCode::PARTIAL_CONTENT {
            let last = range.end.saturating_sub(1);
            let range = format!("bytes {}-{last}/{whole}", range.start);
            response = response.header(CONTENT_RANGE, range);
        }
        response = response
            .header(CONTENT_TYPE, media_type)
            .header(X_CONTENT_TYPE_OPTIONS, "nosniff")
            .header(CONTENT_LENGTH, range.end - range.start);
        self.head(response).await?;
        if self.request.method() == Method::HEAD {
            return self.finish().await;
        }
        if code == StatusCode::PARTIAL_CONTENT {
            content.select(range).await?;
        }
        // A growing file is sent up to its announced length.
        let session = self.session;
        session.send(&mut self.exchange, &mut content, open).await?;
        self.finish().await
    }

    /// A short answer for people.
    async fn text(&mut self, response: response::Builder, text: &str) -> Result<(), Refusal> {
        let response = response.header(CONTENT_TYPE, "text/plain; charset=utf-8");
        self.page(response, Bytes::copy_from_slice(text.as_bytes()))
            .await
    }

    async fn page(&mut self, response: response::Builder, body: Bytes) -> Result<(), Refusal> {
        let response = response
            .header(CONTENT_LENGTH, body.len())
            .header(X_CONTENT_TYPE_OPTIONS, "nosniff");
        self.head(response).await?;
        if self.request.method() == Method::HEAD {
            return self.finish().await;
        }
        let session = self.session;
        session.write(&mut self.exchange, body).await?;
        self.finish().await
    }

    /// Sends status and fields.
    async fn head(&mut self, response: response::Builder) -> Result<(), Refusal> {
        let response = match times::http_date(clock::time_of_day()) {
            Some(date) => response.header(DATE, date),
            None => response,
        };
        // Every value was made here from allowed characters.
        let response = response.body(());
        let response = response.map_err(|_| Refusal::Failed)?;
        let limits = &self.session.limits;
        limits.turn(self.exchange.head(response)).await?
    }

    async fn finish(&mut self) -> Result<(), Refusal> {
        let limits = &self.session.limits;
        limits.turn(self.exchange.finish()).await?
    }
}

fn status(code: StatusCode) -> response::Builder {
    Response::builder().status(code)
}

/// What the name of a file says about its content.
fn media_type(path: &str) -> HeaderValue {
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = if path.ends_with('/') {
        INDEX.to_owned()
    } else {
        String::from_utf8_lossy(&percent_decode(name).unwrap_or_default()).into_owned()
    };
    let guess = mime_guess::from_path(name).first_or_octet_stream();
    let is_text = guess.type_() == mime_guess::mime::TEXT && guess.params().next().is_none();
    let guess = if is_text {
        format!("{guess}; charset=utf-8")
    } else {
        guess.to_string()
    };
    let unknown = HeaderValue::from_static("application/octet-stream");
    HeaderValue::try_from(guess).unwrap_or(unknown)
}

/// The path of the same directory with a slash at its end, and none too many: two at the beginning
/// would name another host.
fn with_slash(path: &str) -> String {
    let segments = path_of(path).split('/').filter(|part| !part.is_empty());
    let segments = segments.filter_map(percent_decode);
    segments.fold("/".to_owned(), |path, segment| {
        path + &percent_encode(&segment) + "/"
    })
}

#[cfg(test)]
mod tests;
