//! `-R` of `mpquic proxy client`: ports of the proxy that lead to targets near the client.

use std::convert::Infallible;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use futures_util::future::join_all;
use mpquic_proxy::{Client, NoFlow, Reverse, Target};

use crate::process::screen;
use crate::text::url;

/// Times between tries to open a port.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A port of the proxy that leads to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReverseForward(pub(crate) Reverse);

impl FromStr for ReverseForward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected [ADDR:]PORT:HOST:PORT, such as 8443:192.168.1.5:443";
        // From the end: the port, and before it the host, which may stand in brackets.
        let (before, _) = text.rsplit_once(':').ok_or(EXPECTED)?;
        let host = if before.ends_with(']') {
            before.rfind('[')
        } else {
            before.rfind(':').map(|colon| colon + 1)
        };
        let host = host.ok_or(EXPECTED)?;
        let target = url::ascii(&text[host..]).parse::<Target>();
        let target = target.map_err(|error| format!("{error}; {EXPECTED}"))?;
        let at = text[..host].strip_suffix(':').ok_or(EXPECTED)?;
        let (address, port) = match at.rsplit_once(':') {
            None | Some(("*", _)) => (None, at.rsplit(':').next().unwrap_or(at)),
            Some((address, port)) => {
                let bracketed = address.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
                let address: IpAddr = match bracketed {
                    Some(address) => address.and_then(|address| address.parse().ok()),
                    None if address.contains(':') => None,
                    None => address.parse().ok(),
                }
                .ok_or(EXPECTED)?;
                (Some(address), port)
            }
        };
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(EXPECTED)?;
        Ok(Self(Reverse {
            address,
            port,
            target,
        }))
    }
}

/// Keeps the ports open until dropped.
pub(crate) async fn keep_open(client: &Client, all: &[ReverseForward]) -> Infallible {
    join_all(all.iter().map(|forward| keep_one(client, &forward.0))).await;
    std::future::pending().await
}

async fn keep_one(client: &Client, forward: &Reverse) {
    let Reverse { port, target, .. } = forward;
    let (mut is_told, mut refused, mut pause) = (false, None, FIRST_PAUSE);
    loop {
        client.connected().await;
        let mut has_opened = false;
        let opened = || {
            has_opened = true;
            if !std::mem::replace(&mut is_told, true) {
                screen::print(format_args!("tcp to {target} on port {port} of the proxy"));
            }
        };
        let ended = client.reverse(forward, opened).await;
        if has_opened {
            (refused, pause) = (None, FIRST_PAUSE);
        }
        if let Err(error) = ended
            && refused.replace(error) != Some(error)
            && !matches!(error, NoFlow::Unconnected | NoFlow::Broken)
        {
            tracing::warn!("no port {port} of the proxy for {target}: {}", why(error));
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// The reason for people.
fn why(error: NoFlow) -> String {
    let NoFlow::Refused(status) = error else {
        return error.to_string();
    };
    match status.as_u16() {
        403 => "the proxy does not allow you this port; its operator allows ports with --allow-reverse, and \
                ports below 1024 need privileges there"
            .to_owned(),
        407 => "the proxy wants other credentials".to_owned(),
        409 => "another user or program has this port".to_owned(),
        422 => "the proxy has no such address".to_owned(),
        429 => "you have as many ports or flows there as a user may have".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_the_proxy_are_read_as_ssh_does() {
        let read = |text: &str| {
            let Reverse {
                address,
                port,
                target,
            } = text.parse::<ReverseForward>().unwrap().0;
            let address = address.map_or("all".to_owned(), |address| address.to_string());
            format!("{address} {port} {target}")
        };
        assert_eq!(read("80:host:81"), "all 80 host:81");
        assert_eq!(read("*:80:192.168.1.5:81"), "all 80 192.168.1.5:81");
        assert_eq!(read("192.0.2.1:80:host:81"), "192.0.2.1 80 host:81");
        assert_eq!(read("[::1]:80:[fd00::1]:81"), "::1 80 [fd00::1]:81");
        for wrong in [
            "",
            "80",
            "80:host",
            "0:host:1",
            "80:host:0",
            "x:80:host:1",
            "::1:80:host:1",
            "80::1",
            "+80:host:1:",
            "99999:host:1",
        ] {
            assert!(wrong.parse::<ReverseForward>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn refusals_are_explained() {
        let told = |status| why(NoFlow::Refused(http::StatusCode::from_u16(status).unwrap()));
        assert!(told(403).contains("--allow-reverse"));
        assert!(told(409).contains("another user or program"));
        assert_eq!(
            why(NoFlow::NoReverse),
            "the proxy forwards no ports to clients"
        );
    }
}
