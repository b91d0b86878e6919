#include "peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NOT_FOUND 404
#define TOKEN_LIFE (10 * NGTCP2_SECONDS)

static struct {
  const char *directory;
  bool retry;
  struct endpoint *endpoint;
  gnutls_certificate_credentials_t credentials;
  gnutls_datum_t ticket_key;
  gnutls_anti_replay_t anti_replay;
  uint8_t secret[SECRET_LENGTH];
  struct connection *connections;
} server;

/* Where datagrams go whose connection ID names no connection yet. */
static struct connection *find(const uint8_t *cid, size_t length) {
  for (struct connection *c = server.connections; c; c = c->next) {
    ngtcp2_cid ids[32];
    size_t count = ngtcp2_conn_get_num_scid(c->conn);
    const ngtcp2_cid *first = ngtcp2_conn_get_client_initial_dcid(c->conn);
    if (first->datalen == length && memcmp(first->data, cid, length) == 0) return c;
    if (count > 32) continue;
    ngtcp2_conn_get_scid(c->conn, ids);
    for (size_t i = 0; i < count; i++)
      if (ids[i].datalen == length && memcmp(ids[i].data, cid, length) == 0) return c;
  }
  return NULL;
}

/* Takes a request: the stream then sends the file. */
static void on_data(struct connection *connection, struct stream *stream, bool fin) {
  char *request = stream->request, path[8192];
  request[stream->request_length] = 0;
  char *end = strpbrk(request, "\r\n");
  if (stream->data || (!fin && !end)) return;
  if (end) *end = 0;
  struct stat status;
  int file = -1;
  if (strncmp(request, "GET /", 5) == 0 && !strstr(request, "..")) {
    snprintf(path, sizeof path, "%s/%s", server.directory, request + 5);
    file = open(path, O_RDONLY);
  }
  if (file < 0 || fstat(file, &status)) {
    ngtcp2_conn_shutdown_stream_write(connection->conn, stream->id, NOT_FOUND);
    return;
  }
  uint8_t *data = malloc((size_t)status.st_size + 1);
  if (!data) die("no memory");
  stream->size = 0;
  ssize_t count;
  while ((count = read(file, data + stream->size, (size_t)status.st_size - stream->size)) > 0)
    stream->size += (size_t)count;
  close(file);
  stream->data = data;
}

/* TLS 1.3 wants servers to see tickets once; a test has nothing to lose. */
static int on_ticket_used(void *user, time_t expiry, const gnutls_datum_t *key,
                          const gnutls_datum_t *data) {
  (void)user, (void)expiry, (void)key, (void)data;
  return 0;
}

static void start_tls(struct connection *connection) {
  gnutls_session_t tls =
      common_tls(connection, server.credentials, GNUTLS_SERVER | GNUTLS_NO_AUTO_SEND_TICKET);
  if (gnutls_session_ticket_enable_server(tls, &server.ticket_key) ||
      ngtcp2_crypto_gnutls_configure_server_session(tls))
    die("TLS cannot be set up");
  gnutls_anti_replay_enable(tls, server.anti_replay);
  gnutls_record_set_max_early_data_size(tls, 0xffffffffu);
}

/* A client's first packet: a connection, or NULL if it got a Retry or nothing. */
static struct connection *accept_client(const ngtcp2_path *path, const uint8_t *data,
                                        size_t length) {
  ngtcp2_pkt_hd header;
  ngtcp2_cid original, scid = {.datalen = CID_LENGTH};
  if (ngtcp2_accept(&header, data, length) != 0) return NULL;
  random_bytes(scid.data, CID_LENGTH);
  original = header.dcid;
  bool proven = header.token.len > 0 &&
                ngtcp2_crypto_verify_retry_token(
                    &original, header.token.base, header.token.len, server.secret, SECRET_LENGTH,
                    header.version, path->remote.addr, path->remote.addrlen, &header.dcid,
                    TOKEN_LIFE, now()) == 0;
  if (server.retry && !proven) {
    uint8_t token[NGTCP2_CRYPTO_MAX_RETRY_TOKENLEN], packet[NGTCP2_MAX_UDP_PAYLOAD_SIZE];
    ngtcp2_ssize token_length = ngtcp2_crypto_generate_retry_token(
        token, server.secret, SECRET_LENGTH, header.version, path->remote.addr,
        path->remote.addrlen, &scid, &header.dcid, now());
    ngtcp2_ssize size = ngtcp2_crypto_write_retry(packet, sizeof packet, header.version,
                                                  &header.scid, &scid, &header.dcid, token,
                                                  (size_t)token_length);
    if (token_length > 0 && size > 0)
      endpoint_send(server.endpoint, &path->remote, 0, packet, (size_t)size);
    return NULL;
  }
  struct connection *connection = calloc(1, sizeof *connection);
  ngtcp2_callbacks callbacks;
  ngtcp2_settings settings;
  ngtcp2_transport_params parameters;
  if (!connection) die("no memory");
  common_callbacks(&callbacks);
  callbacks.recv_client_initial = ngtcp2_crypto_recv_client_initial_cb;
  common_settings(&settings);
  settings.token = header.token;
  common_parameters(&parameters);
  parameters.original_dcid = original;
  parameters.retry_scid_present = proven;
  parameters.retry_scid = header.dcid;
  parameters.stateless_reset_token_present = 1;
  random_bytes(parameters.stateless_reset_token, NGTCP2_STATELESS_RESET_TOKENLEN);
  connection->endpoint = server.endpoint;
  connection->on_data = on_data;
  if (ngtcp2_conn_server_new(&connection->conn, &header.scid, &scid, path, header.version,
                             &callbacks, &settings, &parameters, NULL, connection))
    die("no connection");
  start_tls(connection);
  ngtcp2_conn_set_tls_native_handle(connection->conn, connection->tls);
  connection->next = server.connections;
  return server.connections = connection;
}

static void forget(struct connection *connection) {
  struct connection **at = &server.connections;
  while (*at != connection) at = &(*at)->next;
  *at = connection->next;
  connection_free(connection);
}

/* One datagram; false if there was none. */
static bool receive(void) {
  static uint8_t data[MAX_DATAGRAM];
  struct sockaddr_storage from;
  socklen_t from_length;
  ngtcp2_pkt_info info;
  ngtcp2_version_cid ids;
  ssize_t size = endpoint_receive(server.endpoint, data, &from, &from_length, &info);
  if (size < 0) return false;
  ngtcp2_path path = {
      .local = {(struct sockaddr *)&server.endpoint->address, server.endpoint->length},
      .remote = {(struct sockaddr *)&from, from_length},
  };
  int decoded = ngtcp2_pkt_decode_version_cid(&ids, data, (size_t)size, CID_LENGTH);
  if (decoded == NGTCP2_ERR_VERSION_NEGOTIATION) {
    uint32_t versions[] = {NGTCP2_PROTO_VER_V1};
    uint8_t packet[NGTCP2_MAX_UDP_PAYLOAD_SIZE];
    ngtcp2_ssize length = ngtcp2_pkt_write_version_negotiation(
        packet, sizeof packet, 0, ids.scid, ids.scidlen, ids.dcid, ids.dcidlen, versions, 1);
    if (length > 0) endpoint_send(server.endpoint, &path.remote, 0, packet, (size_t)length);
    return true;
  }
  if (decoded != 0) return true;
  struct connection *connection = find(ids.dcid, ids.dcidlen);
  if (!connection && ids.version != 0) connection = accept_client(&path, data, (size_t)size);
  if (connection && !connection_read(connection, &path, &info, data, (size_t)size))
    forget(connection);
  return true;
}

static void listen_on(const char *text) {
  char host[64];
  const char *colon = strrchr(text, ':');
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
  if (!colon || (size_t)(colon - text) >= sizeof host) die("no address: %s", text);
  uint16_t port = htons((uint16_t)atoi(colon + 1));
  bool is_v6 = text[0] == '[';
  snprintf(host, sizeof host, "%.*s", (int)(colon - text) - 2 * is_v6, text + is_v6);
  v4.sin_port = v6.sin6_port = port;
  if (is_v6 && inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
    server.endpoint = endpoint_open((struct sockaddr *)&v6, sizeof v6, NULL, 0);
    port = ((struct sockaddr_in6 *)&server.endpoint->address)->sin6_port;
    printf("listening on [%s]:%d\n", host, ntohs(port));
  } else if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
    server.endpoint = endpoint_open((struct sockaddr *)&v4, sizeof v4, NULL, 0);
    port = ((struct sockaddr_in *)&server.endpoint->address)->sin_port;
    printf("listening on %s:%d\n", host, ntohs(port));
  } else {
    die("no address: %s", text);
  }
}

int serve(int argc, char **argv) {
  const char *listen = NULL, *certificate = NULL, *key = NULL;
  for (int i = 0; i < argc; i++) {
    bool has_value = i + 1 < argc;
    if (strcmp(argv[i], "--retry") == 0) server.retry = true;
    else if (strcmp(argv[i], "--listen") == 0 && has_value) listen = argv[++i];
    else if (strcmp(argv[i], "--dir") == 0 && has_value) server.directory = argv[++i];
    else if (strcmp(argv[i], "--cert") == 0 && has_value) certificate = argv[++i];
    else if (strcmp(argv[i], "--key") == 0 && has_value) key = argv[++i];
    else die("unknown option %s", argv[i]);
  }
  if (!listen || !server.directory || !certificate || !key) die("an option is missing");
  random_bytes(server.secret, SECRET_LENGTH);
  gnutls_certificate_allocate_credentials(&server.credentials);
  if (gnutls_certificate_set_x509_key_file(server.credentials, certificate, key,
                                           GNUTLS_X509_FMT_PEM))
    die("cannot use %s", certificate);
  gnutls_session_ticket_key_generate(&server.ticket_key);
  gnutls_anti_replay_init(&server.anti_replay);
  gnutls_anti_replay_set_add_function(server.anti_replay, on_ticket_used);
  listen_on(listen);
  for (;;) {
    int timeout = 1000;
    for (struct connection *c = server.connections; c; c = c->next) {
      int own = connection_timeout(c);
      if (own < timeout) timeout = own;
    }
    struct pollfd waiting = {.fd = server.endpoint->fd, .events = POLLIN};
    poll(&waiting, 1, timeout);
    for (int i = 0; i < 64 && receive(); i++) continue;
    for (struct connection *c = server.connections, *next; c; c = next) {
      next = c->next;
      if (!connection_expire(c) || !connection_write(c)) forget(c);
    }
  }
}
