//! Tests of uploads.

use std::fs;

use super::*;

fn place(directory: &Path, name: &str) -> Place {
    Place::new(directory, name.as_ref()).unwrap()
}

fn create(directory: &Path, name: &str) -> Result<Upload, UploadError> {
    Upload::create(place(directory, name), None)
}

#[test]
fn a_file_appears_when_it_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let names = || fs::read_dir(directory.path()).unwrap().count();
    for (content, is_new) in [(&b"one"[..], true), (b"two", false)] {
        let mut upload = create(directory.path(), "file").unwrap();
        upload.write(content).unwrap();
        let before = fs::read(directory.path().join("file")).ok();
        assert_ne!(before.as_deref(), Some(content));
        let (metadata, new) = upload.finish().unwrap();
        assert_eq!((metadata.len(), new), (3, is_new));
        assert_eq!(fs::read(directory.path().join("file")).unwrap(), content);
        assert_eq!(names(), 1);
    }
    drop(create(directory.path(), "file").unwrap());
    assert_eq!(names(), 1, "given up");
}

#[test]
fn only_files_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("sub")).unwrap();
    let refused = create(directory.path(), "sub").unwrap_err();
    assert!(matches!(refused, UploadError::IsDirectory));
    // The directory may come during the upload.
    let mut upload = create(directory.path(), "later").unwrap();
    upload.write(b"new").unwrap();
    fs::create_dir(directory.path().join("later")).unwrap();
    let refused = upload.finish().unwrap_err();
    assert!(matches!(refused, UploadError::IsDirectory), "{refused:?}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    #[cfg(unix)]
    {
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret");
        fs::write(&secret, "kept").unwrap();
        std::os::unix::fs::symlink(&secret, directory.path().join("link")).unwrap();
        let mut upload = create(directory.path(), "link").unwrap();
        upload.write(b"new").unwrap();
        upload.finish().unwrap();
        assert_eq!(fs::read(&secret).unwrap(), b"kept");
        assert_eq!(fs::read(directory.path().join("link")).unwrap(), b"new");
    }
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let pipe = directory.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let refused = create(directory.path(), "pipe").unwrap_err();
        assert!(matches!(refused, UploadError::Forbidden));
    }
}

#[test]
fn temporary_files_of_others_do_not_stop_an_upload() {
    let directory = tempfile::tempdir().unwrap();
    let first = create(directory.path(), "a").unwrap();
    let name = first.aside.clone();
    let (begin, number) = name.rsplit_once('-').unwrap();
    let number: u64 = number.parse().unwrap();
    // Other tests take numbers, too.
    for next in number + 1..number + 50 {
        let _ = File::create_new(directory.path().join(format!("{begin}-{next}")));
    }
    let (metadata, is_new) = first.finish().unwrap();
    assert!(metadata.is_file() && is_new);
    let mut second = create(directory.path(), "a").unwrap();
    second.write(b"12").unwrap();
    let (_, is_new) = second.finish().unwrap();
    assert!(!is_new);
    assert_eq!(fs::read(directory.path().join("a")).unwrap(), b"12");
}

#[cfg(unix)]
#[test]
fn a_file_has_the_time_and_the_permissions_it_is_to_have() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    for (mode, seconds) in [
        (0o600, "784111777.123456789"),
        (0o400, "-1.500000000"),
        (0o777, "1.500000000"),
    ] {
        let mut place = place(directory.path(), "file");
        let modified = crate::text::times::of_seconds(seconds);
        place.attributes = Attributes {
            mode: Some(mode),
            modified,
        };
        let mut upload = Upload::create(place, None).unwrap();
        let aside = fs::metadata(directory.path().join(&upload.aside)).unwrap();
        assert_eq!(aside.permissions().mode() & 0o777, 0o600);
        upload.write(b"12").unwrap();
        let (metadata, _) = upload.finish().unwrap();
        assert_eq!(metadata.modified().ok(), modified);
        let there = fs::metadata(directory.path().join("file")).unwrap();
        assert_eq!(there.modified().ok(), modified);
        assert_eq!(there.permissions().mode() & 0o777, mode);
    }
}

#[cfg(unix)]
#[test]
fn files_and_directories_get_other_attributes() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let modified = crate::text::times::of_seconds("-1.500000000");
    let with = |name: &str, mode| Place {
        attributes: Attributes {
            mode: Some(mode),
            modified,
        },
        ..place(directory.path(), name)
    };
    let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o7777;
    // The owner keeps the right to write, because files for the directory follow.
    with("sub", 0o577).make_directory().unwrap();
    assert_eq!(mode("sub"), 0o777);
    fs::write(path("file"), "12").unwrap();
    for (name, wanted, expected) in [
        ("file", 0o662, 0o662),
        ("file", 0o4600, 0o600),
        ("sub", 0o570, 0o570),
        ("sub", 0o007, 0o507),
    ] {
        with(name, wanted).set_attributes(false).unwrap();
        assert_eq!(mode(name), expected, "{name}");
        let there = fs::metadata(path(name)).unwrap();
        assert_eq!(there.modified().ok(), modified);
    }
    std::os::unix::fs::symlink("file", path("link")).unwrap();
    let refused = with("link", 0o777).set_attributes(false);
    assert!(matches!(refused, Err(UploadError::IsLink)));
    let refused = with("none", 0o777).set_attributes(false);
    assert!(matches!(refused, Err(UploadError::Unknown)));
    assert_eq!(mode("file"), 0o600);
}

#[test]
fn a_file_is_resumed_where_it_broke_off() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(directory.path().to_owned(), u64::MAX);
    let place = || Place {
        uploads: uploads.clone(),
        ..place(directory.path(), "file")
    };
    // Of the first bytes alone, nothing is kept.
    let token = Token::new().unwrap();
    let least = vec![b'1'; LEAST_KEPT as usize];
    for length in [0, least.len() - 1] {
        let mut first = Upload::create(place(), Some(token.clone())).unwrap();
        first.write(&least[..length]).unwrap();
        drop(first);
        let gone = Upload::resume(place(), &token);
        assert!(matches!(gone, Err(UploadError::Unknown)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
    let mut first = Upload::create(place(), Some(token.clone())).unwrap();
    first.write(&least).unwrap();
    // Like a thread that waits for the disk.
    let _open = first.file.try_clone().unwrap();
    drop(first);
    // Bytes of other writers do not count for the client.
    let aside = directory.path().join(token.file_name());
    let mut other = File::options().append(true).open(aside).unwrap();
    other.write_all(&[0; 100]).unwrap();
    drop(other);
    let other = Upload::resume(place(), &Token::new().unwrap());
    assert!(matches!(other, Err(UploadError::Unknown)));
    let mut second = Upload::resume(place(), &token).unwrap();
    assert_eq!(second.length(), LEAST_KEPT);
    second.write(b"45").unwrap();
    second.finish().unwrap();
    let whole = [&least[..], b"45"].concat();
    assert!(fs::read(directory.path().join("file")).unwrap() == whole);
    let gone = Upload::resume(place(), &token);
    assert!(matches!(gone, Err(UploadError::Unknown)));
    // A refused upload is not kept.
    let token = Token::new().unwrap();
    Upload::create(place(), Some(token.clone()))
        .unwrap()
        .forget();
    assert!(Upload::resume(place(), &token).is_err());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// After a crash of the system, the file is longer than its safe part, and the new server does
/// not know the upload.
#[test]
fn only_what_came_to_the_disk_is_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let token = Token::new().unwrap();
    let aside = directory.path().join(token.file_name());
    let note = directory.path().join(token.note_name());
    fs::write(&aside, b"123\0\0\0").unwrap();
    let resume = || Upload::resume(place(directory.path(), "file"), &token);
    assert!(matches!(resume(), Err(UploadError::Unknown)), "no note");
    fs::write(&note, format!("{:020}\n", 7)).unwrap();
    assert!(matches!(resume(), Err(UploadError::Unknown)), "shorter");
    fs::write(&note, format!("{:020}\n{:020}\n", 3, 5)).unwrap();
    assert!(matches!(resume(), Err(UploadError::Unknown)), "no owner");
    let dir = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
    let owner = || place(directory.path(), "file").owner(&token);
    let write = |length, announced| {
        let _ = fs::remove_file(&note);
        Notes::begin(&dir, token.clone(), announced, owner()).unwrap();
        let text = fs::read_to_string(&note).unwrap();
        let text = text.replacen(&format!("{:020}", 0), &format!("{length:020}"), 1);
        fs::write(&note, text).unwrap();
    };
    write(7, None);
    assert!(matches!(resume(), Err(UploadError::Unknown)), "shorter");
    write(3, None);
    assert_eq!(resume().unwrap().announced(), None);
    fs::write(&aside, b"123\0\0\0").unwrap();
    write(3, Some(5));
    let mut upload = resume().unwrap();
    assert_eq!((upload.length(), upload.announced()), (3, Some(5)));
    upload.write(b"45").unwrap();
    upload.finish().unwrap();
    assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"12345");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// Between the look and the rename of an upload, each further upload of the directory waits.
#[test]
fn no_upload_is_renamed_between_the_look_of_another_and_its_rename() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(directory.path().to_owned(), u64::MAX);
    let begin = |content: &[u8]| {
        let place = Place {
            uploads: uploads.clone(),
            ..place(directory.path(), "file")
        };
        let mut upload = Upload::create(place, None).unwrap();
        upload.write(content).unwrap();
        upload
    };
    let there = || fs::read(directory.path().join("file")).ok();
    let (first, second) = (begin(b"first"), begin(b"second"));
    let mut other = None;
    let look = || {
        other = Some(thread::spawn(|| second.finish().unwrap().1));
        thread::sleep(Duration::from_millis(50));
        assert_eq!(there(), None);
        Ok(())
    };
    let (_, is_new) = first.finish_if(true, look).unwrap();
    assert!(is_new && !other.unwrap().join().unwrap());
    assert_eq!(there().as_deref(), Some(&b"second"[..]));
}

#[test]
fn a_refused_file_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let begin = || {
        let token = Some(Token::new().unwrap());
        let mut upload = Upload::create(place(directory.path(), "file"), token).unwrap();
        upload.write(&vec![1; LEAST_KEPT as usize]).unwrap();
        upload
    };
    let refused = begin().finish_if(false, || Err(UploadError::OtherVersion));
    assert!(matches!(refused, Err(UploadError::OtherVersion)));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    fs::write(directory.path().join("file"), "12").unwrap();
    let refused = begin().finish_if(true, || Ok(()));
    assert!(matches!(refused, Err(UploadError::OtherVersion)));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// The name may have come from another program since the server's look.
#[cfg(target_os = "linux")]
#[test]
fn a_file_for_a_new_name_replaces_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let dir = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("aside"), "1").unwrap();
    rename_to_new(&dir, "aside", "new".as_ref()).unwrap();
    fs::write(path("aside"), "2").unwrap();
    let refused = rename_to_new(&dir, "aside", "new".as_ref());
    assert!(matches!(refused, Err(UploadError::OtherVersion)));
    assert_eq!(fs::read(path("new")).unwrap(), b"1");
    // The server's look was before the other program's change.
    let mut upload = Upload::create(place(directory.path(), "new"), None).unwrap();
    upload.write(b"3").unwrap();
    let refused = upload.finish_if(true, || Ok(()));
    assert!(matches!(refused, Err(UploadError::OtherVersion)));
    assert_eq!(fs::read(path("new")).unwrap(), b"1");
}

/// Otherwise a client could store more than its quota by replacing files of others.
#[test]
fn a_replaced_file_refills_no_quota() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(directory.path().to_owned(), u64::MAX);
    uploads.set_quota(NAME + 10);
    let store = |who: &str| {
        let place = Place {
            uploads: uploads.clone(),
            taker: Some(Taker::User(who.into())),
            ..place(directory.path(), "file")
        };
        let mut upload = Upload::create(place, None)?;
        upload.write(&[0; 10])?;
        upload.finish().map(|_| ())
    };
    for who in ["alice", "bob"] {
        store(who).unwrap();
    }
    for who in ["alice", "bob"] {
        assert!(matches!(store(who), Err(UploadError::Full)), "{who}");
    }
}

#[test]
fn names_and_bytes_count() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(directory.path().to_owned(), 2 * NAME + 10);
    let place = |name: &str| Place {
        uploads: uploads.clone(),
        ..place(directory.path(), name)
    };
    let begin = |name| Upload::create(place(name), None);
    let mut upload = begin("a").unwrap();
    upload.write(&[0; 10]).unwrap();
    let more = vec![0; NAME as usize + 1];
    assert!(matches!(upload.write(&more), Err(UploadError::Full)));
    upload.finish().unwrap();
    place("sub").make_directory().unwrap();
    assert!(matches!(begin("b"), Err(UploadError::Full)));
    let full = place("more").make_directory();
    assert!(matches!(full, Err(UploadError::Full)));
    // A complete upload counts in place of the replaced file. An abandoned upload does not
    // count.
    uploads.give_back(None, NAME);
    drop(begin("a").unwrap());
    begin("a").unwrap().finish().unwrap();
    drop(begin("c").unwrap());
    assert!(uploads.take_room(None, NAME + 10));
}

/// A client hears of a file that is too large before it sends the file.
#[test]
fn an_announced_length_counts_at_the_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(directory.path().to_owned(), 3 * NAME);
    uploads.set_quota(NAME + 10);
    let begin = |announced, who: Option<&str>| {
        let place = Place {
            uploads: uploads.clone(),
            taker: who.map(|who| Taker::User(who.into())),
            announced: Some(announced),
            ..place(directory.path(), "file")
        };
        Upload::create(place, None).map(drop)
    };
    for (announced, who, fits) in [
        (10, Some("alice"), true),
        (11, Some("alice"), false),
        (2 * NAME, None, true),
        (2 * NAME + 1, None, false),
        (u64::MAX, None, false),
    ] {
        let begun = begin(announced, who);
        let is_full = matches!(begun, Err(UploadError::Full));
        assert_eq!((begun.is_ok(), is_full), (fits, !fits), "{announced}");
    }
}

/// Otherwise a user with the token of another user could end the upload, and complete the file with
/// other bytes.
#[tokio::test]
async fn a_token_is_good_for_its_user_and_its_name_only() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(directory.path().to_owned(), u64::MAX);
    let user = |name: &str| Some(Taker::User(name.into()));
    let network = |address: [u8; 4]| Some(Taker::new(None, address.into()));
    let home = network([192, 0, 2, 1]);
    for (owner, others) in [
        (user("bob"), [user("alice"), home.clone(), None]),
        (home.clone(), [user("alice"), user("bob"), user("")]),
    ] {
        let place = |taker: &Option<Taker>, name: &str| Place {
            uploads: uploads.clone(),
            taker: taker.clone(),
            ..place(directory.path(), name)
        };
        let token = Token::new().unwrap();
        let mut first = Upload::create(place(&owner, "file"), Some(token.clone())).unwrap();
        first.write(&vec![b'1'; LEAST_KEPT as usize]).unwrap();
        let look = |taker: &Option<Taker>, name: &str, state: &str| {
            let refused = Upload::resume(place(taker, name), &token);
            assert!(
                matches!(refused, Err(UploadError::Unknown)),
                "{taker:?} {name} {state}"
            );
        };
        for other in &others {
            look(other, "file", "running");
        }
        look(&owner, "other", "running");
        // The running upload goes on.
        let taken = tokio::time::timeout(Duration::from_millis(10), first.taken()).await;
        assert!(taken.is_err());
        first.write(b"2").unwrap();
        drop(first);
        for other in &others {
            look(other, "file", "kept");
        }
        look(&owner, "other", "kept");
        // A client without credentials may come back from another address.
        let again = if owner == home {
            network([198, 51, 100, 1])
        } else {
            owner.clone()
        };
        let second = Upload::resume(place(&again, "file"), &token).unwrap();
        assert_eq!(second.length(), LEAST_KEPT + 1);
        second.forget();
    }
}

/// A hard link could otherwise make the server cut a foreign file.
#[cfg(unix)]
#[test]
fn a_file_with_a_further_name_is_not_resumed() {
    let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let token = Token::new().unwrap();
    let place = || place(directory.path(), "file");
    drop(
        Notes::begin(
            &place().directory,
            token.clone(),
            None,
            place().owner(&token),
        )
        .unwrap(),
    );
    let theirs = outside.path().join("theirs");
    fs::write(&theirs, "precious").unwrap();
    fs::hard_link(&theirs, directory.path().join(token.file_name())).unwrap();
    let refused = Upload::resume(place(), &token);
    assert!(matches!(refused, Err(UploadError::Unknown)));
    assert_eq!(fs::read(&theirs).unwrap(), b"precious");
}

/// Otherwise old files would give clients room beyond the limit, in the extreme a sparse file that
/// takes no room on the disk.
#[test]
fn only_files_that_this_server_has_counted_give_room() {
    let directory = tempfile::tempdir().unwrap();
    let total = 3 * NAME + 10;
    let uploads = Uploads::new(directory.path().to_owned(), total);
    let store = |name: &str, length: usize| {
        let place = Place {
            uploads: uploads.clone(),
            ..place(directory.path(), name)
        };
        let mut upload = Upload::create(place, None)?;
        upload.write(&vec![0; length])?;
        upload.finish().map(drop)
    };
    for name in ["old", "older"] {
        let old = File::create(directory.path().join(name)).unwrap();
        old.set_len(20 << 20).unwrap();
    }
    store("old", 10).unwrap();
    store("older", 0).unwrap();
    // The replaced files give no room, so the rest is the last name.
    assert!(matches!(store("new", 1), Err(UploadError::Full)));
    for _ in 0..3 {
        store("older", 0).unwrap();
    }
    store("old", 0).unwrap();
    // The room never exceeds the limit.
    uploads.give_back(None, u64::MAX);
    assert!(uploads.take_room(None, total) && !uploads.take_room(None, 1));
}

/// A job may move a directory away while files come, and make a new directory.
#[test]
fn a_file_is_stored_only_where_its_path_leads_at_the_end() {
    let served = tempfile::tempdir().unwrap();
    let path = |name: &str| served.path().join(name);
    let uploads = Uploads::new(served.path().to_owned(), u64::MAX);
    let begin = || {
        let place = Place {
            path: "in".into(),
            uploads: uploads.clone(),
            ..Place::new(&path("in"), "file".as_ref()).unwrap()
        };
        let token = Some(Token::new().unwrap());
        let mut upload = Upload::create(place, token).unwrap();
        upload.write(&vec![1; LEAST_KEPT as usize]).unwrap();
        upload
    };
    fs::create_dir(path("in")).unwrap();
    let (moved, gone, stays) = (begin(), begin(), begin());
    fs::rename(path("in"), path("out")).unwrap();
    let refused = gone.finish();
    assert!(
        matches!(refused, Err(UploadError::NoDirectory)),
        "{refused:?}"
    );
    fs::create_dir(path("in")).unwrap();
    let refused = moved.finish();
    assert!(
        matches!(refused, Err(UploadError::NoDirectory)),
        "{refused:?}"
    );
    fs::remove_dir(path("in")).unwrap();
    fs::rename(path("out"), path("in")).unwrap();
    stays.finish().unwrap();
    let names = fs::read_dir(path("in")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
}
