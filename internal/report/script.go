package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
)

// Script sorts and filters the tables of reports and web pages, and shows the values of charts as text. Pages have the
// same contents without it.
//
//go:embed script.js
var Script string

// ScriptSource returns the source expression of a Content-Security-Policy that allows Script: its hash in quotes.
func ScriptSource() string {
	sum := sha256.Sum256([]byte(Script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
