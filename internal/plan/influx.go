package plan

import "time"

// Influx is where the points of a run go, besides its record: an InfluxDB 2. Its texts may refer to secrets (${env:NAME}, ${file:/path}), which
// only the process that writes the points fills in.
type Influx struct {
	URL    string `json:"url"`
	Org    string `json:"org,omitempty"`
	Bucket string `json:"bucket"`
	Token  string `json:"token,omitempty"`
}

// Redacted is the target without secrets. It may be called on nil.
func (i *Influx) Redacted() *Influx {
	if i == nil {
		return nil
	}
	r := *i
	r.URL, r.Org, r.Bucket = Redact(r.URL), Redact(r.Org), Redact(r.Bucket)
	if r.Token != "" && reference.FindString(r.Token) != r.Token {
		r.Token = stars
	}
	return &r
}

// Starred tells whether the token was taken out, so that nothing can be written with it. It may be called on nil.
func (i *Influx) Starred() bool { return i != nil && i.Token == stars }

// Delivery is what came of handing the points of a run to InfluxDB once: from the beginning of a run, or of its resumption, to its end.
// Points = Written + Dropped + Spooled + Left.
type Delivery struct {
	URL       string           `json:"url"` // redacted
	Org       string           `json:"org,omitempty"`
	Bucket    string           `json:"bucket"`
	Began     time.Time        `json:"began"`
	Ended     time.Time        `json:"ended"`
	End       string           `json:"end,omitempty"`     // how the run ended; empty: it was left before
	Points    int64            `json:"points"`            // made, or found in the spool; a window that was written before all of it was known counts again
	Written   int64            `json:"written"`           // InfluxDB said that it has them
	Dropped   int64            `json:"dropped"`           // given up; those of a request without an answer may have arrived all the same
	Spooled   int64            `json:"spooled,omitempty"` // left on disk at the end, beside the record
	Left      int64            `json:"left,omitempty"`    // of a replay: what InfluxDB has not taken; it is lost to nobody, as the record has it
	Why       map[string]int64 `json:"why,omitempty"`     // Dropped, or Left, by reason
	Refused   int              `json:"refused,omitempty"` // the HTTP status with which InfluxDB last refused points for good; 0: it never did
	Retries   int64            `json:"retries,omitempty"` // requests that were sent again; a point that comes twice is one point
	LastError string           `json:"lastError,omitempty"`
	Replayed  bool             `json:"replayed,omitempty"` // made of the record, after the run
}
