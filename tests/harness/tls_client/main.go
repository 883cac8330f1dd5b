// Connects to an address with Go's TLS library and says whether it takes the server for what it claims to be.
//
//	tls_client ADDRESS NAME CA_FILE
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	anchors, err := os.ReadFile(os.Args[3])
	if err != nil {
		fmt.Println("fault:", err)
		os.Exit(2)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(anchors) {
		fmt.Println("fault: no certificate in the CA file")
		os.Exit(2)
	}
	config := &tls.Config{RootCAs: roots, ServerName: os.Args[2], MinVersion: tls.VersionTLS13}
	dialer := &net.Dialer{Timeout: 30 * time.Second}
	connection, err := tls.DialWithDialer(dialer, "tcp", os.Args[1], config)
	if err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
	defer connection.Close()
	fmt.Println("accepted")
}
