package kit

// Confirms joins successive messages with the same result for PublisherSpec.OnConfirms. Results are the same if the
// errors are equal. They must be comparable, as those of fmt.Errorf are. It is not safe for concurrent use.
type Confirms struct {
	OnConfirms func(tokens []uint64, err error)

	tokens []uint64
	err    error // result of tokens
}

// Begin reports the messages that were added if their result is not err. Then Add with err calls nothing.
func (c *Confirms) Begin(err error) {
	if err != c.err {
		c.Report()
		c.err = err
	}
}

// Add adds a message. It reports the messages before it if their result differs.
func (c *Confirms) Add(token uint64, err error) {
	c.Begin(err)
	c.tokens = append(c.tokens, token)
}

// Report reports the messages that were added since the last call.
func (c *Confirms) Report() {
	if len(c.tokens) > 0 {
		c.OnConfirms(c.tokens, c.err)
		c.tokens = c.tokens[:0]
	}
}
