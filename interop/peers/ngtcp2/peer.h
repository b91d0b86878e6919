/* HTTP/0.9 on ngtcp2 and GnuTLS: what client and server have in common. */
#ifndef PEER_H
#define PEER_H

#include <gnutls/gnutls.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#define MAX_DATAGRAM 65536
#define MAX_PAYLOAD 1452
#define CID_LENGTH 16
#define SECRET_LENGTH 32

/* A socket and the address it is bound to. */
struct endpoint {
  int fd;
  struct sockaddr_storage address;
  socklen_t length;
  unsigned ecn;
};

struct stream {
  int64_t id;
  /* To send; kept until the stream is closed. */
  const uint8_t *data;
  size_t size, sent;
  bool fin_sent;
  /* What a server has received of the request. */
  char request[4096];
  size_t request_length;
  /* Where a client writes to. */
  FILE *file;
  struct stream *next;
};

struct connection {
  ngtcp2_conn *conn;
  ngtcp2_crypto_conn_ref reference;
  gnutls_session_t tls;
  struct endpoint *endpoint;
  struct stream *streams;
  /* Bytes received on streams, and streams a client has seen the end of. */
  uint64_t received;
  size_t finished;
  bool failed, reset, handshake_done, early_rejected;
  void (*on_data)(struct connection *, struct stream *, bool fin);
  struct connection *next;
};

/* Ends the program with a message. */
_Noreturn void die(const char *format, ...);

ngtcp2_tstamp now(void);
void random_bytes(uint8_t *to, size_t length);

/* Binds a socket; if `to` is not null, connects it there. */
struct endpoint *endpoint_open(const struct sockaddr *local, socklen_t length,
                               const struct sockaddr *to, socklen_t to_length);
/* A datagram, its sender and its ECN codepoint; -1 if there is none. */
ssize_t endpoint_receive(struct endpoint *, uint8_t *to, struct sockaddr_storage *from,
                         socklen_t *from_length, ngtcp2_pkt_info *);
void endpoint_send(struct endpoint *, const ngtcp2_addr *to, unsigned ecn, const uint8_t *data,
                   size_t length);

/* Sets what both sides need. */
void common_callbacks(ngtcp2_callbacks *);
void common_settings(ngtcp2_settings *);
void common_parameters(ngtcp2_transport_params *);
gnutls_session_t common_tls(struct connection *, gnutls_certificate_credentials_t, unsigned flags);

struct stream *stream_add(struct connection *, int64_t id);
struct stream *stream_find(struct connection *, int64_t id);
/* Handles a datagram; false if the connection is over. */
bool connection_read(struct connection *, const ngtcp2_path *, const ngtcp2_pkt_info *,
                     const uint8_t *data, size_t length);
/* Sends what can be sent; false if the connection is over. */
bool connection_write(struct connection *);
/* Tells the peer that all is done. */
void connection_close(struct connection *);
void connection_free(struct connection *);
/* Handles timers; false if the connection is over. */
bool connection_expire(struct connection *);
/* Milliseconds until the next timer, at most a second. */
int connection_timeout(struct connection *);
/* The endpoint bound to this address. */
struct endpoint *endpoint_of(struct connection *, const ngtcp2_addr *);
/* Where several sockets may send; set by the client when it moves. */
extern struct endpoint *moved_endpoint;

int serve(int argc, char **argv);
int fetch(int argc, char **argv);

#endif
