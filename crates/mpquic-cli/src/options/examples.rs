//! Examples for the help of commands.

pub(crate) const SERVE: &str = "\
Examples:
  Serve a directory, with a certificate that is made when first needed, and print what to pin:
    mpquic serve photos
  For browsers, too, with a certificate of an authority:
    mpquic serve site --listen [::]:443 --alt-svc --cert chain.pem --key key.pem
  Take files of up to 100 MiB:
    mpquic serve inbox --allow-put --max-put-size 100
  Answer `mpquic perf`:
    mpquic serve --perf";

pub(crate) const GET: &str = "\
Examples:
  Fetch a file over every usable interface:
    mpquic get https://example.org/big.iso
  Over two of them, and over a third only while these do not work:
    mpquic get https://example.org/big.iso --local eth0 --local wlan0 --local wwan0 --backup wwan0
  From a server with a certificate of its own, which `mpquic serve` prints:
    mpquic get https://192.0.2.7:4433/big.iso --first-use
  Go on where an earlier download ended:
    mpquic get --continue https://example.org/big.iso
  A directory with all that is in it:
    mpquic get -r https://example.org/photos/";

pub(crate) const PUT: &str = "\
Examples:
  Send two files to a directory on a server:
    mpquic put https://192.0.2.7:4433/inbox/ a.jpg b.jpg --first-use
  A directory with all that is in it, at no more than 20 Mbit/s:
    mpquic put -r --rate 20M https://192.0.2.7:4433/inbox/ photos";

pub(crate) const PERF: &str = "\
Examples:
  Latency, download and upload, with `mpquic serve --perf` on the other side:
    mpquic perf 192.0.2.7 --first-use
  Requests per second, 50 at a time:
    mpquic perf 192.0.2.7 --first-use --test requests --parallel 50";

pub(crate) const PATHS: &str = "\
Examples:
  From which addresses can paths start?
    mpquic paths
  Which of them reach a server, again each second?
    mpquic paths https://example.org --watch=1";
