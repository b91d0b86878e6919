// A client and a server of CONNECT (RFC 9114 section 4.4) and CONNECT-UDP (RFC 9298) on quic-go, and a client of CONNECT-IP
// (RFC 9484) on connect-ip-go, to try the proxy and its client of mpquic with another stack.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	connectip "github.com/quic-go/connect-ip-go"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"
)

const (
	template = "/.well-known/masque/udp/"
	// Bytes that go through CONNECT, and back.
	amount = 5_000_000
	// Payloads that go through CONNECT-UDP, and how large they are.
	payloads    = 100
	payloadSize = 1000
	// Questions that go through CONNECT-IP.
	pings    = 20
	patience = 20 * time.Second
)

func main() {
	var err error
	if len(os.Args) < 2 {
		err = errors.New("server or client?")
	} else if os.Args[1] == "server" {
		err = serve(os.Args[2:])
	} else {
		err = ask(os.Args[2:])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Both a server of others' requests, and the targets that echo.
func serve(args []string) error {
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	certificate := flags.String("cert", "", "certificate, PEM")
	key := flags.String("key", "", "its key, PEM")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	fmt.Println("listening on", socket.LocalAddr())
	server := http3.Server{
		TLSConfig:       http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}}),
		EnableDatagrams: true,
		Handler:         http.HandlerFunc(answer),
	}
	return server.Serve(socket)
}

func answer(writer http.ResponseWriter, request *http.Request) {
	log.Printf("%s %s %s%s", request.Method, request.Proto, request.Host, request.URL.Path)
	var err error
	switch {
	case request.Method != http.MethodConnect:
		writer.WriteHeader(http.StatusMethodNotAllowed)
	case request.Proto == "connect-udp":
		err = carryDatagrams(writer, request)
	default:
		err = carryStream(writer, request)
	}
	if err != nil {
		log.Print(err)
	}
}

// Accepts a request, and gives its stream.
func accept(writer http.ResponseWriter) (*http3.Stream, error) {
	writer.WriteHeader(http.StatusOK)
	writer.(http.Flusher).Flush()
	return writer.(http3.HTTPStreamer).HTTPStream()
}

func carryStream(writer http.ResponseWriter, request *http.Request) error {
	target, err := net.Dial("tcp", request.Host)
	if err != nil {
		writer.WriteHeader(http.StatusBadGateway)
		return err
	}
	defer target.Close()
	stream, err := accept(writer)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(target, stream)
		_ = target.(*net.TCPConn).CloseWrite()
	}()
	if _, err := io.Copy(stream, target); err != nil {
		return err
	}
	return stream.Close()
}

func carryDatagrams(writer http.ResponseWriter, request *http.Request) error {
	host, port, found := strings.Cut(strings.Trim(strings.TrimPrefix(request.URL.Path, template), "/"), "/")
	if !found {
		writer.WriteHeader(http.StatusBadRequest)
		return errors.New("another path")
	}
	host, err := url.PathUnescape(host)
	if err != nil {
		return err
	}
	target, err := net.Dial("udp", net.JoinHostPort(host, port))
	if err != nil {
		writer.WriteHeader(http.StatusBadGateway)
		return err
	}
	defer target.Close()
	writer.Header().Set("Capsule-Protocol", "?1")
	stream, err := accept(writer)
	if err != nil {
		return err
	}
	defer stream.Close()
	go func() {
		buffer := make([]byte, 65536)
		for {
			length, err := target.Read(buffer[1:])
			if err != nil {
				return
			}
			_ = stream.SendDatagram(buffer[:length+1])
		}
	}()
	for {
		datagram, err := stream.ReceiveDatagram(request.Context())
		if err != nil {
			return nil
		}
		// Payloads have the context ID 0.
		if len(datagram) > 0 && datagram[0] == 0 {
			_, _ = target.Write(datagram[1:])
		}
	}
}

// Asks a proxy for flows to targets that echo.
func ask(args []string) error {
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	proxy := flags.String("proxy", "", "address of the proxy")
	tcp := flags.String("tcp", "", "target that echoes over TCP")
	udp := flags.String("udp", "", "target that echoes over UDP")
	credentials := flags.String("credentials", "", "value of Proxy-Authorization")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	trust := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}
	connection, err := quic.DialAddr(ctx, *proxy, trust, &quic.Config{EnableDatagrams: true})
	if err != nil {
		return err
	}
	transport := &http3.Transport{EnableDatagrams: true}
	client := transport.NewClientConn(connection)
	select {
	case <-client.ReceivedSettings():
	case <-ctx.Done():
		return ctx.Err()
	}
	if settings := client.Settings(); !settings.EnableExtendedConnect || !settings.EnableDatagrams {
		return fmt.Errorf("the proxy does not carry UDP: %+v", settings)
	}
	// Nobody gets in without a password.
	if _, err := request(ctx, client, *tcp, nil, ""); err == nil || !strings.Contains(err.Error(), "407") {
		return fmt.Errorf("without credentials: %v", err)
	}
	stream, err := request(ctx, client, *tcp, nil, *credentials)
	if err != nil {
		return err
	}
	if err := echoStream(stream); err != nil {
		return err
	}
	fmt.Printf("CONNECT: %d bytes there and back\n", amount)
	host, port, err := net.SplitHostPort(*udp)
	if err != nil {
		return err
	}
	at := &url.URL{Scheme: "https", Host: *proxy, Path: template + host + "/" + port + "/"}
	stream, err = request(ctx, client, *proxy, at, *credentials)
	if err != nil {
		return err
	}
	if err := echoDatagrams(ctx, stream); err != nil {
		return err
	}
	fmt.Printf("CONNECT-UDP: %d payloads there and back\n", payloads)
	if err := ping(ctx, client, *proxy, *credentials); err != nil {
		return err
	}
	fmt.Printf("CONNECT-IP: %d pings\n", pings)
	return connection.CloseWithError(0x100, "")
}

func request(ctx context.Context, client *http3.ClientConn, authority string, at *url.URL, credentials string) (*http3.RequestStream, error) {
	asked := &http.Request{Method: http.MethodConnect, Host: authority, Header: http.Header{}, URL: &url.URL{Host: authority}}
	if at != nil {
		asked.Proto = "connect-udp"
		asked.URL = at
		asked.Header.Set("Capsule-Protocol", "?1")
	}
	if credentials != "" {
		asked.Header.Set("Proxy-Authorization", credentials)
	}
	stream, err := client.OpenRequestStream(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.SendRequestHeader(asked.WithContext(ctx)); err != nil {
		return nil, err
	}
	response, err := stream.ReadResponse()
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the proxy answered %d", response.StatusCode)
	}
	return stream, nil
}

func echoStream(stream *http3.RequestStream) error {
	data := make([]byte, amount)
	_, _ = rand.Read(data)
	go func() {
		_, _ = stream.Write(data)
		_ = stream.Close()
	}()
	heard, err := io.ReadAll(stream)
	if err != nil {
		return err
	}
	if !bytes.Equal(heard, data) {
		return fmt.Errorf("%d bytes came back, and not those that were sent", len(heard))
	}
	return nil
}

func echoDatagrams(ctx context.Context, stream *http3.RequestStream) error {
	for number := range payloads {
		datagram := make([]byte, 1+payloadSize)
		_, _ = rand.Read(datagram[1:])
		if err := stream.SendDatagram(datagram); err != nil {
			return err
		}
		heard, err := stream.ReceiveDatagram(ctx)
		if err != nil {
			return err
		}
		if !bytes.Equal(heard, datagram) {
			return fmt.Errorf("payload %d came back changed", number)
		}
	}
	return stream.Close()
}

// Pings this machine by way of the proxy, from the address that the proxy assigns.
func ping(ctx context.Context, client *http3.ClientConn, proxy, credentials string) error {
	everything := uritemplate.MustNew("https://" + proxy + "/.well-known/masque/ip/*/*/")
	asked, err := connectip.NewRequest(ctx, everything)
	if err != nil {
		return err
	}
	asked.Header().Set("Proxy-Authorization", credentials)
	flow, _, err := connectip.NewClientConn(client).Dial(asked)
	if err != nil {
		return err
	}
	defer flow.Close()
	assigned, err := flow.ReceiveAddressAssignment(ctx)
	if err != nil {
		return err
	}
	if _, err := flow.Routes(ctx); err != nil {
		return err
	}
	source := assigned[0].IPPrefix.Addr().As4()
	target := [4]byte{127, 0, 0, 1}
	for number := range pings {
		question := echo(8, source, target, number)
		if _, err := flow.WritePacket(question); err != nil {
			return err
		}
		buffer := make([]byte, 2048)
		length, err := flow.ReadPacket(buffer)
		if err != nil {
			return err
		}
		// The hop limit, and with it the checksum of the header, are others on the way.
		expected := echo(0, target, source, number)
		if length != len(expected) || !bytes.Equal(buffer[12:length], expected[12:]) {
			return fmt.Errorf("not the answer: %x", buffer[:length])
		}
	}
	return nil
}

// A packet with an echo message of ICMP: a question (8) or its answer (0).
func echo(kind byte, source, target [4]byte, number int) []byte {
	message := []byte{kind, 0, 0, 0, 0x12, 0x34, 0, byte(number), 'p', 'i', 'n', 'g'}
	checksum(message, 2)
	header := []byte{0x45, 0, 0, byte(20 + len(message)), 0, 0, 0x40, 0, 64, 1, 0, 0}
	header = append(append(header, source[:]...), target[:]...)
	checksum(header, 10)
	return append(header, message...)
}

// Writes the checksum of RFC 1071 of an even number of bytes.
func checksum(part []byte, at int) {
	sum := uint32(0)
	for place := 0; place < len(part); place += 2 {
		sum += uint32(part[place])<<8 | uint32(part[place+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	part[at], part[at+1] = byte(^sum>>8), byte(^sum)
}
