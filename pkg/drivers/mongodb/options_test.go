package mongodb

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func TestOptionsThatDoNotGo(t *testing.T) {
	cases := []struct{ options, want string }{
		{`{"url": "mongodb://user:hunter2@:::/"}`, "percent-encode"},
		{`{"url": "mongodb+srv://user:hunter2@cluster/"}`, "list the hosts"},
		{`{"url": "mongodb://user:hunter2@h/?w=1"}`, "separate options"},
		{`{"url": "mongodb://user:hunter2@h/?journal=true"}`, "separate options"},
		{`{"url": "mongodb://user:hunter2@h/?retryWrites=true"}`, "resilience turns them on and off"},
		{`{"url": "mongodb://user:hunter2@h/?retryReads=true"}`, "resilience turns them on and off"},
		{`{"url": "mongodb://id:key@h/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:hunter2"}`,
			"a secret in the query"},
		{`{"url": "mongodb://h/", "claimers": 2, "order": "insertion"}`, "one claim at a time"},
		{`{"url": "mongodb://user:hunter2@h/?tls=true&tlsCAFile=/etc/ca.pem"}`, "tls: {ca, cert, key}"},
		{`{"url": "mongodb://h/", "tls": {"cert": "/etc/cert.pem"}}`, "give both"},
	}
	for _, c := range cases {
		d := declare(schematest.Fill(t, driver{}, c.options), drivers.Use{})
		if len(d.Rejections) != 1 || len(d.Capabilities.Modes) > 0 || !strings.Contains(d.Rejections[0], c.want) {
			t.Errorf("%s: rejected %v, want one reason with %q and no modes", c.options, d.Rejections, c.want)
		}
		if strings.Contains(strings.Join(d.Rejections, ""), "hunter2") {
			t.Errorf("%s: the reason tells the password: %v", c.options, d.Rejections)
		}
	}
}

func TestLabelAndGuarantees(t *testing.T) {
	cases := []struct {
		options       string
		use           drivers.Use
		label         string
		kept, ordered bool
	}{
		{`{}`, drivers.Use{Mode: drivers.ConfirmEach, Persistent: true}, "w:majority, journaled", true, false},
		{`{}`, drivers.Use{Mode: drivers.ConfirmEach}, "w:majority, journaled by default", true, false},
		{`{"journal": false}`, drivers.Use{Mode: drivers.ConfirmEach, Persistent: true}, "w:majority, not journaled",
			false, false},
		{`{"w": 1}`, drivers.Use{Mode: drivers.ConfirmWindow}, "w:1, journaled as the server is set", false, false},
		{`{"w": 2, "journal": true, "wtimeout": "1s"}`, drivers.Use{Mode: drivers.ConfirmBatch},
			"w:2, journaled, wtimeout 1s", false, false},
		{`{"order": "insertion"}`, drivers.Use{Mode: drivers.ConfirmWindow, Persistent: true}, "w:majority, journaled",
			true, true},
		{`{"order": "insertion", "inserters": 2}`, drivers.Use{Mode: drivers.ConfirmWindow, Persistent: true},
			"w:majority, journaled", true, false},
		{`{"order": "insertion", "inserters": 2}`, drivers.Use{Mode: drivers.ConfirmBatch, Persistent: true},
			"w:majority, journaled", true, true},
		{`{}`, drivers.Use{Mode: drivers.ConfirmEach, Persistent: true, Subscriptions: 2},
			"w:majority, journaled, one insert per subscription", true, false},
		{`{}`, drivers.Use{Mode: drivers.FireAndForget, Persistent: true}, "w:0, not confirmed", true, false},
		{`{"wtimeout": "1s", "claimW": 1}`, drivers.Use{Mode: drivers.FireAndForget, Subscriptions: 2},
			"w:0, not confirmed, claims w:1, one insert per subscription", true, false},
		{`{}`, drivers.Use{Mode: drivers.ConfirmEach, Persistent: true, Ack: drivers.AckAutomatic},
			"w:majority, journaled", false, false},
	}
	for _, c := range cases {
		d := declare(schematest.Fill(t, driver{}, labtest.Options(t, map[string]any{"url": "mongodb://a:1,b:2/?replicaSet=r"}, c.options)),
			c.use)
		c.label += "; writes go to the primary; not tested with mongod"
		if len(d.Rejections) > 0 || d.Label != c.label || d.Guarantees.ConfirmedKept != c.kept ||
			d.Guarantees.Ordered != c.ordered {
			t.Errorf("%s, %+v: %q, %+v, rejected %v; want %q, kept %v, ordered %v", c.options, c.use, d.Label,
				d.Guarantees, d.Rejections, c.label, c.kept, c.ordered)
		}
		if d.Guarantees.NoDuplicates != (c.use.Ack == drivers.AckAutomatic) {
			t.Errorf("%s, %+v: guarantees no duplicates: %v", c.options, c.use, d.Guarantees.NoDuplicates)
		}
	}
}

// The documents that the driver encodes itself are readable by the library.
func TestMessagesAreDocuments(t *testing.T) {
	id := newIDs().next(time.Now())
	for _, body := range []string{"", "x", strings.Repeat("y", 1000)} {
		raw := bson.Raw(appendMessage(nil, id, []byte(body)))
		if err := raw.Validate(); err != nil {
			t.Fatalf("%v: %v", raw, err)
		}
		if len(raw) != overhead+len(body) {
			t.Errorf("a body of %d bytes makes a document of %d, want %d more", len(body), len(raw), overhead)
		}
		m, err := readMessage(raw)
		if err != nil || m.id != id || m.count != 0 || string(m.body) != body {
			t.Errorf("read back: %+v, %v", m, err)
		}
		if at, ok := raw.Lookup(fieldAt).DateTimeOK(); !ok || at != int64(unclaimed) {
			t.Errorf("it may be claimed from %v", at)
		}
	}
}

func TestIDsGrow(t *testing.T) {
	i, now := newIDs(), time.Now()
	last := i.next(now)
	for _, at := range []time.Time{now, now.Add(-time.Hour), now.Add(time.Millisecond), now.Add(time.Second), now} {
		id := i.next(at)
		if string(id[:]) <= string(last[:]) {
			t.Errorf("%v follows %v", id, last)
		}
		last = id
	}
	if got := last.Timestamp().Sub(now).Abs(); got > 2*time.Second {
		t.Errorf("the id's own time is %v off", got)
	}
}

// A write concern that the label contains and the server does not honour is reported.
func TestFlags(t *testing.T) {
	ferret, alone, set := server{ferret: "v1"}, server{version: "8"}, server{version: "8", set: "rs0"}
	for _, c := range []struct {
		of         server
		options    string
		persistent bool
		asked      string // the reported write concern; "": none
	}{
		{ferret, `"w": 1`, true, "w:1, journaled"},
		{ferret, `"w": 1`, false, ""},
		{ferret, `"w": 1, "journal": false`, true, ""},
		{ferret, `"w": "majority"`, true, "w:majority, journaled"},
		{alone, `"w": "majority"`, true, "w:majority, journaled"},
		{alone, `"w": 1`, true, ""},
		{set, `"w": "majority"`, true, ""},
	} {
		o, err := kit.Decode[options]("mongodb", schematest.Fill(t, driver{}, `{"url": "mongodb://127.0.0.1/", `+c.options+`}`))
		if err != nil {
			t.Fatal(err)
		}
		label := label(&o, drivers.Use{Mode: drivers.ConfirmEach, Persistent: c.persistent})
		asked, _, _ := strings.Cut(c.of.warning(&o, c.persistent), ": not honoured")
		if asked != c.asked || (asked != "" && !strings.HasPrefix(label, asked)) {
			t.Errorf("%+v with %s, persistent %v, label %q: warning %q, want %q", c.of, c.options, c.persistent, label,
				asked, c.asked)
		}
	}
}

// The library repeats inserts only on replica sets. What is declared is what the library is configured for.
func TestResilience(t *testing.T) {
	for text, want := range map[string]drivers.Resilience{
		`{"url": "mongodb://h/"}`:                                        drivers.ByGuide,
		`{"url": "mongodb://h,i/?replicaSet=rs0"}`:                       drivers.ByLibrary,
		`{"url": "mongodb://h,i/?replicaSet=rs0", "resilience": "none"}`: drivers.NoResilience,
	} {
		d := declare(schematest.Fill(t, driver{}, text), drivers.Use{Mode: drivers.ConfirmEach})
		if d.Resilience != want {
			t.Errorf("%s: %q, want %q; %v", text, d.Resilience, want, d.Rejections)
		}
		o, err := kit.Decode[options]("mongodb", schematest.Fill(t, driver{}, text))
		if err != nil {
			t.Fatal(err)
		}
		library, err := o.client()
		if err != nil {
			t.Fatal(err)
		}
		o.retry(library)
		repeats := want == drivers.ByLibrary
		if *library.RetryWrites != repeats || *library.RetryReads != repeats {
			t.Errorf("%s: the library retries writes %t and reads %t", text, *library.RetryWrites, *library.RetryReads)
		}
	}
}
