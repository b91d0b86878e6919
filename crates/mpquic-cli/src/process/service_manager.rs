//! Messages to a service manager: systemd, with `Type=notify`.

/// Reports that the service is ready, if a service manager listens.
pub(crate) fn ready() {
    notify("READY=1\n");
}

/// Reports that a child of this process is the service from now on.
pub(crate) fn is_main(child: u32) {
    notify(&format!("MAINPID={child}\n"));
}

#[cfg_attr(
    not(target_os = "linux"),
    expect(unused, reason = "only systemd listens")
)]
fn notify(message: &str) {
    #[cfg(target_os = "linux")]
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = tell(&socket, message.as_bytes())
    {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}

/// Sends a message to a socket: a path, or with an @ in front an abstract name.
#[cfg(target_os = "linux")]
fn tell(socket: &std::ffi::OsStr, message: &[u8]) -> std::io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let address = match socket.as_encoded_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let from = UnixDatagram::unbound()?;
    from.send_to_addr(message, &address).map(|_| ())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    #[test]
    fn managers_listen_on_paths_and_on_names() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("mpquic-test-{}", std::process::id());
        let of_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (address, socket) in [
            (
                SocketAddr::from_pathname(&path).unwrap(),
                path.as_os_str().to_owned(),
            ),
            (of_name, format!("@{name}").into()),
        ] {
            let manager = UnixDatagram::bind_addr(&address).unwrap();
            tell(&socket, b"READY=1\n").unwrap();
            let mut heard = [0; 20];
            let length = manager.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"READY=1\n");
        }
        assert!(tell("/nowhere/at/all".as_ref(), b"x").is_err());
    }
}
