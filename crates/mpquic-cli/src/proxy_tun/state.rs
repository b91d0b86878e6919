//! What a client with a device has changed, on disk, so that it can be undone by another process.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::resolver::Replaced;

/// What was changed on the machine, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The device.
    pub(crate) name: String,
    /// The process that has it.
    pub(crate) process: u32,
    /// The routing table that leads to it.
    pub(crate) table: u32,
    /// The networks of its addresses.
    pub(crate) sources: Vec<IpNet>,
    /// What is routed to it.
    pub(crate) networks: Vec<IpNet>,
    /// The resolver's configuration, if it was replaced.
    pub(crate) resolver: Option<Replaced>,
}

/// A file with a state.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
}

/// Where states are: the first directory that can be used. Which one of them a client used depends on
/// its privileges.
pub(crate) fn directories() -> Vec<PathBuf> {
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let all = std::iter::once(PathBuf::from("/run")).chain(of_user);
    all.map(|directory| directory.join("mpquic")).collect()
}

/// The end of the names of this network namespace's files: others have devices of their own.
fn suffix() -> io::Result<String> {
    Ok(format!(
        ".{}.json",
        fs::metadata("/proc/self/ns/net")?.ino()
    ))
}

impl StateFile {
    /// Makes the file of a device, which must not be there yet.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if it is.
    pub(crate) fn create(directories: &[PathBuf], state: &State) -> io::Result<Self> {
        let name = state.name.clone() + &suffix()?;
        let mut last = io::ErrorKind::NotFound.into();
        for directory in directories {
            // The resolver's configuration is nobody's secret, but who could write here could undo
            // anything.
            let made = (fs::DirBuilder::new().mode(0o755).recursive(true)).create(directory);
            let path = directory.join(&name);
            let file = made.and_then(|()| {
                (OpenOptions::new().write(true).create_new(true))
                    .mode(0o644)
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
        let entries = directories.iter().filter_map(|d| fs::read_dir(d).ok());
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

    pub(crate) fn read(&self) -> io::Result<State> {
        Ok(serde_json::from_str(&fs::read_to_string(&self.path)?)?)
    }

    /// Replaces the state, before what it says is done.
    pub(crate) fn write(&self, state: &State) -> io::Result<()> {
        let text = serde_json::to_string(state)?;
        let next = self.path.with_extension("new");
        let mut file = fs::File::create(&next)?;
        file.write_all(text.as_bytes())?;
        fs::rename(next, &self.path)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    pub(crate) fn state(name: &str) -> State {
        State {
            name: name.to_owned(),
            process: 7,
            table: 443_001,
            sources: vec!["198.18.0.1/30".parse().unwrap()],
            networks: vec!["0.0.0.0/0".parse().unwrap()],
            resolver: None,
        }
    }

    /// In the first directory that can be used, once, and for others to read but not to write.
    #[test]
    fn a_device_has_one_file() {
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
        // What the user takes away besides is taken away.
        assert_eq!(mode(&places[1]) & !0o755, 0);
        assert_eq!(mode(made.path()) & !0o644, 0);
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
        assert_eq!(directories[0], Path::new("/run/mpquic"));
        assert!(directories.iter().all(|path| path.ends_with("mpquic")));
    }

    /// Whatever the order in which they were made, and that of the file system.
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

    #[test]
    fn a_state_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile {
            path: directory.path().join("tun0.1.json"),
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
        assert!(file.path().ends_with("tun0.1.json"));
        file.remove().unwrap();
        assert!(file.read().is_err() && file.remove().is_err());
        let suffix = suffix().unwrap();
        assert!(
            suffix.starts_with('.') && suffix.ends_with(".json"),
            "{suffix}"
        );
    }
}
