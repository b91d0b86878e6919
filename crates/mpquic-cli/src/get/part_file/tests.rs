use std::fs;

use super::*;

const URL: &str = "https://host/file";

fn version() -> Version {
    Version {
        stamp: Some(Stamp::Etag("\"1\"".to_owned())),
        length: Some(2_000_000),
    }
}

fn open(path: &Path, resume: bool) -> io::Result<(PartFile, Begun)> {
    open_of(path, URL, resume)
}

fn keep(url: &str, resume: bool) -> Keep<'_> {
    Keep {
        url,
        resume,
        replace: true,
        private: false,
        key: NoteKey::known(),
        checked: Checked::Nothing,
    }
}

fn open_of(path: &Path, url: &str, resume: bool) -> io::Result<(PartFile, Begun)> {
    PartFile::open(path, &keep(url, resume))
}

#[cfg(unix)]
#[test]
fn a_private_part_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    // Also what an earlier download left.
    let path = left(&directory);
    let part = with_suffix(&path, ".part");
    fs::set_permissions(&part, fs::Permissions::from_mode(0o644)).unwrap();
    for path in [path, directory.path().join("other")] {
        let keep = Keep {
            private: true,
            ..keep(URL, true)
        };
        let _part = PartFile::open(&path, &keep).unwrap();
        let there = fs::metadata(with_suffix(&path, ".part")).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, 0o600);
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn now() -> Instant {
    crate::process::clock::now()
}

/// Leaves a part of 3000 bytes.
fn left(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("file");
    let (mut part, begun) = open(&path, true).unwrap();
    assert_eq!(begun, Begun::default());
    part.set_version(version());
    part.write(&[[1; 1000]], now()).unwrap();
    part.write(&[[2; 2000]], now()).unwrap();
    path
}

/// Another download may have a file whose name is the name of the note.
#[test]
fn a_file_that_takes_the_name_of_the_note_stays() {
    for is_finished in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        let (mut part, _) = open(&path, true).unwrap();
        let note = with_suffix(&path, ".part.json");
        let other = directory.path().join("other");
        fs::write(&other, "of another download").unwrap();
        fs::rename(&other, &note).unwrap();
        part.write(&[[3; 1000]], now() + 2 * NOTE_EVERY).unwrap();
        let kept = part.kept();
        if is_finished {
            part.finish().unwrap();
        }
        drop(part);
        assert_eq!(kept.load(Ordering::Acquire), 0);
        assert_eq!(fs::read(&note).unwrap(), b"of another download");
        let length = fs::metadata(&path).ok().map(|file| file.len());
        assert_eq!(length, is_finished.then_some(4000));
        assert!(!with_suffix(&path, ".part").exists());
    }
}

#[test]
fn without_room_for_another_file_the_old_note_is_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = left(&directory);
    let (mut part, _) = open(&path, true).unwrap();
    // A directory has the name of the new note, so no new note can be written, as on a full
    // disk.
    fs::create_dir(with_suffix(&path, ".part.json.new")).unwrap();
    part.write(&[[3; 1_000_000]], now()).unwrap();
    let kept = part.kept();
    drop(part);
    assert_eq!(kept.load(Ordering::Acquire), 1_003_000);
    let (_, begun) = open(&path, true).unwrap();
    assert_eq!((begun.have, begun.version), (1_003_000, version()));
}

#[test]
fn part_of_an_earlier_run_is_continued() {
    let directory = tempfile::tempdir().unwrap();
    let path = left(&directory);
    let (mut part, begun) = open(&path, true).unwrap();
    assert_eq!((begun.have, begun.version), (3000, version()));
    part.write(&[[3; 10]], now()).unwrap();
    let whole = [vec![1; 1000], vec![2; 2000], vec![3; 10]].concat();
    assert_eq!(part.sum().unwrap(), (3010, Sha256::digest(&whole).into()));
    part.finish().unwrap();
    drop(part);
    assert!(fs::read(&path).unwrap() == whole);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// As after `kill -9`, or a crash of the system.
#[test]
fn bytes_after_the_last_note_are_not_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let path = left(&directory);
    let part = with_suffix(&path, ".part");
    let mut file = File::options().append(true).open(&part).unwrap();
    file.write_all(&[9; 500]).unwrap();
    let (mut part, begun) = open(&path, true).unwrap();
    assert_eq!((begun.have, begun.version), (3000, version()));
    part.write(&[[3; 10]], now()).unwrap();
    part.finish().unwrap();
    assert_eq!(
        fs::read(&path).unwrap()[2999..],
        [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
    );
}

fn content(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn damaged_part_or_note_starts_the_download_over() {
    type Damage = fn(&Path);
    let damages: [(Damage, &str, &str); 5] = [
        (|_| {}, "https://host/other", "something else"),
        (
            |path| fs::remove_file(with_suffix(path, ".part.json")).unwrap(),
            URL,
            "no note",
        ),
        (
            |path| fs::write(with_suffix(path, ".part.json"), "{").unwrap(),
            URL,
            "damaged",
        ),
        (
            |path| fs::write(with_suffix(path, ".part"), [1; 2999]).unwrap(),
            URL,
            "changed",
        ),
        (
            |path| fs::write(with_suffix(path, ".part"), [1; 3000]).unwrap(),
            URL,
            "changed",
        ),
    ];
    for (damage, url, why) in damages {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        damage(&path);
        let before = content(directory.path());
        let (mut part, begun) = open_of(&path, url, true).unwrap();
        assert!(begun.have == 0);
        let told = begun.useless.unwrap();
        assert!(told.contains(why), "{told}");
        assert_eq!(part.sum().unwrap().0, 0);
        assert_eq!(fs::metadata(part.part()).unwrap().len(), 0);
        drop(part);
        // A file that may be the user's own is not touched.
        let left = match why {
            "no note" | "damaged" => before,
            _ => Vec::new(),
        };
        assert_eq!(content(directory.path()), left, "{why}");
    }
    let directory = tempfile::tempdir().unwrap();
    let (_part, begun) = open(&left(&directory), false).unwrap();
    assert_eq!(begun, Begun::default(), "not asked for");
}

#[test]
fn discarded_part_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for known in [false, true] {
        let (mut part, _) = open(&path, false).unwrap();
        part.set_version(if known { version() } else { Version::default() });
        part.write(&[[1; 10]], now()).unwrap();
        part.discard();
        drop(part);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

/// The bytes that the note names.
fn noted(path: &Path) -> Option<u64> {
    let note = fs::read(with_suffix(path, ".part.json")).ok()?;
    Some(serde_json::from_slice::<Note>(&note).unwrap().bytes)
}

#[test]
fn note_is_written_once_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let (mut part, _) = open(&path, false).unwrap();
    part.set_version(version());
    let (start, kept) = (now(), part.kept());
    let mut write = |millis| {
        let at = start + Duration::from_millis(millis);
        part.write(&[[1; 10]], at).unwrap();
        assert_eq!(kept.load(Ordering::Acquire), noted(&path).unwrap());
        noted(&path).unwrap()
    };
    let told = [0, 1, 999, 1000, 1999, 2500].map(&mut write);
    assert_eq!(told, [10, 10, 10, 40, 40, 60]);
    // With the rest at its end.
    write(2501);
    drop(part);
    assert_eq!((noted(&path), kept.load(Ordering::Acquire)), (Some(70), 70));
    let (part, begun) = open(&path, true).unwrap();
    assert_eq!((begun.have, begun.version), (70, version()));
    let kept = part.kept();
    assert_eq!(kept.load(Ordering::Acquire), 70);
    drop(part);
    assert_eq!(noted(&path), Some(70));
}

#[test]
fn restarted_part_is_empty() {
    let directory = tempfile::tempdir().unwrap();
    let path = left(&directory);
    let (mut part, _) = open(&path, true).unwrap();
    part.restart().unwrap();
    let kept = part.kept();
    assert_eq!((kept.load(Ordering::Acquire), noted(&path)), (0, Some(0)));
    assert_eq!(part.sum().unwrap(), (0, Sha256::digest(b"").into()));
    // The note of the first bytes is written at once, though one was written a moment ago.
    part.set_version(version());
    part.write(&[[7; 5]], now()).unwrap();
    assert_eq!(noted(&path), Some(5));
    part.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), [7; 5]);

    // A version without a name cannot be continued later.
    let (mut part, _) = open(&path, false).unwrap();
    part.write(&[[1; 10]], now()).unwrap();
    let kept = part.kept();
    part.discard();
    drop(part);
    assert_eq!((kept.load(Ordering::Acquire), noted(&path)), (0, None));
    // Nor can an unwanted version, even with a note.
    let (mut part, _) = open(&path, false).unwrap();
    part.set_version(version());
    part.write(&[[1; 10]], now()).unwrap();
    let kept = part.kept();
    assert_eq!(kept.load(Ordering::Acquire), 10);
    part.discard();
    drop(part);
    assert_eq!((kept.load(Ordering::Acquire), noted(&path)), (0, None));
    // Nor can a part without a byte; one byte is enough.
    let (mut part, _) = open(&path, false).unwrap();
    part.set_version(version());
    drop(part);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let (mut part, _) = open(&path, false).unwrap();
    part.set_version(version());
    part.write(&[[1]], now()).unwrap();
    drop(part);
    assert_eq!(noted(&path), Some(1));
    let (_, begun) = open(&path, true).unwrap();
    assert_eq!((begun.have, begun.version), (1, version()));
}

#[test]
fn without_a_name_for_its_note_a_part_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let (mut part, _) = open(&path, false).unwrap();
    part.set_version(version());
    // No file can be renamed to this name or written there.
    fs::remove_file(with_suffix(&path, ".part.json")).unwrap();
    fs::create_dir(with_suffix(&path, ".part.json")).unwrap();
    part.write(&[[1; 10]], now()).unwrap();
    assert!(!with_suffix(&path, ".part.json.new").exists());
    drop(part);
    assert!(!with_suffix(&path, ".part").exists());
    assert!(with_suffix(&path, ".part.json").is_dir());
}

/// The reported bytes are the bytes in the file.
#[test]
fn changes_by_other_programs_are_noticed() {
    type Change = fn(&Path);
    let changes: [(Change, Option<&str>); 4] = [
        (|_| {}, None),
        // The content stays the same.
        (|part| touch(part, |_| {}), None),
        (
            |part| touch(part, |file| file.set_len(100).unwrap()),
            Some("another program changed it while it was written"),
        ),
        (
            |part| {
                touch(part, |file| {
                    file.seek(SeekFrom::Start(50)).unwrap();
                    file.write_all(b"!").unwrap();
                });
            },
            Some("another program changed it while it was written"),
        ),
    ];
    for (change, told) in changes {
        for more in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            let (mut part, _) = open(&path, false).unwrap();
            part.set_version(version());
            part.write(&[[1; 1000]], now()).unwrap();
            change(part.part());
            if more {
                part.write(&[[2; 1000]], now()).unwrap();
            }
            let sum = part.sum();
            assert_eq!(sum.as_ref().err().map(ToString::to_string).as_deref(), told);
            if let Ok((bytes, sum)) = sum {
                part.finish().unwrap();
                let content = fs::read(&path).unwrap();
                assert_eq!(bytes, content.len() as u64);
                assert_eq!(sum[..], Sha256::digest(content)[..]);
            }
        }
    }
}

/// Changes a file, and with it the file's time.
fn touch(path: &Path, change: fn(&mut File)) {
    let mut file = File::options().write(true).open(path).unwrap();
    change(&mut file);
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
}

#[test]
fn foreign_file_at_the_name_of_the_part_is_not_renamed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let (mut part, _) = open(&path, false).unwrap();
    part.write(&[[1; 10]], now()).unwrap();
    fs::remove_file(part.part()).unwrap();
    fs::write(part.part(), "precious").unwrap();
    let error = part.finish().unwrap_err().to_string();
    assert!(
        error.ends_with("file.part was replaced while it was written"),
        "{error}"
    );
    let theirs = part.part().to_owned();
    drop(part);
    assert_eq!(fs::read(theirs).unwrap(), b"precious");
    assert!(!path.exists());
}

#[test]
fn existing_file_is_replaced_only_if_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for (there, replace, then) in [
        (false, false, "new"),
        (true, false, "old"),
        (true, true, "new"),
    ] {
        let _ = fs::remove_file(&path);
        if there {
            fs::write(&path, "old").unwrap();
        }
        let keep = Keep {
            replace,
            ..keep(URL, false)
        };
        let (mut part, _) = PartFile::open(&path, &keep).unwrap();
        part.write(&[b"new"], now()).unwrap();
        assert_eq!(part.finish().is_ok(), then == "new");
        drop(part);
        assert_eq!(fs::read_to_string(&path).unwrap(), then);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

/// A user who moves the directory of a download finds no file at the path of the command line. The
/// part stays in the directory for --continue.
#[cfg(unix)]
#[test]
fn a_file_whose_directory_was_moved_is_not_called_whole() {
    let top = tempfile::tempdir().unwrap();
    let (directory, moved) = (top.path().join("directory"), top.path().join("moved"));
    for is_replaced in [false, true] {
        fs::create_dir(&directory).unwrap();
        let path = directory.join("file");
        let (mut part, _) = open(&path, false).unwrap();
        part.set_version(version());
        part.write(&[[1; 1000]], now()).unwrap();
        fs::rename(&directory, &moved).unwrap();
        if is_replaced {
            fs::create_dir(&directory).unwrap();
        }
        let error = part.finish().unwrap_err().to_string();
        assert_eq!(
            error,
            "the directory was moved, removed or replaced while the file was written"
        );
        drop(part);
        assert!(!path.exists() && !moved.join("file").exists());
        let (part, begun) = open(&moved.join("file"), true).unwrap();
        assert_eq!(begun.have, 1000);
        drop(part);
        fs::remove_dir_all(&moved).unwrap();
    }
}
