//! Users of `mpquic serve`, and the credentials of `mpquic get` and `mpquic put`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

#[cfg(unix)]
use crate::ending::signal;
use crate::http3_get::Peculiar;
use crate::{Server, assert_exit, directories, names, run, stderr, stdout, wait_until};

/// A server with users, and their files of credentials.
struct World {
    served: tempfile::TempDir,
    state: tempfile::TempDir,
    server: Server,
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

impl World {
    /// A server of a directory with `file`, `pub/file` and `alice/file`, for alice, bob and a
    /// token.
    fn new(options: &[&str]) -> Self {
        let (served, state) = directories(b"content");
        for directory in ["pub", "alice"] {
            fs::create_dir(served.path().join(directory)).unwrap();
            fs::write(served.path().join(directory).join("file"), "content").unwrap();
        }
        let users = state.path().join("users");
        let text = "# users\nbasic alice:wonderland\nbasic bob:builder\nbearer abc\n";
        fs::write(&users, text).unwrap();
        let users = users.to_str().unwrap().to_owned();
        let options = [&["--credentials", &users][..], options].concat();
        let server = Server::start(served.path(), &options);
        for (name, credential) in [
            ("alice", "basic alice:wonderland"),
            ("bob", "basic bob:builder"),
            ("token", "bearer abc"),
            ("wrong", "basic alice:looking-glass"),
        ] {
            let line = format!("{} {credential}\n", server.address);
            write_private(&state.path().join(name), &line);
        }
        fs::write(state.path().join("new"), "new content").unwrap();
        Self {
            served,
            state,
            server,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    /// Runs `get` or `put` for a path with somebody's credentials; nobody has none.
    fn run(&self, command: &str, who: &str, path: &str) -> Output {
        let (url, file, new) = (self.server.url(path), self.at(who), self.at("new"));
        let mut line = vec![command, "--pin", &self.server.pin, &url, "--quiet"];
        match command {
            "get" => line.extend(["-o", "-"]),
            _ => line.push(new.to_str().unwrap()),
        }
        if who != "nobody" {
            line.extend(["--credentials", file.to_str().unwrap()]);
        }
        run(&line)
    }

    #[track_caller]
    fn expect(&self, command: &str, who: &str, path: &str, refusal: Option<&str>) {
        let output = self.run(command, who, path);
        match refusal {
            None => assert_exit(&output, 0),
            Some(refusal) => {
                assert_exit(&output, 7);
                assert!(stderr(&output).contains(refusal), "{output:?}");
                assert_eq!(stdout(&output), "");
            }
        }
    }
}

const UNKNOWN: Option<&str> = Some("401 Unauthorized");
const FORBIDDEN: Option<&str> = Some("403 Forbidden");

#[test]
fn users_read_and_write_by_their_rights() {
    let rules = ["anybody:r:/pub/", "users:r:/", "alice:rw:/alice/"];
    let rules = rules.iter().flat_map(|rule| ["--allow", *rule]);
    let options: Vec<_> = ["--allow-put"].into_iter().chain(rules).collect();
    let world = World::new(&options);
    for (command, who, path, refusal) in [
        ("get", "nobody", "/pub/file", None),
        ("get", "nobody", "/file", UNKNOWN),
        ("get", "nobody", "/", UNKNOWN),
        ("get", "nobody", "/missing", UNKNOWN),
        ("get", "nobody", "/pub/../file", UNKNOWN),
        ("get", "wrong", "/file", UNKNOWN),
        ("get", "alice", "/file", None),
        ("get", "bob", "/alice/file", None),
        ("get", "token", "/file", None),
        ("put", "nobody", "/pub/new", UNKNOWN),
        ("put", "nobody", "/alice/new", UNKNOWN),
        ("put", "wrong", "/alice/new", UNKNOWN),
        ("put", "bob", "/alice/new", FORBIDDEN),
        ("put", "token", "/alice/new", FORBIDDEN),
        ("put", "alice", "/new", FORBIDDEN),
        ("put", "alice", "/alice/new", None),
    ] {
        println!("{command} {who} {path}");
        world.expect(command, who, path, refusal);
    }
    let address = world.server.address;
    let other = world.at("other");
    write_private(&other, "host:1 bearer abc\n");
    for (who, path, told) in [
        (
            "nobody",
            "/file",
            "--credentials FILE sends the password or token of a user".to_owned(),
        ),
        (
            "other",
            "/file",
            format!("{} has no line for {address}", other.display()),
        ),
        (
            "wrong",
            "/file",
            format!("of {address} in {}", world.at("wrong").display()),
        ),
    ] {
        // More wrong credentials would have to wait.
        for command in ["get", "put"] {
            let output = world.run(command, who, path);
            assert!(stderr(&output).contains(&told), "{output:?}");
        }
    }
    let new = fs::read(world.served.path().join("alice/new")).unwrap();
    assert_eq!(new, b"new content");
    assert_eq!(names(&world.served.path().join("pub")), ["file"]);
    assert_eq!(names(world.served.path()), ["alice", "file", "pub"]);
    // HTTP/0.9 shows no credentials.
    for (path, code) in [("/pub/file", 0), ("/file", 7)] {
        let more = ["-o", "-", "-q", "--alpn", "hq-interop"];
        assert_exit(&world.server.get(path, &more), code);
    }
}

/// Without rules, users have all rights. Nobody else writes, and nobody writes without --allow-put.
#[test]
fn only_users_write_where_there_are_users() {
    let world = World::new(&["--allow-put"]);
    for (command, who, path, refusal) in [
        ("get", "nobody", "/pub/file", UNKNOWN),
        ("put", "nobody", "/pub/new", UNKNOWN),
        ("put", "bob", "/alice/new", None),
    ] {
        world.expect(command, who, path, refusal);
    }
    assert_eq!(names(&world.served.path().join("pub")), ["file"]);
    let world = World::new(&[]);
    for who in ["nobody", "alice"] {
        world.expect("put", who, "/new", Some("405 Method Not Allowed"));
    }
    let read_only = World::new(&["--allow-put", "--allow", "anybody:r:/"]);
    read_only.expect("get", "nobody", "/file", None);
    read_only.expect("put", "nobody", "/new", UNKNOWN);
    read_only.expect("put", "alice", "/new", FORBIDDEN);
    let directory = world.served.path().to_str().unwrap();
    for (rule, told) in [
        ("anybody:w:/", "--allow-put"),
        ("carol:r:/", "a user of --credentials"),
        ("users:r:/", "--credentials or --client-ca"),
    ] {
        let output = run(&["serve", directory, "--allow", rule]);
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(told), "{output:?}");
    }
}

/// Each user has a quota, and the error names it.
#[test]
fn a_user_stores_as_much_as_its_quota() {
    let world = World::new(&["--allow-put", "--put-quota", "1"]);
    fs::write(world.at("new"), vec![7; 600_000]).unwrap();
    let full = Some("507 Insufficient Storage");
    world.expect("put", "alice", "/a", None);
    world.expect("put", "alice", "/b", full);
    // A replaced file, even an own one, frees nothing.
    world.expect("put", "alice", "/a", full);
    world.expect("put", "bob", "/b", None);
    assert_eq!(
        names(world.served.path()),
        ["a", "alice", "b", "file", "pub"]
    );
    let directory = world.served.path().to_str().unwrap();
    let output = run(&["serve", directory, "--put-quota", "1"]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("--allow-put"), "{output:?}");
}

/// A faulty file changes nothing; a removed user loses all rights.
#[cfg(unix)]
#[test]
fn users_are_read_again() {
    let world = World::new(&["--allow", "alice:r:/", "--allow", "bob:r:/"]);
    world.expect("get", "alice", "/file", None);
    let users = world.at("users");
    fs::write(&users, "nonsense\n").unwrap();
    signal(&world.server.child, "-HUP");
    world.expect("get", "alice", "/file", None);
    fs::write(&users, "basic bob:builder\n").unwrap();
    signal(&world.server.child, "-HUP");
    let code = |who| world.run("get", who, "/file").status.code();
    wait_until("the users", || code("alice") == Some(7));
    assert_eq!(code("bob"), Some(0));
}

#[cfg(unix)]
#[test]
fn credentials_must_be_private() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new(&["--allow-put"]);
    let file = world.at("alice");
    for mode in [0o644, 0o640] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        for command in ["get", "put"] {
            let output = world.run(command, "alice", "/file");
            assert_exit(&output, 2);
            let told = stderr(&output);
            assert!(
                told.contains("chmod 600") && !told.contains("wonderland"),
                "{told}"
            );
        }
    }
    let new = fs::read(world.served.path().join("file")).unwrap();
    assert_eq!(new, b"content");
}

/// Not even where the file has a credential for the other host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirection_takes_no_credentials_to_another_host() {
    let server = Peculiar::start();
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("credentials");
    let port = server.address.port();
    let text = format!("127.0.0.1:{port} bearer one\nlocalhost:{port} bearer two\n");
    write_private(&file, &text);
    let head = |path: &str| {
        let output = server.get(
            path,
            &["-X", "HEAD", "--credentials", file.to_str().unwrap()],
        );
        assert_exit(&output, 0);
        stdout(&output)
    };
    let seen = |text: String| {
        let mut lines = text.lines().rev();
        lines.find_map(|line| line.strip_prefix("x-authorization: ").map(str::to_owned))
    };
    assert_eq!(seen(head("/echo")).unwrap(), "Bearer one");
    assert_eq!(seen(head("/here")).unwrap(), "Bearer one");
    assert_eq!(seen(head("/elsewhere")).unwrap(), "none");
}
