//! Writes two self-signed certificates for loopback, each with its key: `cert.pem` and `key.pem`,
//! and `long-cert.pem` and `long-key.pem`, which take several datagrams.

use std::path::PathBuf;
use std::process::ExitCode;

use mpquic_interop_peers::Error;

/// Names that make a certificate long.
const NAMES: usize = 200;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: certificates DIR");
        return ExitCode::from(2);
    };
    let write = |names, certificate, key| -> Result<(), Error> {
        let made = rcgen::generate_simple_self_signed(names)?;
        std::fs::write(directory.join(certificate), made.cert.pem())?;
        std::fs::write(directory.join(key), made.signing_key.serialize_pem())?;
        Ok(())
    };
    let mut names = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
    let written = write(names.clone(), "cert.pem", "key.pem").and_then(|()| {
        names.extend((0..NAMES).map(|number| format!("name-{number}.of-a-long-certificate.test")));
        write(names, "long-cert.pem", "long-key.pem")
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
