// HTTP/0.9 and HTTP/3 on quic-go, with the command line that all peers have, and --alpn.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	protocol = "hq-interop"
	// Bytes received before each step of a drill.
	bytesBetween = 512 << 10
	notFound     = 404
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 && args[0] == "server" {
		return serve(args[1:])
	}
	if len(args) > 0 && args[0] == "client" {
		return fetch(args[1:])
	}
	return errors.New("neither server nor client")
}

func serve(args []string) error {
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	listen := flags.String("listen", "", "address and port")
	directory := flags.String("dir", "", "where the files are")
	certificate := flags.String("cert", "", "certificate, PEM")
	key := flags.String("key", "", "its key, PEM")
	version := flags.String("quic-version", "v1", "the version of QUIC")
	retry := flags.Bool("retry", false, "have clients prove their address")
	alpn := flags.String("alpn", protocol, "the protocol: "+protocol+" or h3")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		return err
	}
	address, err := net.ResolveUDPAddr("udp", *listen)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		return err
	}
	transport := &quic.Transport{
		Conn:                socket,
		VerifySourceAddress: func(net.Addr) bool { return *retry },
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{*alpn}}
	listener, err := transport.ListenEarly(config, &quic.Config{Allow0RTT: true, Versions: versions(*version)})
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	if *alpn == http3.NextProtoH3 {
		server := http3.Server{Handler: http.FileServer(http.Dir(*directory))}
		return server.ServeListener(listener)
	}
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		go func() {
			for {
				stream, err := connection.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go answer(stream, *directory)
			}
		}()
	}
}

func versions(name string) []quic.Version {
	if name == "v2" {
		return []quic.Version{quic.Version2}
	}
	return []quic.Version{quic.Version1}
}

func answer(stream *quic.Stream, directory string) {
	request, _ := bufio.NewReader(stream).ReadString('\n')
	name, ok := strings.CutPrefix(strings.TrimSpace(request), "GET /")
	if !ok || strings.Contains(name, "..") {
		stream.CancelWrite(notFound)
		return
	}
	file, err := os.Open(filepath.Join(directory, name))
	if err != nil {
		stream.CancelWrite(notFound)
		return
	}
	defer file.Close()
	if _, err := io.Copy(stream, file); err == nil {
		stream.Close()
	}
}

type client struct {
	remote  *net.UDPAddr
	names   []string
	out     string
	early   bool
	version string
	drill   []string
	tls     *tls.Config
	sockets []*quic.Transport
}

func fetch(args []string) error {
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	out := flags.String("out", "", "directory for the files")
	connections := flags.Int("connections", 1, "connections, one after the other")
	early := flags.Bool("early-data", false, "send requests as 0-RTT data")
	version := flags.String("quic-version", "v1", "the version of QUIC")
	drill := flags.String("drill", "", "what to do meanwhile: move=ADDR")
	alpn := flags.String("alpn", protocol, "the protocol: "+protocol+" or h3")
	part := flags.String("range", "", "with h3, the part of each file: FIRST-LAST")
	urls, options := split(args)
	if err := flags.Parse(options); err != nil {
		return err
	}
	c := client{out: *out, early: *early, version: *version}
	if *drill != "" {
		c.drill = strings.Split(*drill, ",")
	}
	for _, text := range urls {
		parsed, err := url.Parse(text)
		if err != nil {
			return err
		}
		if c.remote, err = net.ResolveUDPAddr("udp", parsed.Host); err != nil {
			return err
		}
		c.names = append(c.names, strings.TrimPrefix(parsed.Path, "/"))
	}
	if c.remote == nil {
		return errors.New("no URL")
	}
	c.tls = &tls.Config{
		InsecureSkipVerify: true,
		NextProtos:         []string{*alpn},
		ServerName:         "localhost",
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
	if *alpn == http3.NextProtoH3 {
		return c.fetchHttp(urls, *part)
	}
	if _, err := c.transport(nil); err != nil {
		return err
	}
	for number := 0; number < *connections; number++ {
		if err := c.connection(); err != nil {
			return err
		}
	}
	return nil
}

// Fetches all files at once over one connection of HTTP/3.
func (c *client) fetchHttp(urls []string, part string) error {
	transport := &http3.Transport{
		TLSClientConfig: c.tls,
		QUICConfig:      &quic.Config{HandshakeIdleTimeout: 60 * time.Second},
	}
	defer transport.Close()
	failures := make(chan error, len(urls))
	for number, url := range urls {
		go func() { failures <- c.get(transport, url, c.names[number], part) }()
	}
	for range urls {
		if err := <-failures; err != nil {
			return err
		}
	}
	return nil
}

func (c *client) get(transport *http3.Transport, url, name, part string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	wanted := http.StatusOK
	if part != "" {
		request.Header.Set("Range", "bytes="+part)
		wanted = http.StatusPartialContent
	}
	// What is received is what was asked for, also if it could be compressed.
	request.Header.Set("Accept-Encoding", "identity")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != wanted {
		return fmt.Errorf("%s was answered %s", name, response.Status)
	}
	file, err := os.Create(filepath.Join(c.out, name))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, response.Body)
	return err
}

// Options may come after URLs, which package flag does not know.
func split(args []string) (urls, options []string) {
	for _, arg := range args {
		if strings.HasPrefix(arg, "https://") {
			urls = append(urls, arg)
		} else {
			options = append(options, arg)
		}
	}
	return urls, options
}

// A socket, of any address or of this one.
func (c *client) transport(local net.IP) (*quic.Transport, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: local})
	if err != nil {
		return nil, err
	}
	transport := &quic.Transport{Conn: socket}
	c.sockets = append(c.sockets, transport)
	return transport, nil
}

func (c *client) connection() error {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	config := &quic.Config{HandshakeIdleTimeout: 60 * time.Second, Versions: versions(c.version)}
	dial := c.sockets[0].Dial
	if c.early {
		dial = c.sockets[0].DialEarly
	}
	connection, err := dial(ctx, c.remote, c.tls, config)
	if err != nil {
		return err
	}
	defer connection.CloseWithError(0, "done")
	received := make(chan int, 64)
	drilled := make(chan error, 1)
	go func() { drilled <- c.doDrill(ctx, connection, received) }()
	var requests sync.WaitGroup
	failures := make(chan error, len(c.names))
	for _, name := range c.names {
		requests.Add(1)
		go func() {
			defer requests.Done()
			failures <- c.request(ctx, connection, name, received)
		}()
	}
	requests.Wait()
	close(received)
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	return <-drilled
}

func (c *client) request(
	ctx context.Context, connection *quic.Conn, name string, received chan<- int,
) error {
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stream, "GET /%s\r\n", name); err != nil {
		return err
	}
	stream.Close()
	file, err := os.Create(filepath.Join(c.out, name))
	if err != nil {
		return err
	}
	defer file.Close()
	buffer := make([]byte, 64<<10)
	for {
		count, err := stream.Read(buffer)
		if _, err := file.Write(buffer[:count]); err != nil {
			return err
		}
		received <- count
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Takes the steps, each after some data. quic-go updates keys by itself, after 100 packets.
func (c *client) doDrill(ctx context.Context, connection *quic.Conn, received <-chan int) error {
	bytes, next := 0, 0
	for count := range received {
		bytes += count
		if next == len(c.drill) || bytes < (next+1)*bytesBetween {
			continue
		}
		step := c.drill[next]
		next++
		if address, ok := strings.CutPrefix(step, "move="); ok {
			// The steps' reader must not stand still while a path is probed.
			go func() {
				if err := c.move(ctx, connection, net.ParseIP(address)); err != nil {
					fmt.Fprintln(os.Stderr, "error:", err)
				}
			}()
		} else if step != "update-keys" {
			return fmt.Errorf("unknown step %s", step)
		}
	}
	return nil
}

func (c *client) move(ctx context.Context, connection *quic.Conn, to net.IP) error {
	transport, err := c.transport(to)
	if err != nil {
		return err
	}
	path, err := connection.AddPath(transport)
	if err != nil {
		return err
	}
	if err := path.Probe(ctx); err != nil {
		return err
	}
	return path.Switch()
}
