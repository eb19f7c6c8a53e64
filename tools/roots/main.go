// Command roots writes Mozilla's root certificates for servers to standard output, as PEM. Roots that are trusted with
// constraints are left out, because the format cannot express them.
package main

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	if err := out.Flush(); err != nil { // it reports earlier errors too
		fmt.Fprintln(os.Stderr, "write root certificates:", err)
		os.Exit(1)
	}
}
