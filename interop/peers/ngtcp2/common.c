#include "peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gnutls/crypto.h>

#define WINDOW (4 << 20)
#define CONNECTION_WINDOW (8 << 20)

struct endpoint *moved_endpoint;

_Noreturn void die(const char *format, ...) {
  va_list values;
  va_start(values, format);
  fputs("error: ", stderr);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  va_end(values);
  exit(1);
}

ngtcp2_tstamp now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (ngtcp2_tstamp)time.tv_sec * NGTCP2_SECONDS + (ngtcp2_tstamp)time.tv_nsec;
}

void random_bytes(uint8_t *to, size_t length) {
  if (gnutls_rnd(GNUTLS_RND_RANDOM, to, length) != 0) die("no randomness");
}

/* Sockets. */

struct endpoint *endpoint_open(const struct sockaddr *local, socklen_t length,
                               const struct sockaddr *to, socklen_t to_length) {
  struct endpoint *endpoint = calloc(1, sizeof *endpoint);
  int family = local ? local->sa_family : to->sa_family, on = 1, size = 4 << 20;
  if (!endpoint) die("no memory");
  endpoint->fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  if (endpoint->fd < 0) die("socket: %s", strerror(errno));
  setsockopt(endpoint->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  if (family == AF_INET)
    setsockopt(endpoint->fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
  else
    setsockopt(endpoint->fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on);
  if (local && bind(endpoint->fd, local, length)) die("bind: %s", strerror(errno));
  if (to && connect(endpoint->fd, to, to_length)) die("connect: %s", strerror(errno));
  endpoint->length = sizeof endpoint->address;
  getsockname(endpoint->fd, (struct sockaddr *)&endpoint->address, &endpoint->length);
  return endpoint;
}

ssize_t endpoint_receive(struct endpoint *endpoint, uint8_t *to, struct sockaddr_storage *from,
                         socklen_t *from_length, ngtcp2_pkt_info *info) {
  uint8_t control[64];
  struct iovec piece = {to, MAX_DATAGRAM};
  struct msghdr message = {.msg_name = from, .msg_namelen = sizeof *from, .msg_iov = &piece,
                           .msg_iovlen = 1, .msg_control = control,
                           .msg_controllen = sizeof control};
  ssize_t size = recvmsg(endpoint->fd, &message, 0);
  *from_length = message.msg_namelen;
  info->ecn = 0;
  if (size < 0) return -1;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    bool v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS;
    bool v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS;
    if (v4 || v6) info->ecn = *CMSG_DATA(c) & 3;
  }
  return size;
}

void endpoint_send(struct endpoint *endpoint, const ngtcp2_addr *to, unsigned ecn,
                   const uint8_t *data, size_t length) {
  struct sockaddr_storage peer;
  socklen_t peer_length = sizeof peer;
  bool connected = getpeername(endpoint->fd, (struct sockaddr *)&peer, &peer_length) == 0;
  if (ecn != endpoint->ecn) {
    int value = (int)ecn;
    if (endpoint->address.ss_family == AF_INET)
      setsockopt(endpoint->fd, IPPROTO_IP, IP_TOS, &value, sizeof value);
    else
      setsockopt(endpoint->fd, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value);
    endpoint->ecn = ecn;
  }
  /* What cannot be sent is lost, as on any network. */
  ssize_t sent = connected ? send(endpoint->fd, data, length, 0)
                           : sendto(endpoint->fd, data, length, 0, to->addr, to->addrlen);
  (void)sent;
}

struct endpoint *endpoint_of(struct connection *connection, const ngtcp2_addr *local) {
  if (moved_endpoint && moved_endpoint->length == local->addrlen &&
      memcmp(&moved_endpoint->address, local->addr, local->addrlen) == 0)
    return moved_endpoint;
  return connection->endpoint;
}

/* Streams. */

struct stream *stream_add(struct connection *connection, int64_t id) {
  struct stream *stream = calloc(1, sizeof *stream);
  if (!stream) die("no memory");
  stream->id = id;
  stream->next = connection->streams;
  connection->streams = stream;
  return stream;
}

struct stream *stream_find(struct connection *connection, int64_t id) {
  struct stream *stream = connection->streams;
  while (stream && stream->id != id) stream = stream->next;
  return stream;
}

/* Callbacks. */

static void on_random(uint8_t *to, size_t length, const ngtcp2_rand_ctx *context) {
  (void)context;
  random_bytes(to, length);
}

static int on_new_cid(ngtcp2_conn *conn, ngtcp2_cid *cid, uint8_t *token, size_t length,
                      void *user) {
  (void)conn;
  (void)user;
  cid->datalen = length;
  random_bytes(cid->data, length);
  random_bytes(token, NGTCP2_STATELESS_RESET_TOKENLEN);
  return 0;
}

static int on_stream_data(ngtcp2_conn *conn, uint32_t flags, int64_t id, uint64_t offset,
                          const uint8_t *data, size_t length, void *user, void *stream_user) {
  struct connection *connection = user;
  struct stream *stream = stream_find(connection, id);
  (void)offset;
  (void)stream_user;
  if (!stream) stream = stream_add(connection, id);
  if (stream->file) {
    if (fwrite(data, 1, length, stream->file) != length) return NGTCP2_ERR_CALLBACK_FAILURE;
  } else if (stream->request_length + length < sizeof stream->request) {
    memcpy(stream->request + stream->request_length, data, length);
    stream->request_length += length;
  }
  connection->received += length;
  ngtcp2_conn_extend_max_stream_offset(conn, id, length);
  ngtcp2_conn_extend_max_offset(conn, length);
  connection->on_data(connection, stream, flags & NGTCP2_STREAM_DATA_FLAG_FIN);
  return 0;
}

static int on_stream_reset(ngtcp2_conn *conn, int64_t id, uint64_t size, uint64_t code, void *user,
                           void *stream_user) {
  struct connection *connection = user;
  (void)conn, (void)id, (void)size, (void)code, (void)stream_user;
  connection->reset = true;
  return 0;
}

static int on_stream_close(ngtcp2_conn *conn, uint32_t flags, int64_t id, uint64_t code,
                           void *user, void *stream_user) {
  struct connection *connection = user;
  (void)flags, (void)code, (void)stream_user;
  for (struct stream **at = &connection->streams; *at; at = &(*at)->next) {
    struct stream *stream = *at;
    if (stream->id != id) continue;
    *at = stream->next;
    free((void *)stream->data);
    free(stream);
    break;
  }
  if (ngtcp2_conn_is_server(conn)) ngtcp2_conn_extend_max_streams_bidi(conn, 1);
  return 0;
}

static int on_handshake_completed(ngtcp2_conn *conn, void *user) {
  struct connection *connection = user;
  connection->handshake_done = true;
  if (ngtcp2_conn_is_server(conn) && gnutls_session_ticket_send(connection->tls, 1, 0) != 0)
    return NGTCP2_ERR_CALLBACK_FAILURE;
  unsigned session_flags = gnutls_session_get_flags(connection->tls);
  if (!ngtcp2_conn_is_server(conn) && !(session_flags & GNUTLS_SFLAGS_EARLY_DATA))
    connection->early_rejected = true;
  return 0;
}

void common_callbacks(ngtcp2_callbacks *callbacks) {
  memset(callbacks, 0, sizeof *callbacks);
  callbacks->recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb;
  callbacks->encrypt = ngtcp2_crypto_encrypt_cb;
  callbacks->decrypt = ngtcp2_crypto_decrypt_cb;
  callbacks->hp_mask = ngtcp2_crypto_hp_mask_cb;
  callbacks->update_key = ngtcp2_crypto_update_key_cb;
  callbacks->delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb;
  callbacks->delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb;
  callbacks->get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb;
  callbacks->version_negotiation = ngtcp2_crypto_version_negotiation_cb;
  callbacks->rand = on_random;
  callbacks->get_new_connection_id = on_new_cid;
  callbacks->recv_stream_data = on_stream_data;
  callbacks->stream_reset = on_stream_reset;
  callbacks->stream_close = on_stream_close;
  callbacks->handshake_completed = on_handshake_completed;
}

static void on_log(void *user, const char *format, ...) {
  va_list values;
  (void)user;
  va_start(values, format);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  va_end(values);
}

void common_settings(ngtcp2_settings *settings) {
  ngtcp2_settings_default(settings);
  settings->initial_ts = now();
  settings->handshake_timeout = 60 * NGTCP2_SECONDS;
  settings->max_tx_udp_payload_size = MAX_PAYLOAD;
  if (getenv("NGTCP2_LOG")) settings->log_printf = on_log;
}

void common_parameters(ngtcp2_transport_params *parameters) {
  ngtcp2_transport_params_default(parameters);
  parameters->initial_max_stream_data_bidi_local = WINDOW;
  parameters->initial_max_stream_data_bidi_remote = WINDOW;
  parameters->initial_max_data = CONNECTION_WINDOW;
  parameters->initial_max_streams_bidi = 100;
  parameters->max_idle_timeout = 30 * NGTCP2_SECONDS;
  parameters->active_connection_id_limit = 7;
}

static ngtcp2_conn *connection_of(ngtcp2_crypto_conn_ref *reference) {
  struct connection *connection = reference->user_data;
  return connection->conn;
}

gnutls_session_t common_tls(struct connection *connection,
                            gnutls_certificate_credentials_t credentials, unsigned flags) {
  static const char priority[] =
      "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305:"
      "-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:%DISABLE_TLS13_COMPAT_MODE";
  static const gnutls_datum_t protocol = {(unsigned char *)"hq-interop", 10};
  gnutls_session_t tls;
  connection->reference.get_conn = connection_of;
  connection->reference.user_data = connection;
  if (gnutls_init(&tls, flags | GNUTLS_ENABLE_EARLY_DATA | GNUTLS_NO_END_OF_EARLY_DATA) ||
      gnutls_priority_set_direct(tls, priority, NULL) ||
      gnutls_credentials_set(tls, GNUTLS_CRD_CERTIFICATE, credentials) ||
      gnutls_alpn_set_protocols(tls, &protocol, 1, GNUTLS_ALPN_MANDATORY))
    die("TLS cannot be set up");
  gnutls_session_set_ptr(tls, &connection->reference);
  return connection->tls = tls;
}

/* Connections. */

bool connection_read(struct connection *connection, const ngtcp2_path *path,
                     const ngtcp2_pkt_info *info, const uint8_t *data, size_t length) {
  int result = ngtcp2_conn_read_pkt(connection->conn, path, info, data, length, now());
  if (result == 0) return true;
  if (result != NGTCP2_ERR_DRAINING && result != NGTCP2_ERR_DROP_CONN) {
    fprintf(stderr, "reading: %s\n", ngtcp2_strerror(result));
    connection->failed = true;
  }
  return false;
}

/* The next stream with something to send, after the one given. */
static struct stream *sendable(struct connection *connection, struct stream *after) {
  struct stream *stream = after ? after->next : connection->streams;
  while (stream && stream->fin_sent) stream = stream->next;
  return stream;
}

bool connection_write(struct connection *connection) {
  struct stream *stream = sendable(connection, NULL);
  for (;;) {
    uint8_t packet[MAX_PAYLOAD];
    ngtcp2_path_storage path;
    ngtcp2_pkt_info info;
    ngtcp2_ssize taken = -1;
    ngtcp2_vec data = {NULL, 0};
    uint32_t flags = NGTCP2_WRITE_STREAM_FLAG_MORE;
    if (stream && stream->data) {
      data.base = (uint8_t *)stream->data + stream->sent;
      data.len = stream->size - stream->sent;
      flags |= NGTCP2_WRITE_STREAM_FLAG_FIN;
    }
    bool has_data = stream && stream->data;
    ngtcp2_path_storage_zero(&path);
    ngtcp2_ssize size = ngtcp2_conn_writev_stream(
        connection->conn, &path.path, &info, packet, sizeof packet, &taken, flags,
        has_data ? stream->id : -1, &data, has_data, now());
    if (has_data && taken >= 0) {
      stream->sent += (size_t)taken;
      stream->fin_sent = stream->sent == stream->size;
    }
    if (size == NGTCP2_ERR_WRITE_MORE || size == NGTCP2_ERR_STREAM_DATA_BLOCKED ||
        size == NGTCP2_ERR_STREAM_SHUT_WR || (stream && !has_data && size == 0)) {
      stream = sendable(connection, stream);
      continue;
    }
    if (size < 0) {
      fprintf(stderr, "writing: %s\n", ngtcp2_strerror((int)size));
      connection->failed = true;
      return false;
    }
    if (size == 0) break;
    endpoint_send(endpoint_of(connection, &path.path.local), &path.path.remote, info.ecn, packet,
                  (size_t)size);
    if (stream && stream->fin_sent) stream = sendable(connection, stream);
  }
  ngtcp2_conn_update_pkt_tx_time(connection->conn, now());
  return true;
}

void connection_close(struct connection *connection) {
  uint8_t packet[MAX_PAYLOAD];
  ngtcp2_path_storage path;
  ngtcp2_pkt_info info;
  ngtcp2_connection_close_error error;
  ngtcp2_connection_close_error_default(&error);
  ngtcp2_connection_close_error_set_application_error(&error, 0, NULL, 0);
  ngtcp2_path_storage_zero(&path);
  ngtcp2_ssize size = ngtcp2_conn_write_connection_close(connection->conn, &path.path, &info,
                                                         packet, sizeof packet, &error, now());
  if (size > 0)
    endpoint_send(endpoint_of(connection, &path.path.local), &path.path.remote, info.ecn, packet,
                  (size_t)size);
}

void connection_free(struct connection *connection) {
  while (connection->streams) {
    struct stream *stream = connection->streams;
    connection->streams = stream->next;
    free((void *)stream->data);
    free(stream);
  }
  ngtcp2_conn_del(connection->conn);
  gnutls_deinit(connection->tls);
  free(connection);
}

bool connection_expire(struct connection *connection) {
  if (ngtcp2_conn_get_expiry(connection->conn) > now()) return true;
  int result = ngtcp2_conn_handle_expiry(connection->conn, now());
  if (result == 0) return true;
  fprintf(stderr, "timer: %s\n", ngtcp2_strerror(result));
  connection->failed = true;
  return false;
}

int connection_timeout(struct connection *connection) {
  ngtcp2_tstamp expiry = ngtcp2_conn_get_expiry(connection->conn), time = now();
  if (expiry <= time) return 0;
  ngtcp2_tstamp milliseconds = (expiry - time) / NGTCP2_MILLISECONDS + 1;
  return milliseconds < 1000 ? (int)milliseconds : 1000;
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc > 1 && strcmp(argv[1], "server") == 0) return serve(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "client") == 0) return fetch(argc - 2, argv + 2);
  fputs("usage: peer server --listen ADDR:PORT --dir DIR --cert PEM --key PEM [--retry]\n"
        "       peer client URL.. --out DIR [--connections N] [--early-data] [--drill STEPS]\n",
        stderr);
  return 2;
}
