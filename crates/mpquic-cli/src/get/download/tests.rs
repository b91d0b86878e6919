//! Tests of downloads.

use std::collections::VecDeque;
use std::sync::Mutex;

use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use super::*;
use crate::client::http3;
use crate::get::sink::Memory;
use crate::serve::limits::Limits;
use crate::testing::{Anything, Served, far, soon};

/// A body that arrives in these reads. Each read returns some pieces.
struct Reads {
    left: VecDeque<Result<Vec<&'static [u8]>, RequestError>>,
    /// How many pieces were asked for.
    asked: Arc<Mutex<Vec<usize>>>,
}

impl Body for Reads {
    async fn read(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, RequestError> {
        self.asked.lock().unwrap().push(chunks.len());
        let Some(pieces) = self.left.pop_front() else {
            return Ok(None);
        };
        let pieces = pieces?;
        for (chunk, piece) in chunks.iter_mut().zip(&pieces) {
            *chunk = Bytes::from_static(piece);
        }
        Ok(Some(pieces.len()))
    }
}

type Answer = Response<Reads>;

fn answer(start: u64, length: Option<u64>, tag: &str, reads: &[&[&'static [u8]]]) -> Answer {
    Response {
        start,
        end: length,
        length,
        stamp: Some(Stamp::Etag(tag.to_owned())),
        status: StatusCode::OK,
        fields: HeaderMap::new(),
        body: Reads {
            left: reads.iter().map(|pieces| Ok(pieces.to_vec())).collect(),
            asked: Arc::default(),
        },
    }
}

/// The result of a transfer that continues after `have` bytes: its end, the bytes in all and of
/// this transfer, and the written bytes.
async fn transferred(answer: Answer, have: u64) -> (Result<(), String>, u64, u64, Vec<u8>) {
    let memory = Memory::new(100);
    let keep = Keep {
        url: "",
        resume: false,
        replace: true,
        private: false,
        key: NoteKey::known(),
        checked: Checked::Nothing,
    };
    let destination = Destination::Memory(memory.clone());
    let (mut sink, _) = Sink::create(&destination, &keep).unwrap();
    let (count, total) = (Count::default(), AtomicU64::new(0));
    count.received.store(have, Ordering::Relaxed);
    let end = transfer(answer, &mut sink, &count, &total, None).await;
    let end = end.map_err(|error| match error {
        TransferError::Request(error) => error.to_string(),
        TransferError::Write(error) => panic!("{error}"),
    });
    assert!(!count.writing.load(Ordering::Relaxed));
    sink.finish(None).await.unwrap();
    let total = total.load(Ordering::Relaxed);
    (end, count.received(), total, memory.take())
}

#[tokio::test]
async fn a_body_is_as_long_as_was_announced() {
    let reads: [&[&[u8]]; 2] = [&[b"abc", b"de"], &[b"fghij"]];
    let all = b"abcdefghij".to_vec();
    let of = |length| answer(0, length, "\"1\"", &reads);
    for length in [Some(10), None] {
        let done = (Ok(()), 10, 10, all.clone());
        assert_eq!(transferred(of(length), 0).await, done);
    }
    let rest = (Ok(()), 15, 10, all.clone());
    assert_eq!(transferred(of(Some(15)), 5).await, rest);
    let long = "the answer is longer than announced (4 bytes)";
    let end = transferred(of(Some(4)), 0).await;
    assert_eq!(end, (Err(long.to_owned()), 3, 3, b"abc".to_vec()));
    let cut = "the answer ended after 10 of 11 bytes";
    let end = transferred(of(Some(11)), 0).await;
    assert_eq!(end, (Err(cut.to_owned()), 10, 10, all));
}

/// What is read makes room for more.
#[tokio::test(start_paused = true)]
async fn at_a_rate_less_is_read_at_a_time() {
    for (rate, most) in [
        (None, PIECES),
        (Some("8M"), 7),
        // What the pace gives is a whole number of datagrams of 1400 bytes.
        (Some("11.2M"), 10),
        (Some("10k"), 1),
        (Some("1G"), PIECES),
    ] {
        let answer = answer(0, None, "", &[&[b"abc"]]);
        let asked = answer.body.asked.clone();
        let pace = rate.map(|rate| Pace::new(rate.parse().unwrap()));
        let keep = Keep {
            url: "",
            resume: false,
            replace: true,
            private: false,
            key: NoteKey::known(),
            checked: Checked::Nothing,
        };
        let (mut sink, _) = Sink::create(&Destination::Nowhere, &keep).unwrap();
        let (count, total) = (Count::default(), AtomicU64::new(0));
        let end = transfer(answer, &mut sink, &count, &total, pace.as_ref()).await;
        assert!(end.is_ok());
        assert_eq!(*asked.lock().unwrap(), [most; 2], "{rate:?}");
    }
}

/// Bytes that are written at once: of a shorter body, a cut transfer has written nothing yet.
static BEGINNING: [u8; 256 << 10] = [7; 256 << 10];
const FIRST: u64 = 256 << 10;

/// A client whose answers are known before.
struct Known(Mutex<VecDeque<Answer>>);

impl Client for Known {
    type Body = Reads;

    async fn ask(&self, _: &Ask) -> Result<Answer, RequestError> {
        self.0
            .lock()
            .unwrap()
            .pop_front()
            .ok_or(RequestError::NotFound)
    }
}

fn treatment() -> Treatment {
    Treatment {
        left: Left::default(),
        key: NoteKey::known().clone().into(),
        checked: Checked::Nothing,
        quiet: true,
        resume: true,
        replace: true,
        private: false,
        pace: None,
        stall: Duration::from_secs(20),
        total: Arc::default(),
        json: None,
    }
}

async fn fetched(
    download: &mut Download<'_>,
    connection: &Connection,
    method: Method,
    answer: Answer,
) -> Result<(), Failure> {
    let client = Known(Mutex::new(VecDeque::from([answer])));
    let ask = Ask {
        method,
        ..Ask::get(download.url)
    };
    let ended = download.fetch_with(&ask, connection, &client).await;
    ended.map_err(Failure::from)
}

#[tokio::test]
async fn part_is_continued_if_the_file_is_the_same() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let connection = served.connect(1 << 20).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let destination = Destination::File(path.clone());
    let url = Uri::from_static("https://host/file");
    let begin = async || {
        let started = Download::start(&url, &destination, treatment());
        started.await.unwrap()
    };
    let whole = [&BEGINNING[..], b"456789"].concat();

    let mut download = begin().await;
    assert_eq!(
        (download.have(), download.reached.at),
        (0, download.started)
    );
    let mut cut = answer(0, Some(FIRST + 6), "\"1\"", &[&[&BEGINNING]]);
    cut.body.left.push_back(Err(RequestError::Cancelled));
    let failure = fetched(&mut download, &connection, Method::GET, cut).await;
    assert_eq!(failure.unwrap_err().message(), "the request was cancelled");
    assert_eq!(download.have(), FIRST);
    let told = format!(
        "256.0 KiB are in {}.part, and --continue fetches the rest",
        path.display()
    );
    assert_eq!(download.leave().await, Some(told));

    let mut download = begin().await;
    assert_eq!((download.have(), download.count.received()), (FIRST, FIRST));
    let rest = answer(FIRST, Some(FIRST + 6), "\"1\"", &[&[b"456"], &[b"789"]]);
    fetched(&mut download, &connection, Method::GET, rest)
        .await
        .unwrap();
    assert_eq!(download.treatment.total.load(Ordering::Relaxed), 6);
    assert_eq!(download.count.length(), Some(FIRST + 6));
    assert!(download.reached.at > download.started, "it came on");
    let last = clock::now();
    for pause in [0, 7500] {
        download.count.arrived(last + Duration::from_millis(pause));
    }
    let report = download.finish(&connection, None).await.unwrap();
    assert_eq!(
        (report.bytes, report.resumed_at, report.retries),
        (FIRST + 6, FIRST, 0)
    );
    assert_eq!(report.sha256, hex(&Sha256::digest(&whole)));
    assert_eq!(report.file, Some(path.display().to_string()));
    assert_eq!((report.url, report.paths.len()), (url.to_string(), 1));
    assert!(!report.early_data && !report.is_sent);
    assert_eq!(report.longest_gap_ms, Some(7500.0));
    assert!(std::fs::read(&path).unwrap() == whole);
}

/// A client of a server that answers every range with 416: all files have `length` bytes.
async fn of_past_end(length: &str) -> (Connection, AnyClient) {
    // RFC 9204 section 4.5: the status by its name in the table, and a field that has no name
    // there.
    let range = format!("bytes */{length}");
    let mut fields = b"\0\0\x5f\x09\x03416\x27\x06content-range".to_vec();
    fields.push(range.len() as u8);
    fields.extend(range.bytes());
    let answer = [&[1, fields.len() as u8], &fields[..]].concat();
    let served = Served::blunt(Alpn::H3, answer);
    let connection = served.connect(1 << 20).await;
    let client = http3::Client::new(connection.clone(), false, std::future::pending());
    (connection, AnyClient::Http(client.await.unwrap()))
}

#[tokio::test]
async fn if_all_of_it_is_there_nothing_more_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let destination = Destination::File(path.clone());
    let url = Uri::from_static("https://localhost/file");
    let begin = async || {
        let started = Download::start(&url, &destination, treatment());
        started.await.unwrap()
    };
    let (connection, client) = of_past_end(&FIRST.to_string()).await;
    let mut download = begin().await;
    assert_eq!(download.gone_on_with(), None);
    let cut = answer(0, Some(FIRST + 1), "\"1\"", &[&[&BEGINNING]]);
    let cut = fetched(&mut download, &connection, Method::GET, cut).await;
    assert!(cut.is_err());
    download.leave().await;

    let mut download = begin().await;
    let tag = Stamp::Etag("\"1\"".to_owned());
    assert_eq!(download.gone_on_with(), Some((FIRST, tag.clone())));
    download.have = 1;
    assert_eq!(download.gone_on_with(), Some((1, tag.clone())));
    // Nothing is there: it is asked for from the beginning.
    download.have = 0;
    assert_eq!(download.gone_on_with(), None);
    download.have = FIRST;
    let ask = Ask::get(&url);
    let ended = soon(download.fetch(&ask, &connection, client)).await;
    ended.unwrap();
    let report = download.finish(&connection, None).await.unwrap();
    assert_eq!((report.bytes, report.resumed_at), (FIRST, FIRST));
    assert!(std::fs::read(&path).unwrap() == BEGINNING);
}

/// It is asked for anew, once.
#[tokio::test]
async fn part_longer_than_the_file_is_of_another_file() {
    let directory = tempfile::tempdir().unwrap();
    let destination = Destination::File(directory.path().join("file"));
    let url = Uri::from_static("https://localhost/file");
    let (connection, client) = of_past_end("5").await;
    let started = Download::start(&url, &destination, treatment());
    let mut download = started.await.unwrap();
    download.have = FIRST;
    download.version.stamp = Some(Stamp::Etag("\"1\"".to_owned()));
    let ended = soon(download.fetch(&Ask::get(&url), &connection, client)).await;
    let failure = Failure::from(ended.unwrap_err());
    let told = "the server answered 416 Range Not Satisfiable";
    assert_eq!((failure.message(), download.have()), (told, 0));
    assert_eq!(download.version, Version::default());
}

/// Has a download of a file of this length break off behind its beginning.
async fn break_off(
    download: &mut Download<'_>,
    connection: &Connection,
    length: u64,
    beginning: &'static [u8],
) {
    let mut cut = answer(0, Some(length), "\"1\"", &[&[beginning]]);
    cut.body.left.push_back(Err(RequestError::Gone));
    let cut = fetched(download, connection, Method::GET, cut).await;
    assert_eq!(cut.unwrap_err().cause(), Some(Cause::Broken));
}

/// A part of the file that begins at `start`; `length` is the length of the whole file, if told.
fn part(start: u64, bytes: &'static [u8], length: Option<u64>) -> Answer {
    let mut part = answer(start, length, "\"1\"", &[&[bytes]]);
    part.end = Some(start + bytes.len() as u64);
    part
}

/// The file after its first answer, which told no length, broke off behind [`BEGINNING`], and these
/// answers followed: the bytes behind the beginning, or the failure.
async fn completed(answers: Vec<Answer>) -> Result<Vec<u8>, String> {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let connection = served.connect(1 << 20).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let destination = Destination::File(path.clone());
    let url = Uri::from_static("https://localhost/file");
    let started = Download::start(&url, &destination, treatment());
    let mut download = started.await.unwrap();
    let mut cut = answer(0, None, "\"1\"", &[&[&BEGINNING]]);
    cut.body.left.push_back(Err(RequestError::Gone));
    let cut = fetched(&mut download, &connection, Method::GET, cut).await;
    assert_eq!(cut.unwrap_err().cause(), Some(Cause::Broken));
    let client = Known(Mutex::new(answers.into()));
    let ask = Ask::get(&url);
    let ended = download.fetch_all(&ask, &connection, &client).await;
    ended.map_err(|ended| Failure::from(ended).message().to_owned())?;
    download.finish(&connection, None).await.unwrap();
    let mut file = std::fs::read(&path).unwrap();
    Ok(file.split_off(BEGINNING.len()))
}

/// Only an answer that tells the length shows whether the file is whole.
#[tokio::test]
async fn parts_are_requested_until_the_whole_file_is_there() {
    let of_ten = |start, bytes| part(FIRST + start, bytes, Some(FIRST + 10));
    let parts = vec![of_ten(0, b"01234"), of_ten(5, b"56789")];
    assert_eq!(completed(parts).await.unwrap(), b"0123456789");
    let unknown = |start, bytes| part(FIRST + start, bytes, None);
    let parts = vec![unknown(0, b"01234"), of_ten(5, b"56789")];
    assert_eq!(completed(parts).await.unwrap(), b"0123456789");
    // Known answers nothing else: a request for more follows.
    let parts = vec![unknown(0, b"01234")];
    let told = "not found on the server";
    assert_eq!(completed(parts).await.unwrap_err(), told);
}

/// A server that sends the whole file again cannot make it shorter than it is.
#[tokio::test]
async fn a_version_has_one_length() {
    let told = || part(FIRST, b"01234", Some(FIRST + 10));
    let whole = |bytes| answer(0, None, "\"1\"", &[&[bytes]]);
    let short = completed(vec![told(), whole(&BEGINNING)]).await;
    let expected = "the answer ended after 262144 of 262154 bytes";
    assert_eq!(short.unwrap_err(), expected);
    let mut long = whole(&BEGINNING);
    long.body.left.push_back(Ok(vec![b"0123456789a"]));
    let expected = "the answer is longer than announced (262154 bytes)";
    assert_eq!(completed(vec![told(), long]).await.unwrap_err(), expected);
    let mut right = whole(&BEGINNING);
    right.body.left.push_back(Ok(vec![b"0123456789"]));
    assert_eq!(completed(vec![told(), right]).await.unwrap(), b"0123456789");
}

/// A rest with another or no length belongs to another file, whatever its name.
#[tokio::test]
async fn a_rest_of_another_length_is_not_taken() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let connection = served.connect(1 << 20).await;
    let directory = tempfile::tempdir().unwrap();
    let destination = Destination::File(directory.path().join("file"));
    let url = Uri::from_static("https://host/file");
    let started = Download::start(&url, &destination, treatment());
    let mut download = started.await.unwrap();
    break_off(&mut download, &connection, FIRST + 6, &BEGINNING).await;
    // What the server told is known to the next run as well.
    download.leave().await;
    let started = Download::start(&url, &destination, treatment());
    let mut download = started.await.unwrap();
    let ask = Ask {
        have: download.gone_on_with(),
        ..Ask::get(&url)
    };
    for other in [
        answer(0, Some(6), "\"1\"", &[&[b"456789"]]),
        answer(FIRST, Some(FIRST + 7), "\"1\"", &[&[b"4567890"]]),
    ] {
        let client = Known(Mutex::new(VecDeque::from([other])));
        let ended = download.fetch_with(&ask, &connection, &client).await;
        let Err(Ended::Request(RequestError::NotTheRest(told))) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(told, "another length of the same version of the file");
    }
    // Less than the rest is a part of it.
    let mut less = answer(FIRST, Some(FIRST + 6), "\"1\"", &[&[b"456"]]);
    less.body.asked = Arc::default();
    less.end = Some(FIRST + 3);
    let client = Known(Mutex::new(VecDeque::from([less])));
    download
        .fetch_with(&ask, &connection, &client)
        .await
        .unwrap();
    assert_eq!(
        (download.have, download.version.length),
        (FIRST + 3, Some(FIRST + 6))
    );
}

/// A body of which nothing comes.
struct Silent;

impl Body for Silent {
    async fn read(&mut self, _: &mut [Bytes]) -> Result<Option<usize>, RequestError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_body_of_which_nothing_comes_is_given_up() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let connection = served.connect(1 << 20).await;
    let url = Uri::from_static("https://host/file");
    let treatment = Treatment {
        stall: Duration::ZERO,
        ..treatment()
    };
    let started = Download::start(&url, &Destination::Nowhere, treatment);
    let mut download = started.await.unwrap();
    // The request before was given up while it wrote.
    download.count.writing.store(true, Ordering::Relaxed);
    let Response {
        start,
        end,
        length,
        stamp,
        status,
        fields,
        ..
    } = answer(0, None, "", &[]);
    let silent = Response {
        start,
        end,
        length,
        stamp,
        status,
        fields,
        body: Silent,
    };
    let ended = soon(download.receive(silent, &connection)).await;
    let Err(Ended::Request(error)) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(error.to_string(), "the server sent nothing for 0 s");
}

#[tokio::test]
async fn another_version_begins_anew() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let connection = served.connect(1 << 20).await;
    let directory = tempfile::tempdir().unwrap();
    let destination = Destination::File(directory.path().join("file"));
    let url = Uri::from_static("https://host/file");
    let started = Download::start(&url, &destination, treatment());
    let mut download = started.await.unwrap();
    break_off(&mut download, &connection, 10, b"0123").await;
    let other = answer(0, Some(3), "\"2\"", &[&[b"abc"]]);
    fetched(&mut download, &connection, Method::GET, other)
        .await
        .unwrap();
    assert_eq!((download.have, download.resumed_at), (3, 0));
    assert_eq!(
        download.version.stamp,
        Some(Stamp::Etag("\"2\"".to_owned()))
    );
    let expected = Sha256::digest(b"other").into();
    let failure = download
        .finish(&connection, Some(expected))
        .await
        .unwrap_err();
    assert_eq!(failure.cause(), Some(Cause::Content));
    let told = format!("its SHA-256 is {}, but ", hex(&Sha256::digest(b"abc")));
    assert!(
        failure.message().starts_with(&told),
        "{}",
        failure.message()
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn of_a_head_the_fields_are_shown() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let connection = served.connect(1 << 20).await;
    let memory = Memory::new(100);
    let destination = Destination::Memory(memory.clone());
    let url = Uri::from_static("https://host/file");
    let started = Download::start(&url, &destination, treatment());
    let mut download = started.await.unwrap();
    let mut head = answer(0, Some(10), "", &[]);
    let value = "b\u{9b}31m\u{202e}c".as_bytes();
    let value = HeaderValue::from_bytes(value).unwrap();
    head.fields.insert("x-a", value);
    fetched(&mut download, &connection, Method::HEAD, head)
        .await
        .unwrap();
    let report = download.finish(&connection, None).await.unwrap();
    assert_eq!(
        (memory.take(), report.file),
        (b"HTTP/3 200\nx-a: b 31m c\n\n".to_vec(), None)
    );
}

#[test]
fn kept_part_and_unwritable_file_are_named() {
    let file = Destination::File("a/b".into());
    let directory = tempfile::tempdir().unwrap();
    let part = directory.path().join("b.part");
    let kept = |bytes| {
        let kept = crate::get::sink::Kept {
            bytes: Arc::new(AtomicU64::new(bytes)),
            part: part.clone(),
        };
        kept.hint()
    };
    std::fs::write(&part, "1").unwrap();
    assert_eq!(kept(0), None);
    let told = format!(
        "1 B are in {}, and --continue fetches the rest",
        part.display()
    );
    assert_eq!(kept(1), Some(told));
    std::fs::remove_file(&part).unwrap();
    assert_eq!(kept(1), None, "another program has removed the part");
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    for (destination, name) in [(&file, "a/b"), (&Destination::Stdout, "standard output")] {
        let failure = cannot_write(destination, &full);
        let told = format!("cannot write {name}: ");
        assert!(failure.message().starts_with(&told));
        assert_eq!(failure.cause(), Some(Cause::File));
    }
}

/// A server may be ahead of the rate by so much as the paths need, and no more: with round trips of
/// 20 ms it takes some until it has leave for the next bytes.
#[tokio::test(start_paused = true)]
async fn a_rate_bounds_what_is_under_way() {
    const BYTES: usize = 8 << 20;
    let mut times = Vec::new();
    for rate in [None, Some("10k")] {
        let delay = Duration::from_millis(10);
        let far = far(Alpn::Perf, delay, mpquic_tokio::default_transport()).await;
        let treatment = Treatment {
            pace: rate.map(|rate| Arc::new(Pace::new(rate.parse().unwrap()))),
            ..treatment()
        };
        treatment.make_room(&far.client, &far.client.path_stats());
        let began = tokio::time::Instant::now();
        let send = async {
            let mut stream = far.server.open_uni().await.unwrap();
            stream.write_all(&vec![0; BYTES]).await.unwrap();
            stream.finish().unwrap();
        };
        let receive = async {
            let mut stream = far.client.accept_uni().await.unwrap();
            stream.read_to_end(BYTES).await.unwrap().len()
        };
        let ((), received) = tokio::join!(send, receive);
        assert_eq!(received, BYTES);
        times.push(began.elapsed());
    }
    assert!(times[1] > 3 * times[0], "{times:?}");
}
