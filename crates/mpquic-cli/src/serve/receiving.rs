//! Receives files: a whole file, or the rest of one.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName};
use http::{HeaderValue, Request, StatusCode};

use crate::files::Sent;
use crate::files::file_state::FileState;
use crate::files::resuming::{self, PARTIAL};
use crate::files::selection::Version;
use crate::files::unfinished::Token;
use crate::files::upload::{Upload, UploadError};
use crate::serve::change::{Client, RequestBody, Taken, blocking, refused};
use crate::serve::precondition::Precondition;
use crate::serve::send_file::{Exchange, Refusal, Session};

/// Bytes collected before a thread writes them.
pub(crate) const BATCH: usize = 256 << 10;

/// Receives the file that follows a request, and stores it.
pub(crate) async fn take(
    client: Client<'_>,
    request: &Request<()>,
    exchange: &mut impl Exchange,
    body: &mut impl RequestBody,
) -> Result<Taken, Refusal> {
    let (session, fields) = (client.session, request.headers());
    let announced = match is_whole(fields).and_then(|()| announced(fields, 0)) {
        Ok(announced) => announced,
        Err(refused) => return Ok(refused),
    };
    let most = session.source.max_upload().unwrap_or_default();
    if announced.is_some_and(|announced| announced > most) {
        return Ok(Taken::TooLarge(most));
    }
    let path = request.uri().path().to_owned();
    let condition = Precondition::of(&session.source, request);
    if let Some(condition) = condition.clone()
        && let Err(error) = blocking(move || condition.look()).await
    {
        return refused(error);
    }
    // The conditions are those of one request, so the rest of the file cannot come in another.
    let may_resume = exchange.has_interim() && condition.is_none();
    let is_resumable = may_resume && resuming::is_wanted(fields, announced);
    let token = is_resumable.then(Token::new).transpose()?;
    let source = session.source.clone();
    let sent = Sent {
        length: announced,
        ..client.sent(request)
    };
    let (at, named) = (path.clone(), token.clone());
    let begun = blocking(move || source.upload(&at, sent, named)).await;
    let upload = match begun {
        Ok(upload) => upload,
        Err(error) => return refused(error),
    };
    if let Some(token) = token {
        let offer = resuming::offer(&path, &token).ok_or(Refusal::Failed)?;
        session.limits.progress(exchange.head(offer)).await??;
    }
    receive(client, request, (exchange, body), upload, announced).await
}

/// Receives the rest of a file.
pub(crate) async fn take_rest(
    client: Client<'_>,
    request: &Request<()>,
    token: &Token,
    (exchange, body): (&mut impl Exchange, &mut impl RequestBody),
) -> Result<Taken, Refusal> {
    let (session, fields) = (client.session, request.headers());
    let kind = fields.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind != Some(PARTIAL.as_bytes()) {
        let told = "the rest of a file is application/partial-upload\n";
        return Ok(Taken::Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, told));
    }
    let Some(offset) = resuming::offset_of(fields).filter(|_| resuming::is_complete(fields)) else {
        let told = "Upload-Offset and Upload-Complete: ?1 are wanted\n";
        return Ok(Taken::Refused(StatusCode::BAD_REQUEST, told));
    };
    let announced = match announced(fields, offset) {
        Ok(announced) => announced,
        Err(refused) => return Ok(refused),
    };
    let most = session.source.max_upload().unwrap_or_default();
    let upload = match resume(client, request, token).await {
        Ok(upload) => upload,
        Err(error) => return refused(error),
    };
    if upload.length() != offset {
        return Ok(Taken::Part(StatusCode::CONFLICT, upload.length()));
    }
    // A file that is shorter than its first request announced must not look whole.
    let first = upload.announced();
    if first
        .zip(announced)
        .is_some_and(|(first, now)| first != now)
    {
        return Ok(another_length());
    }
    let announced = first.or(announced);
    if announced.is_some_and(|announced| announced > most) {
        upload.forget();
        return Ok(Taken::TooLarge(most));
    }
    receive(client, request, (exchange, body), upload, announced).await
}

/// Takes an unfinished file from whoever writes it.
pub(crate) async fn resume(
    client: Client<'_>,
    request: &Request<()>,
    token: &Token,
) -> Result<Upload, UploadError> {
    let (source, path) = (
        client.session.source.clone(),
        request.uri().path().to_owned(),
    );
    let (sent, token) = (client.sent(request), token.clone());
    blocking(move || source.resume(&path, sent, &token)).await
}

/// Writes the bytes of a file, and gives the file its name at the end.
async fn receive(
    client: Client<'_>,
    request: &Request<()>,
    (exchange, body): (&mut impl Exchange, &mut impl RequestBody),
    upload: Upload,
    announced: Option<u64>,
) -> Result<Taken, Refusal> {
    let upload = match write(client.session, body, upload).await? {
        Ok(upload) => upload,
        Err(refused) => return Ok(refused),
    };
    if announced.is_some_and(|announced| announced != upload.length()) {
        upload.forget();
        return Ok(another_length());
    }
    client.session.limits.progress(exchange.present()).await??;
    if !client.may_store(request) {
        upload.forget();
        let told = "you may not do that any more\n";
        return Ok(Taken::Refused(StatusCode::FORBIDDEN, told));
    }
    let condition = Precondition::of(&client.session.source, request);
    let finish = move || match condition {
        Some(condition) => upload.finish_if(condition.wants_new(), || condition.look()),
        None => upload.finish(),
    };
    match blocking(finish).await {
        Ok((metadata, is_new)) => Ok(Taken::Stored {
            is_new,
            etag: Version::new(&FileState::of(&metadata)).etag(),
        }),
        Err(error) => refused(error),
    }
}

/// Writes the bytes of a file to their end.
async fn write(
    session: &Session,
    body: &mut impl RequestBody,
    mut upload: Upload,
) -> Result<Result<Upload, Taken>, Refusal> {
    let most = session.source.max_upload().unwrap_or_default();
    let mut ended = Ok(false);
    while let Ok(false) = ended {
        let mut batch = Vec::new();
        while batch.len() < BATCH && matches!(ended, Ok(false)) {
            let data = tokio::select! {
                data = session.limits.progress(body.data()) => data.unwrap_or_else(|stalled| Err(stalled.into())),
                // Its client goes on in another request.
                () = upload.taken() => Err(Refusal::Gone),
            };
            match data {
                Ok(Some(data)) => batch.extend_from_slice(&data),
                Ok(None) => ended = Ok(true),
                Err(refusal) => ended = Err(refusal),
            }
            if upload.length() + batch.len() as u64 > most {
                upload.forget();
                return Ok(Err(Taken::TooLarge(most)));
            }
        }
        let write = move || match upload.write(&batch) {
            Ok(()) => Ok(upload),
            Err(error) => {
                upload.forget();
                Err(error)
            }
        };
        upload = match blocking(write).await {
            Ok(upload) => upload,
            Err(error) => return refused(error).map(Err),
        };
    }
    ended.map(|_| Ok(upload))
}

fn another_length() -> Taken {
    let told = "the file has another length than was announced\n";
    Taken::Refused(StatusCode::BAD_REQUEST, told)
}

/// Refuses a request with a part of a file: the part must not be stored as the file.
fn is_whole(fields: &HeaderMap) -> Result<(), Taken> {
    // RFC 9110 section 14.5.
    let begins_later = resuming::begins_later(fields);
    if fields.contains_key(CONTENT_RANGE) || begins_later {
        let told = "parts of files are not taken\n";
        return Err(Taken::Refused(StatusCode::BAD_REQUEST, told));
    }
    if resuming::goes_on(fields) {
        let told = "only a whole file is taken, with Upload-Complete: ?1 or without it\n";
        return Err(Taken::Refused(StatusCode::NOT_IMPLEMENTED, told));
    }
    Ok(())
}

/// The length of the file that the fields of a request announce. The bytes of the request follow
/// after `offset` bytes.
fn announced(fields: &HeaderMap, offset: u64) -> Result<Option<u64>, Taken> {
    let refused = || {
        let told = "the length makes no sense\n";
        Taken::Refused(StatusCode::BAD_REQUEST, told)
    };
    let one = |name: HeaderName| {
        let mut lengths = fields.get_all(name).iter();
        match (lengths.next(), lengths.next()) {
            (None, _) => Ok(None),
            (Some(length), None) => resuming::number(length).map(Some).ok_or_else(refused),
            (Some(_), Some(_)) => Err(refused()),
        }
    };
    let content = one(CONTENT_LENGTH)?.map(|length| length.saturating_add(offset));
    let file = one(resuming::UPLOAD_LENGTH)?;
    if content
        .zip(file)
        .is_some_and(|(content, file)| content != file)
    {
        Err(another_length())
    } else {
        Ok(file.or(content))
    }
}
