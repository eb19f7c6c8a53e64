package plan

import "time"

// Influx is an InfluxDB 2 to which the points of a run are written, besides the record. Its fields may contain
// references to secrets (${env:NAME}, ${file:/path}). Only the process that writes the points resolves them.
type Influx struct {
	URL    string `json:"url"`
	Org    string `json:"org,omitempty"`
	Bucket string `json:"bucket"`
	Token  string `json:"token,omitempty"`
}

// Secrets returns the token, and passwords in the other fields.
func (i Influx) Secrets() []Secret {
	return append(SecretsOf("influx.token", i.Token, true), SecretsOf("influx", i.URL+" "+i.Org+" "+i.Bucket, false)...)
}

// Redacted returns the target without secrets. It may be called on nil.
func (i *Influx) Redacted() *Influx {
	if i == nil {
		return nil
	}
	r, scrub := *i, NewScrubber(i.Secrets())
	r.URL, r.Org, r.Bucket = scrub.Scrub(r.URL), scrub.Scrub(r.Org), scrub.Scrub(r.Bucket)
	if isLiteral(r.Token) {
		r.Token = stars
	}
	return &r
}

// Delivery counts the points of a run that a process created for InfluxDB while following or replaying the run. Points
// = Written + Dropped + Left.
type Delivery struct {
	URL     string           `json:"url"` // redacted
	Org     string           `json:"org,omitempty"`
	Bucket  string           `json:"bucket"`
	Began   time.Time        `json:"began"`
	Ended   time.Time        `json:"ended"`
	End     string           `json:"end,omitempty"`     // reason of the run's end; empty: the run had not ended
	Points  int64            `json:"points"`            // a corrected window counts again
	Written int64            `json:"written"`           // confirmed by InfluxDB
	Dropped int64            `json:"dropped"`           // without an answer, InfluxDB may have stored some
	Left    int64            `json:"left,omitempty"`    // in a replay, instead of Dropped: the record still has them
	Why     map[string]int64 `json:"why,omitempty"`     // Dropped or Left by reason
	Refused int              `json:"refused,omitempty"` // last HTTP status of a permanent refusal; 0: none
	// retried requests; a point that is written twice is one point
	Retries   int64  `json:"retries,omitempty"`
	LastError string `json:"lastError,omitempty"`
	Replayed  bool   `json:"replayed,omitempty"` // the points are from a replay

	Incomplete bool   `json:"incomplete,omitempty"` // replay: the record was not read to its end
	Cause      string `json:"cause,omitempty"`      // replay: why it ended early, unless InfluxDB accepted no points
}
