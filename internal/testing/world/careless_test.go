package world_test

import (
	"crypto/tls"
	"testing"

	"google.golang.org/grpc/credentials"
)

// careless shows a certificate and checks nothing of the server's nor its own.
func careless(t testing.TB, dir, name string) credentials.TransportCredentials {
	t.Helper()
	c := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
	if dir != "" {
		file := dir + "/" + name + ".pem"
		pair, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(c)
}
