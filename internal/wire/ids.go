package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The server drops a message whose id it has seen on the stream within two minutes, and answers as if it had been stored. Whoever may write to a stream could so
// make another's message vanish if he knew its id beforehand: ids are such that nobody does.

// NewKey returns what makes the ids of an agent's messages about one try its own. It is kept with messages that are sent again later, and goes to nobody.
func NewKey() string { return rand.Text() }

// messageID is the same for the same words under one key, and tells nothing of the key.
func messageID(key string, words ...string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(strings.Join(words, "."))) // never fails
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// onceID is the id of a message that is sent once, and again only while the call that sends it lasts. It is no nuid, which can be told from the one before.
func onceID() string { return rand.Text() }
