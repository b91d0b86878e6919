#include "peer.h"

#include <arpa/inet.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_URLS 4096
/* Bytes received before each step of a drill. */
#define BYTES_BETWEEN (512 << 10)
/* How long the whole may take. */
#define LIMIT (110 * NGTCP2_SECONDS)

static struct {
  const char *out, *names[MAX_URLS];
  size_t count, opened, files_closed;
  int connections;
  bool early;
  char *drill;
  uint64_t next_step;
  struct sockaddr_storage remote;
  socklen_t remote_length;
  gnutls_certificate_credentials_t credentials;
  gnutls_datum_t session;
  /* Transport parameters of the server, for 0-RTT. */
  ngtcp2_transport_params remembered;
} client;

static int on_ticket(gnutls_session_t tls, unsigned type, unsigned when, unsigned incoming,
                     const gnutls_datum_t *message) {
  (void)type, (void)when, (void)incoming, (void)message;
  gnutls_free(client.session.data);
  return gnutls_session_get_data2(tls, &client.session);
}

static void on_data(struct connection *connection, struct stream *stream, bool fin) {
  if (!fin || !stream->file) return;
  if (fclose(stream->file)) die("cannot write");
  stream->file = NULL;
  connection->finished++;
}

/* Opens streams for as many requests as the server allows. */
static void request(struct connection *connection) {
  while (client.opened < client.count) {
    int64_t id;
    char path[4096];
    if (ngtcp2_conn_open_bidi_stream(connection->conn, &id, NULL) != 0) return;
    const char *name = client.names[client.opened++];
    struct stream *stream = stream_add(connection, id);
    snprintf(path, sizeof path, "%s/%s", client.out, name);
    stream->file = fopen(path, "wb");
    char *text = malloc(strlen(name) + 16);
    if (!stream->file || !text) die("cannot write %s", path);
    stream->size = (size_t)sprintf(text, "GET /%s\r\n", name);
    stream->data = (uint8_t *)text;
  }
}

static struct connection *start(void) {
  struct connection *connection = calloc(1, sizeof *connection);
  ngtcp2_callbacks callbacks;
  ngtcp2_settings settings;
  ngtcp2_transport_params parameters;
  ngtcp2_cid dcid = {.datalen = CID_LENGTH}, scid = {.datalen = CID_LENGTH};
  struct sockaddr *remote = (struct sockaddr *)&client.remote;
  if (!connection) die("no memory");
  connection->endpoint = endpoint_open(NULL, 0, remote, client.remote_length);
  connection->on_data = on_data;
  random_bytes(dcid.data, CID_LENGTH);
  random_bytes(scid.data, CID_LENGTH);
  common_callbacks(&callbacks);
  callbacks.client_initial = ngtcp2_crypto_client_initial_cb;
  callbacks.recv_retry = ngtcp2_crypto_recv_retry_cb;
  common_settings(&settings);
  common_parameters(&parameters);
  ngtcp2_path path = {
      .local = {(struct sockaddr *)&connection->endpoint->address, connection->endpoint->length},
      .remote = {remote, client.remote_length},
  };
  if (ngtcp2_conn_client_new(&connection->conn, &dcid, &scid, &path, NGTCP2_PROTO_VER_V1,
                             &callbacks, &settings, &parameters, NULL, connection))
    die("no connection");
  gnutls_session_t tls = common_tls(connection, client.credentials, GNUTLS_CLIENT);
  if (ngtcp2_crypto_gnutls_configure_client_session(tls)) die("TLS cannot be set up");
  gnutls_server_name_set(tls, GNUTLS_NAME_DNS, "localhost", 9);
  gnutls_handshake_set_hook_function(tls, GNUTLS_HANDSHAKE_NEW_SESSION_TICKET, GNUTLS_HOOK_POST,
                                     on_ticket);
  bool known = client.session.size > 0;
  if (known && gnutls_session_set_data(tls, client.session.data, client.session.size))
    die("the session cannot be resumed");
  ngtcp2_conn_set_tls_native_handle(connection->conn, tls);
  if (known && client.early) {
    ngtcp2_conn_set_early_remote_transport_params(connection->conn, &client.remembered);
    request(connection);
  }
  return connection;
}

static void migrate(struct connection *connection, const char *address) {
  struct sockaddr_in local = {.sin_family = AF_INET};
  if (inet_pton(AF_INET, address, &local.sin_addr) != 1) die("no address: %s", address);
  moved_endpoint = endpoint_open((struct sockaddr *)&local, sizeof local,
                                 (struct sockaddr *)&client.remote, client.remote_length);
  ngtcp2_path path = {
      .local = {(struct sockaddr *)&moved_endpoint->address, moved_endpoint->length},
      .remote = {(struct sockaddr *)&client.remote, client.remote_length},
  };
  int result = ngtcp2_conn_initiate_migration(connection->conn, &path, now());
  if (result) die("cannot migrate: %s", ngtcp2_strerror(result));
}

/* The next step of the drill, if it is due and allowed. */
static void drill(struct connection *connection) {
  if (!client.drill || connection->received < client.next_step) return;
  char *rest = strchr(client.drill, ',');
  size_t length = rest ? (size_t)(rest - client.drill) : strlen(client.drill);
  char step[128];
  snprintf(step, sizeof step, "%.*s", (int)length, client.drill);
  if (strcmp(step, "update-keys") == 0) {
    if (ngtcp2_conn_initiate_key_update(connection->conn, now())) return;
  } else if (strncmp(step, "move=", 5) == 0) {
    migrate(connection, step + 5);
  } else {
    die("unknown step %s", step);
  }
  client.next_step = connection->received + BYTES_BETWEEN;
  client.drill = rest ? rest + 1 : NULL;
}

static bool receive(struct connection *connection, struct endpoint *endpoint) {
  static uint8_t data[MAX_DATAGRAM];
  struct sockaddr_storage from;
  socklen_t from_length;
  ngtcp2_pkt_info info;
  for (int i = 0; i < 64; i++) {
    ssize_t size = endpoint_receive(endpoint, data, &from, &from_length, &info);
    if (size < 0) break;
    ngtcp2_path path = {
        .local = {(struct sockaddr *)&endpoint->address, endpoint->length},
        .remote = {(struct sockaddr *)&client.remote, client.remote_length},
    };
    if (!connection_read(connection, &path, &info, data, (size_t)size)) return false;
  }
  return true;
}

/* One connection, until every file is there. */
static void run(void) {
  ngtcp2_tstamp deadline = now() + LIMIT;
  client.opened = 0;
  client.next_step = BYTES_BETWEEN;
  struct connection *connection = start();
  while (connection->finished < client.count) {
    if (!connection_write(connection)) die("the connection is lost");
    struct pollfd waiting[2] = {{.fd = connection->endpoint->fd, .events = POLLIN},
                                {.fd = moved_endpoint ? moved_endpoint->fd : -1,
                                 .events = POLLIN}};
    poll(waiting, 2, connection_timeout(connection));
    if (!receive(connection, connection->endpoint) ||
        (moved_endpoint && !receive(connection, moved_endpoint)) ||
        !connection_expire(connection))
      die("the connection is lost");
    if (connection->reset) die("a stream was reset");
    if (now() > deadline) die("too late");
    if (connection->handshake_done) {
      if (connection->early_rejected && client.early && client.session.size > 0 &&
          connection->finished == 0 && client.opened > 0 &&
          ngtcp2_conn_get_early_data_rejected(connection->conn))
        die("0-RTT was rejected");
      request(connection);
      drill(connection);
    }
  }
  ngtcp2_conn_get_remote_transport_params(connection->conn);
  client.remembered = *ngtcp2_conn_get_remote_transport_params(connection->conn);
  connection_close(connection);
  connection_free(connection);
}

/* `https://HOST:PORT/NAME`: the server's address and the name. */
static const char *split(char *url) {
  char *host = url + strlen("https://"), *slash = strchr(host, '/'), *colon;
  struct sockaddr_in *v4 = (struct sockaddr_in *)&client.remote;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&client.remote;
  if (!slash) die("no URL: %s", url);
  *slash = 0;
  colon = strrchr(host, ':');
  if (!colon) die("no port: %s", url);
  *colon = 0;
  uint16_t port = htons((uint16_t)atoi(colon + 1));
  if (*host == '[') {
    host[strlen(host) - 1] = 0;
    if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) != 1) die("no address: %s", host);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = port;
    client.remote_length = sizeof *v6;
  } else {
    if (inet_pton(AF_INET, host, &v4->sin_addr) != 1) die("no address: %s", host);
    v4->sin_family = AF_INET;
    v4->sin_port = port;
    client.remote_length = sizeof *v4;
  }
  return slash + 1;
}

int fetch(int argc, char **argv) {
  client.connections = 1;
  for (int i = 0; i < argc; i++) {
    bool has_value = i + 1 < argc;
    if (strcmp(argv[i], "--early-data") == 0) client.early = true;
    else if (strcmp(argv[i], "--out") == 0 && has_value) client.out = argv[++i];
    else if (strcmp(argv[i], "--connections") == 0 && has_value)
      client.connections = atoi(argv[++i]);
    else if (strcmp(argv[i], "--drill") == 0 && has_value) client.drill = argv[++i];
    else if (strncmp(argv[i], "https://", 8) == 0 && client.count < MAX_URLS)
      client.names[client.count++] = split(argv[i]);
    else die("unknown option %s", argv[i]);
  }
  if (!client.out || client.count == 0) die("an option is missing");
  gnutls_certificate_allocate_credentials(&client.credentials);
  for (int i = 0; i < client.connections; i++) run();
  return 0;
}
