use std::fs;
use std::path::Path;

use clap::Parser;
use sha2::{Digest, Sha256};

use super::*;
use crate::files::Directory;
use crate::process::screen::tests::Heard;
use crate::serve::limits::Limits;
use crate::testing::{Served, soon};
use crate::text::hex::hex;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    put: Put,
}

/// A server that takes files of up to so many bytes.
fn served(directory: &Path, most: Option<u64>) -> Served {
    let directory = Directory::new(directory, false).unwrap().max_upload(most);
    Served::start(directory, Limits::default(), Alpn::H3)
}

/// An upload that leaves no notes for later commands.
fn unnoted<'a>(args: &Put, sessions: &'a Sessions<'a>) -> Sending<'a> {
    Sending {
        notes: None,
        ..sending(args, sessions, Secrets::default())
    }
}

/// Runs `mpquic put`; returns messages, output and result.
async fn put(url: &Uri, files: &[&Path], options: &[&str]) -> ([String; 2], Result<(), Failure>) {
    let url = url.to_string();
    let names = files.iter().map(|file| file.to_str().unwrap());
    let line = ["x", "--insecure", "--retry-time", "0", &url].into_iter();
    let line = line.chain(names).chain(options.iter().copied());
    let args = Line::try_parse_from(line).unwrap().put;
    let items = sources::items(&args.url, &args.files, args.recursive).unwrap();
    let purpose = Purpose::look(&args.url, &[Alpn::H3]);
    let sessions = Sessions::new(&args.reach, purpose).unwrap().that_forget();
    let sending = unnoted(&args, &sessions);
    let heard = Heard::begin();
    let result = soon(send_all(&args, &sending, &items)).await;
    let mut view = View::new(&items, args.quiet);
    view.update(&sending);
    if result.is_ok() {
        let (title, _, bytes) = view.progress.told();
        assert_eq!(Some(bytes), items.length);
        let several = format!("{} files", items.files.len());
        let is_one = items.files.len() == 1;
        assert_eq!(
            title,
            if is_one {
                items.files[0].name()
            } else {
                &several
            }
        );
    }
    (heard.take(), result)
}

#[tokio::test]
async fn single_file_result_lists_paths() {
    let (target, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let served = served(target.path(), Some(1 << 20));
    let file = source.path().join("a b");
    let content = vec![7; 700_000];
    fs::write(&file, &content).unwrap();
    let url = served.url("/");
    let ([printed, said], result) = put(&url, &[&file], &[]).await;
    result.unwrap();
    assert_eq!(printed, "");
    let lines: Vec<_> = said.lines().collect();
    let start = format!("{url}a%20b: 683.6 KiB in ");
    assert!(
        lines[0].starts_with(&start) && lines[0].ends_with(", over 1 path"),
        "{said}"
    );
    assert!(
        lines[1].starts_with("path  local") && lines[1].contains(" sent  share"),
        "{said}"
    );
    assert_eq!(lines.len(), 3, "{said}");
    assert_eq!(fs::read(target.path().join("a b")).unwrap(), content);
    fs::remove_file(target.path().join("a b")).unwrap();
    let ([printed, said], result) = put(&url, &[&file], &["--quiet"]).await;
    result.unwrap();
    assert_eq!((&*printed, &*said), ("", ""));
    fs::remove_file(target.path().join("a b")).unwrap();
    let ([printed, said], result) = put(&url, &[&file], &["--json"]).await;
    result.unwrap();
    assert_eq!(said, "");
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["url"], format!("{url}a%20b"));
    assert_eq!(report["bytes"], content.len());
    assert_eq!(report["sha256"], hex(&Sha256::digest(&content)));
    assert_eq!(report["file"], file.to_str().unwrap());
    assert_eq!(report["protocol"], "h3");
    let seconds = report["seconds"].as_f64().unwrap();
    assert!(seconds > 0.0 && seconds < 20.0, "{report}");
    for absent in ["retries", "resumed_at", "early_data", "longest_gap_ms"] {
        assert!(report[absent].is_null(), "{report}");
    }
    let sent = report["paths"][0]["bytes_sent"].as_u64().unwrap();
    assert!(sent > content.len() as u64, "{report}");
}

#[tokio::test]
async fn several_files_are_told_together() {
    let (target, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let served = served(target.path(), Some(1 << 20));
    let url = served.url("/");
    let files = [("a", 1000), ("b", 2000), ("c", 3000)].map(|(name, length)| {
        let path = source.path().join(name);
        fs::write(&path, vec![1; length]).unwrap();
        path
    });
    let files = files.each_ref().map(|path| path.as_path());
    let ([printed, said], result) = put(&url, &files, &[]).await;
    result.unwrap();
    assert_eq!(printed, "");
    let start = format!("{url}: 3 files, 5.9 KiB in ");
    assert!(
        said.starts_with(&start) && said.lines().count() == 1,
        "{said}"
    );
    for (name, length) in [("a", 1000), ("b", 2000), ("c", 3000)] {
        let there = fs::read(target.path().join(name)).unwrap();
        assert_eq!(there, vec![1; length]);
    }
    // Equal files are not sent again, unless the URL names the file.
    fs::write(files[1], vec![2; 2000]).unwrap();
    fs::remove_file(target.path().join("c")).unwrap();
    let ([printed, said], result) = put(&url, &files, &["--json"]).await;
    result.unwrap();
    assert_eq!((printed.lines().count(), &*said), (2, ""));
    let ([printed, said], result) = put(&url, &files, &[]).await;
    result.unwrap();
    assert_eq!(printed, "");
    assert!(said.ends_with(", 3 were already there\n"), "{said}");
    let ([printed, said], result) = put(&url, &files, &["--quiet"]).await;
    result.unwrap();
    assert_eq!((&*printed, &*said), ("", ""));
    let ([printed, _], result) = put(&served.url("/a"), &files[..1], &["--json"]).await;
    result.unwrap();
    assert_eq!(printed.lines().count(), 1);
}

/// A directory comes before its content, at any depth.
#[tokio::test]
async fn parent_directories_are_made_first() {
    let (target, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let served = served(target.path(), Some(1 << 20));
    let top = source.path().join("top");
    let deep: std::path::PathBuf = (0..40).map(|number| format!("d{number}")).collect();
    fs::create_dir_all(top.join(&deep)).unwrap();
    fs::write(top.join(&deep).join("file"), "content").unwrap();
    let url = served.url("/");
    // Existing directories are no obstacle, and equal files are skipped.
    for (lines, told) in [(3, "over 1 path"), (1, ", 1 was already there")] {
        let ([_, said], result) = put(&url, &[&top], &["--recursive"]).await;
        result.unwrap();
        let there = target.path().join("top").join(&deep).join("file");
        assert_eq!(fs::read(there).unwrap(), b"content");
        assert!(
            said.lines().count() == lines && said.contains(told),
            "{said}"
        );
    }
    // If a directory cannot be made, its content is not sent, and everything else is.
    fs::remove_dir_all(target.path().join("top/d0")).unwrap();
    fs::write(target.path().join("top/d0"), "").unwrap();
    fs::write(top.join("other"), "x").unwrap();
    let ([_, said], result) = put(&url, &[&top], &["--recursive"]).await;
    assert_eq!(result.unwrap_err().cause(), Some(Cause::Refused));
    let start = format!("mpquic: {url}top/d0/: the server has a file of this name");
    assert!(
        said.starts_with(&start) && said.lines().count() == 2,
        "{said}"
    );
    assert!(target.path().join("top/other").exists());
}

/// Of another size or time, a file is another one.
#[tokio::test]
async fn equal_files_are_not_sent_again_and_others_are() {
    let (target, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let served = served(target.path(), Some(1 << 20));
    let url = served.url("/");
    let here = |name: &str| source.path().join(name);
    let there = |name: &str| target.path().join(name);
    for name in ["same", "size", "time"] {
        fs::write(here(name), "123").unwrap();
    }
    let top = source.path().join(".");
    let (_, result) = put(&url, &[&top], &["--recursive"]).await;
    result.unwrap();
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(modified(&here("same")), modified(&there("same")));
    fs::write(there("same"), "abc").unwrap();
    let time = modified(&here("same"));
    let set = |path: &Path, time| {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    };
    set(&there("same"), time);
    fs::write(here("size"), "1234").unwrap();
    set(&here("time"), time - Duration::from_secs(5));
    let ([_, said], result) = put(&url, &[&top], &["--recursive"]).await;
    result.unwrap();
    assert!(
        said.contains(": 2 files, 7 B in ") && said.ends_with(", 1 was already there\n"),
        "{said}"
    );
    assert_eq!(fs::read(there("same")).unwrap(), b"abc");
    assert_eq!(fs::read(there("size")).unwrap(), b"1234");
    assert_eq!(modified(&there("time")), modified(&here("time")));
}

#[tokio::test]
async fn refused_files_are_reported_and_others_sent() {
    let (target, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let served = served(target.path(), Some(2000));
    let url = served.url("/");
    let files = [("a", 1000), ("b", 2001), ("c", 2000)].map(|(name, length)| {
        let path = source.path().join(name);
        fs::write(&path, vec![1; length]).unwrap();
        path
    });
    let files = files.each_ref().map(|path| path.as_path());
    let ([_, said], result) = put(&url, &files, &["--parallel", "1"]).await;
    assert_eq!(result.unwrap_err().message(), "told above");
    let lines: Vec<_> = said.lines().collect();
    let start = format!("mpquic: {url}b: the server answered 413");
    assert!(lines[0].starts_with(&start), "{said}");
    // Refused files do not count.
    let start = format!("{url}: 2 files, 2.9 KiB in ");
    assert!(lines[1].starts_with(&start) && lines.len() == 2, "{said}");
    assert!(!target.path().join("b").exists() && target.path().join("c").exists());
}

/// Whatever the umask; directories last, because each file in them changes their time.
#[cfg(unix)]
#[tokio::test]
async fn files_and_directories_have_their_times_and_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let (target, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let served = served(target.path(), Some(1 << 20));
    let url = served.url("/");
    let top = source.path().join("top");
    fs::create_dir_all(top.join("sub/deep")).unwrap();
    let time = |seconds: u64| std::time::SystemTime::UNIX_EPOCH + Duration::new(seconds, 5);
    let set = |name: &str, mode: u32, seconds: u64| {
        let path = top.join(name);
        let file = fs::File::open(&path).unwrap();
        file.set_modified(time(seconds)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let all = [
        ("a", 0o666),
        ("sub/b", 0o775),
        ("sub/deep/c", 0o400),
        ("sub/deep", 0o777),
        ("sub", 0o570),
        (".", 0o711),
    ];
    for (name, _) in &all[..3] {
        fs::write(top.join(name), name).unwrap();
    }
    for (seconds, (name, mode)) in all.into_iter().enumerate() {
        set(name, mode, seconds as u64);
    }
    let mut expected: Vec<_> = all.into_iter().zip(0..).collect();
    for told in ["3 files, ", ", 3 were already there"] {
        let ([_, said], result) = put(&url, &[&top], &["--recursive"]).await;
        result.unwrap();
        assert!(said.contains(told) && said.lines().count() == 1, "{said}");
        for ((name, mode), seconds) in &expected {
            let there = fs::metadata(target.path().join("top").join(name)).unwrap();
            assert_eq!(there.permissions().mode() & 0o7777, *mode, "{name}");
            assert_eq!(there.modified().unwrap(), time(*seconds), "{name}");
        }
        // Permissions alone are no reason to send a file again.
        set("a", 0o600, 0);
        set("sub", 0o500, 4);
        (expected[0].0.1, expected[4].0.1) = (0o600, 0o500);
    }
    // A file joins the others in a directory that its owner may not change.
    set("sub", 0o700, 4);
    fs::write(top.join("sub/d"), "d").unwrap();
    set("sub", 0o500, 4);
    let ([_, said], result) = put(&url, &[&top], &["--recursive"]).await;
    result.unwrap();
    assert!(said.contains("1 file, 1 B"), "{said}");
    let there = fs::metadata(target.path().join("top/sub")).unwrap();
    assert_eq!(there.permissions().mode() & 0o777, 0o500);
    assert_eq!(there.modified().unwrap(), time(4));
}

#[tokio::test]
async fn left_out_files_are_named_and_other_files_are_sent() {
    let (target, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let served = served(target.path(), Some(1 << 20));
    let url = served.url("/");
    fs::write(source.path().join("plain"), "x").unwrap();
    let items = Items {
        left_out: vec!["a/link".into(), "b/pipe".into()],
        ..sources::items(&url, &[source.path().join(".")], true).unwrap()
    };
    let line = ["x", "--insecure", "-q", url.path(), "f"];
    let mut args = Line::try_parse_from(line.map(|word| match word {
        "/" => url.to_string(),
        word => word.to_owned(),
    }))
    .unwrap()
    .put;
    args.recursive = true;
    let purpose = Purpose::look(&args.url, &[Alpn::H3]);
    let sessions = Sessions::new(&args.reach, purpose).unwrap().that_forget();
    let sending = unnoted(&args, &sessions);
    let heard = Heard::begin();
    let result = soon(send_all(&args, &sending, &items)).await;
    assert_eq!(result.unwrap_err().code(), 9);
    let [_, said] = heard.take();
    let why = "is left out: it is a link, a pipe, a socket or a device";
    assert_eq!(
        said,
        format!("mpquic: a/link {why}\nmpquic: b/pipe {why}\n")
    );
    assert!(target.path().join("plain").exists());
}
