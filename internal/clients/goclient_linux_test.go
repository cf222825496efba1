package clients

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
)

// clientTime bounds one exchange of the Go client.
const clientTime = testenv.Patience

// goClient is a Go program with a bare transport: it knows of no proxy.
func goClient(args []string) int {
	var out string
	var err error
	switch args[0] {
	case "http":
		out, err = bareTransport(args[1], args[2])
	case "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6":
		out, err = say(args[0], args[1], args[2])
	case "hear": // the server speaks first
		out, err = hear(args[1])
	case "quic":
		limit, _ := time.ParseDuration(args[4])
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		host, _, _ := net.SplitHostPort(args[2])
		out, err = testnet.SayQUIC(ctx, args[2], host, args[3], &tls.Config{RootCAs: pool(args[1])})
	case "lookup":
		var found []string
		found, err = (&net.Resolver{PreferGo: true}).LookupHost(context.Background(), args[1])
		out = fmt.Sprint(found)
	default:
		err = fmt.Errorf("unknown client %q", args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(out)
	return 0
}

func pool(file string) *x509.CertPool {
	p := x509.NewCertPool()
	if text, err := os.ReadFile(file); err == nil {
		p.AppendCertsFromPEM(text)
	}
	return p
}

func bareTransport(authority, url string) (string, error) {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(authority)}}, Timeout: clientTime}
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

func say(network, address, text string) (string, error) {
	c, err := net.DialTimeout(network, address, clientTime)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(clientTime))
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	buf := make([]byte, len(text))
	_, err = io.ReadFull(c, buf)
	return string(buf), err
}

func hear(address string) (string, error) {
	c, err := net.DialTimeout("tcp", address, clientTime)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(clientTime))
	buf := make([]byte, len(testnet.Greeting))
	_, err = io.ReadFull(c, buf)
	return string(buf), err
}
