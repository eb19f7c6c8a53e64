package wire

import "crypto/rand"

// onceID is the id of a message that is sent once, and again only while the call that sends it lasts. The server drops
// a message whose id it has seen on the stream within two minutes, and answers as if it had been stored: nobody else
// can tell the id.
func onceID() string { return rand.Text() }
