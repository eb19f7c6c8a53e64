package wire

import "crypto/rand"

// onceID returns the id of a message that is stored once, although the call that sends it may retry. For two minutes
// the server drops further messages with an id that it has stored, and answers as if they had been stored. So the id
// must not be predictable.
func onceID() string { return rand.Text() }
