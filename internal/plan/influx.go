package plan

import "time"

// Influx is where the points of a run go, besides its record: an InfluxDB 2. Its texts may refer to secrets
// (${env:NAME}, ${file:/path}), which only the process that writes the points fills in.
type Influx struct {
	URL    string `json:"url"`
	Org    string `json:"org,omitempty"`
	Bucket string `json:"bucket"`
	Token  string `json:"token,omitempty"`
}

// Secrets are the token, and passwords in the other texts.
func (i Influx) Secrets() []Secret {
	return append(SecretsOf("influx.token", i.Token, true), SecretsOf("influx", i.URL+" "+i.Org+" "+i.Bucket, false)...)
}

// Redacted is the target without secrets. It may be called on nil.
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

// Delivery counts the points of a run that were made for InfluxDB: by a process that followed the run, or by a replay.
// Points = Written + Dropped + Left.
type Delivery struct {
	URL     string           `json:"url"` // redacted
	Org     string           `json:"org,omitempty"`
	Bucket  string           `json:"bucket"`
	Began   time.Time        `json:"began"`
	Ended   time.Time        `json:"ended"`
	End     string           `json:"end,omitempty"`     // reason of the run's end; empty: it had not ended
	Points  int64            `json:"points"`            // a window that is corrected later counts again
	Written int64            `json:"written"`           // confirmed by InfluxDB
	Dropped int64            `json:"dropped"`           // a request without an answer may have written some
	Left    int64            `json:"left,omitempty"`    // of a replay, instead of Dropped: the record still has them
	Why     map[string]int64 `json:"why,omitempty"`     // Dropped, or Left, by reason
	Refused int              `json:"refused,omitempty"` // last HTTP status of a permanent refusal; 0: none
	// requests that were sent again; a point that comes twice is one point
	Retries   int64  `json:"retries,omitempty"`
	LastError string `json:"lastError,omitempty"`
	Replayed  bool   `json:"replayed,omitempty"` // the points are those of a replay

	Incomplete bool   `json:"incomplete,omitempty"` // of a replay: the record was not read to its end
	Cause      string `json:"cause,omitempty"`      // of a replay that ended early, unless InfluxDB accepted no points
}
