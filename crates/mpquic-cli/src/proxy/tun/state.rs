//! The changes of a client with a device, on the disk, so that another process can undo them.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::kill_switch::KillSwitch;
use super::name::parse_name;
use super::resolver::Replaced;

/// Changes on the machine, done or soon to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The device.
    pub(crate) name: String,
    /// The process that owns the device.
    pub(crate) process: u32,
    /// The routing table of the device.
    pub(crate) table: u32,
    /// The networks of the device's addresses.
    pub(crate) sources: Vec<IpNet>,
    /// The networks routed to the device.
    pub(crate) networks: Vec<IpNet>,
    /// Networks that keep the machine's other routes.
    #[serde(default)]
    pub(crate) kept: Vec<IpNet>,
    /// The replaced configuration of the resolver.
    pub(crate) resolver: Option<Replaced>,
    /// The closed kill switch.
    #[serde(default)]
    pub(crate) kill_switch: Option<KillSwitch>,
}

impl State {
    /// True if a closed kill switch also stops packets to local networks.
    pub(crate) fn is_strict(&self) -> bool {
        (self.kill_switch.as_ref()).is_some_and(|kill_switch| kill_switch.lan.is_none())
    }

    /// The part that remains after the client: a closed kill switch.
    pub(crate) fn left(&self) -> Option<Self> {
        let kill_switch = self.kill_switch.clone()?;
        Some(Self {
            sources: Vec::new(),
            networks: Vec::new(),
            kept: Vec::new(),
            resolver: None,
            kill_switch: Some(kill_switch),
            ..self.clone()
        })
    }
}

/// A file with a state.
#[derive(Debug, Clone)]
pub(crate) struct StateFile {
    path: PathBuf,
}

/// Directories for states, the first usable directory first. The privileges of a client decide
/// which directory it uses. `/run/mpquic` belongs to the user of the services in packaging/systemd,
/// who must not control changes by root.
pub(crate) fn directories() -> Vec<PathBuf> {
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let all = std::iter::once(PathBuf::from("/run")).chain(of_user);
    all.map(|directory| directory.join("mpquic-tun")).collect()
}

/// The suffix of file names for this network namespace: other namespaces have devices of their own.
fn suffix() -> io::Result<String> {
    Ok(format!(
        ".{}.json",
        fs::metadata("/proc/self/ns/net")?.ino()
    ))
}

/// Checks the owner and the permissions of a state or its directory. Root changes the machine as a
/// state says, so only root or this user may be able to write or replace a state.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`] if another user could.
fn check(metadata: &fs::Metadata, path: &Path) -> io::Result<()> {
    const BY_OTHERS: u32 = 0o022;
    const STICKY: u32 = 0o1000;

    let us = fs::metadata("/proc/self")?.uid();
    let is_shared = metadata.is_dir() && metadata.mode() & STICKY != 0;
    let is_writable = metadata.mode() & BY_OTHERS != 0 && !is_shared;
    if [0, us].contains(&metadata.uid()) && !is_writable {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} can be changed by other users", path.display()),
        ))
    }
}

/// Checks a directory and its parents.
fn check_directory(directory: &Path) -> io::Result<()> {
    let real = fs::canonicalize(directory)?;
    (real.ancestors()).try_for_each(|path| check(&fs::symlink_metadata(path)?, path))
}

/// Takes the rights of other users away. Versions before had states that every user could read.
/// The path has passed [`check`], so nobody else can put another file there.
fn make_private(path: &Path) {
    let tighten = || {
        let metadata = fs::metadata(path)?;
        let mode = metadata.mode() & 0o700;
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if is_ours && metadata.mode() & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        io::Result::Ok(())
    };
    if let Err(error) = tighten() {
        tracing::warn!("other users can read {}: {error}", path.display());
    }
}

impl StateFile {
    /// Creates the state file of a device.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if the device has a state file.
    pub(crate) fn create(directories: &[PathBuf], state: &State) -> io::Result<Self> {
        let name = state.name.clone() + &suffix()?;
        let mut last = io::ErrorKind::NotFound.into();
        for directory in directories {
            // A state has the content of the resolver's file, which other users may be unable to
            // read. A user who could write here could change any part of the machine.
            let made = (fs::DirBuilder::new().mode(0o700).recursive(true)).create(directory);
            let path = directory.join(&name);
            let safe = made.and_then(|()| check_directory(directory));
            if safe.is_ok() {
                make_private(directory);
            }
            let file = safe.and_then(|()| {
                (OpenOptions::new().write(true).create_new(true))
                    .mode(0o600)
                    .open(&path)
            });
            match file {
                Ok(_) => {
                    let file = Self { path };
                    file.write(state)?;
                    return Ok(file);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The files of this network namespace.
    pub(crate) fn all(directories: &[PathBuf]) -> io::Result<Vec<Self>> {
        let suffix = suffix()?;
        let safe = directories.iter().filter(|d| match check_directory(d) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!("{error}: what is in it is left alone");
                false
            }
            Ok(()) => {
                make_private(d);
                true
            }
            Err(_) => false,
        });
        let entries = safe.filter_map(|d| fs::read_dir(d).ok());
        let paths = entries.flatten().flatten().map(|entry| entry.path());
        let ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.ends_with(&suffix))
        };
        let mut paths: Vec<_> = paths.filter(ours).collect();
        paths.sort();
        Ok(paths.into_iter().map(|path| Self { path }).collect())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True for the state file of this device.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        let suffix = suffix().unwrap_or_default();
        self.path.file_name() == Some((name.to_owned() + &suffix).as_ref())
    }

    pub(crate) fn read(&self) -> io::Result<State> {
        let before = fs::symlink_metadata(&self.path)?;
        let mut file = fs::File::open(&self.path)?;
        let metadata = file.metadata()?;
        let is_itself = (before.dev(), before.ino()) == (metadata.dev(), metadata.ino());
        if !is_itself || !metadata.is_file() {
            let told = format!("{} is no file", self.path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, told));
        }
        check(&metadata, &self.path)?;
        make_private(&self.path);
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let state: State = serde_json::from_str(&text)?;
        match parse_name(&state.name) {
            Ok(name) if self.is_of(&name) => Ok(state),
            _ => {
                let told = format!("{} is that of another device", self.path.display());
                Err(io::Error::new(io::ErrorKind::InvalidData, told))
            }
        }
    }

    /// Writes the state, before the changes.
    pub(crate) fn write(&self, state: &State) -> io::Result<()> {
        let text = serde_json::to_string(state)?;
        let next = self.path.with_extension("new");
        // Removes the rest of an interrupted write. A link is not followed, and an existing file
        // not overwritten.
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&next)?;
        file.write_all(text.as_bytes())?;
        fs::rename(next, &self.path)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::kill_switch::tests::kill_switch;
    use super::*;

    pub(crate) fn state(name: &str) -> State {
        State {
            name: name.to_owned(),
            process: 7,
            table: 443_001,
            sources: vec!["198.18.0.1/30".parse().unwrap()],
            networks: vec!["0.0.0.0/0".parse().unwrap()],
            kept: Vec::new(),
            resolver: None,
            kill_switch: None,
        }
    }

    /// A state of an earlier version has neither kept routes nor a kill switch.
    #[test]
    fn states_of_earlier_versions_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let places = [directory.path().to_owned()];
        let file = StateFile::create(&places, &state("tun0")).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        let earlier = text
            .replace(r#""kept":[],"#, "")
            .replace(r#","kill_switch":null"#, "");
        assert!(
            !earlier.contains("kept") && !earlier.contains("kill"),
            "{earlier}"
        );
        fs::write(file.path(), earlier).unwrap();
        assert_eq!(file.read().unwrap(), state("tun0"));
    }

    /// The other changes are undone before.
    #[test]
    fn a_kill_switch_is_left_alone() {
        assert_eq!(state("tun0").left(), None);
        let mut closed = state("tun0");
        closed.kill_switch = Some(kill_switch());
        let left = closed.left().unwrap();
        assert_eq!(left.kill_switch, closed.kill_switch);
        assert!(left.networks.is_empty() && left.sources.is_empty());
        assert_eq!((left.name, left.table), (closed.name, closed.table));
    }

    /// The first usable directory gets one state file, which other users can neither read nor
    /// write.
    #[test]
    fn device_has_one_state_file() {
        let root = tempfile::tempdir().unwrap();
        let unusable = PathBuf::from("/dev/null/mpquic");
        let places = [
            unusable.clone(),
            root.path().join("a/b"),
            root.path().join("c"),
        ];
        let made = StateFile::create(&places, &state("tun1")).unwrap();
        assert_eq!(made.read().unwrap(), state("tun1"));
        assert!(made.path().starts_with(&places[1]) && !places[2].exists());
        let name = format!("tun1{}", suffix().unwrap());
        assert!(made.path().ends_with(name));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        // The umask may remove further permissions.
        assert_eq!(mode(&places[1]) & !0o700, 0);
        assert_eq!(mode(made.path()) & !0o600, 0);
        let again = StateFile::create(&places, &state("tun1")).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        StateFile::create(&places, &state("tun0")).unwrap();
        StateFile::create(&places[2..], &state("tun2")).unwrap();
        fs::write(places[1].join("tun5.1.json"), "of another namespace").unwrap();
        let names = |places: &[PathBuf]| {
            let files = StateFile::all(places).unwrap().into_iter();
            files
                .map(|file| file.read().unwrap().name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&places), ["tun0", "tun1", "tun2"]);
        assert_eq!(names(&places[2..]), ["tun2"]);
        assert!(names(&places[..1]).is_empty());
        assert!(StateFile::create(&[unusable], &state("tun1")).is_err());
        let directories = directories();
        assert_eq!(directories[0], Path::new("/run/mpquic-tun"));
        assert!(directories.iter().all(|path| path.ends_with("mpquic-tun")));
    }

    /// The order of creation and the order of the file system make no difference.
    #[test]
    fn devices_are_in_the_order_of_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let places = [directory.path().to_owned()];
        for number in [5, 0, 9, 2, 7, 4, 1, 8, 3, 6] {
            let state = state(&format!("tun{number}"));
            StateFile::create(&places, &state).unwrap();
        }
        let files = StateFile::all(&places).unwrap().into_iter();
        let names: Vec<_> = files.map(|file| file.read().unwrap().name).collect();
        assert_eq!(
            names,
            (0..10).map(|n| format!("tun{n}")).collect::<Vec<_>>()
        );
    }

    /// Files that other users can write are ignored.
    #[test]
    fn states_writable_by_others_are_ignored() {
        let root = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let place = root.path().join("tun");
        let places = [place.clone()];
        let file = StateFile::create(&places, &state("tun0")).unwrap();
        let count = || StateFile::all(&places).unwrap().len();
        assert_eq!(count(), 1);
        for directory in [&*place, root.path()] {
            open(directory, 0o777);
            assert_eq!(count(), 0);
            let failure = StateFile::create(&places, &state("tun1")).unwrap_err();
            assert_eq!(failure.kind(), io::ErrorKind::PermissionDenied);
            open(directory, 0o755);
        }
        open(file.path(), 0o666);
        assert_eq!(
            file.read().unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        open(file.path(), 0o644);
        assert!(file.read().is_ok());
        // States of other devices and invalid names are ignored.
        let as_other = place.join(format!("tun1{}", suffix().unwrap()));
        fs::copy(file.path(), &as_other).unwrap();
        let other = StateFile {
            path: as_other.clone(),
        };
        assert_eq!(other.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::remove_file(&as_other).unwrap();
        std::os::unix::fs::symlink(file.path(), &as_other).unwrap();
        assert_eq!(
            other.read().unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        // A link in place of the temporary file of the next state.
        let victim = root.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, file.path().with_extension("new")).unwrap();
        file.write(&state("tun0")).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert!(file.read().is_ok());
    }

    /// Earlier versions made states that every user could read.
    #[test]
    fn states_become_private() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("tun");
        let places = [place.clone()];
        let file = StateFile::create(&places, &state("tun0")).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        set(&place, 0o755);
        set(file.path(), 0o644);
        StateFile::all(&places).unwrap();
        assert_eq!(mode(&place), 0o700);
        file.read().unwrap();
        assert_eq!(mode(file.path()), 0o600);
        set(&place, 0o755);
        set(file.path(), 0o644);
        StateFile::create(&places, &state("tun1")).unwrap();
        file.write(&state("tun0")).unwrap();
        assert_eq!((mode(&place), mode(file.path())), (0o700, 0o600));
    }

    #[test]
    fn a_state_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile {
            path: directory.path().join(format!("tun0{}", suffix().unwrap())),
        };
        let mut state = state("tun0");
        assert!(file.read().is_err());
        for process in [7, 8] {
            state.process = process;
            file.write(&state).unwrap();
            assert_eq!(file.read().unwrap(), state);
            let files = fs::read_dir(directory.path()).unwrap();
            assert_eq!(files.count(), 1, "nothing but the file");
        }
        file.remove().unwrap();
        assert!(file.read().is_err() && file.remove().is_err());
        let suffix = suffix().unwrap();
        assert!(
            suffix.starts_with('.') && suffix.ends_with(".json"),
            "{suffix}"
        );
    }
}
