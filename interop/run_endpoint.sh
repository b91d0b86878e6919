#!/usr/bin/env bash
# Plays an endpoint of the QUIC interop runner (https://github.com/quic-interop/quic-interop-runner).
#
#   ROLE       server or client
#   TESTCASE   what to do; exit code 127 if mpquic does not do it
#   REQUESTS   client: the URLs, separated by spaces
#   QLOGDIR, SSLKEYLOGFILE   where logs and secrets go, if anywhere
#
# Where things are, and their places in the runner's containers:
#   MPQUIC (mpquic), CERTS (/certs), WWW (/www), DOWNLOADS (/downloads), LISTEN ([::]:443)

set -euo pipefail

mpquic=${MPQUIC:-mpquic}
certs=${CERTS:-/certs}
www=${WWW:-/www}
downloads=${DOWNLOADS:-/downloads}
listen=${LISTEN:-[::]:443}
unsupported=127

# The containers' routes lead through the simulated network, which takes its time to come up.
[ ! -x /setup.sh ] || /setup.sh
if [ "${ROLE:-}" = client ] && [ -x /wait-for-it.sh ]; then
    /wait-for-it.sh sim:57832 -s -t 30
fi

options=()
alpn=hq-interop
case ${ROLE:-}:${TESTCASE:-} in
    *:handshake | *:transfer | *:longrtt | *:multiplexing | *:ipv6) ;;
    *:blackhole | *:ecn | *:amplificationlimit | *:rebind-port | *:rebind-addr) ;;
    *:transferloss | *:transfercorruption | *:goodput | *:crosstraffic) ;;
    *:http3) alpn=h3 ;;
    server:retry) options+=(--retry) ;;
    *:chacha20) options+=(--cipher chacha20) ;;
    # A connection for each file; the runner calls both of the latter multiconnect.
    client:multiconnect | client:handshakeloss | client:handshakecorruption)
        options+=(--reconnect) ;;
    client:resumption) options+=(--reconnect=once) ;;
    client:zerortt) options+=(--reconnect=once --early-data) ;;
    # The client begins with version 1, and the server changes to 2, which both prefer.
    *:v2) options+=(--quic-version v2,v1) ;;
    client:keyupdate) options+=(--drill update-keys) ;;
    server:multiconnect | server:handshakeloss | server:handshakecorruption) ;;
    server:resumption | server:zerortt | server:keyupdate | client:retry) ;;
    *) exit $unsupported ;;
esac

case $ROLE in
    server)
        exec "$mpquic" serve "$www" --listen "$listen" --alpn "$alpn" \
            --cert "$certs/cert.pem" --key "$certs/priv.key" "${options[@]}"
        ;;
    client)
        read -ra requests <<<"${REQUESTS:?no REQUESTS}"
        # Streams enough for every file; the server's limit counts anyway.
        exec "$mpquic" get --insecure --quiet --output-dir "$downloads" --connect-timeout 60 \
            --parallel 1000 --alpn "$alpn" "${options[@]}" "${requests[@]}"
        ;;
esac
