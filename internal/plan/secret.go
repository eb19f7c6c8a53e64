package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// stars stand for a secret.
const stars = "***"

// userinfo finds scheme://user:password@ in free text. A password may hold anything but white space, double quotes and "//": rather
// too much is hidden than too little. Text in JSON may write "/" as "\/".
var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.\-]*:(?://|\\/\\/)[^\s"/@:?#]*:)((?:[^\s"/]|/[^\s"/])*)(@)`)

// fields finds the text of fields that hold a secret by their name, in CUE, in JSON, in JSON within a JSON string, and in path="value".
var fields = []*regexp.Regexp{
	regexp.MustCompile(`((?i:password|passphrase|secret|token|apikey)"?\s*[:=]\s*")((?:[^"\\]|\\.)*)(")`),
	regexp.MustCompile(`((?i:password|passphrase|secret|token|apikey)(?:\\")?\s*[:=]\s*\\")((?:[^"\\]|\\[^"])*)(\\")`),
}

// Redact replaces the password of every URL, and the text of fields such as password and token, in free text, CUE and JSON
// included, by ***. References such as ${env:NAME} are no secrets and stay.
func Redact(s string) string {
	if strings.Contains(s, "@") {
		s = hide(userinfo, s)
	}
	if strings.ContainsAny(s, ":=") {
		for _, re := range fields {
			s = hide(re, s)
		}
	}
	return s
}

// hide replaces the second group of what re finds.
func hide(re *regexp.Regexp, s string) string {
	return re.ReplaceAllStringFunc(s, func(found string) string {
		part := re.FindStringSubmatch(found)
		if part[2] == "" || reference.FindString(part[2]) == part[2] {
			return found
		}
		return part[1] + stars + part[3]
	})
}

// reference is how options name a secret that only the agent's host knows.
var reference = regexp.MustCompile(`\$\{(env|file):([^{}]*)\}`)

// Scrubber removes the secrets that it knows, and the password of any URL, from text. A nil Scrubber knows none. Safe for
// concurrent use.
type Scrubber struct {
	replace *strings.Replacer
}

// Scrub returns text without secrets.
func (s *Scrubber) Scrub(text string) string {
	if s != nil && s.replace != nil {
		text = s.replace.Replace(text)
	}
	return Redact(text)
}

// tooShort is the length of what is not removed from text by itself: it would take innocent letters and digits with it.
const tooShort = 2

// newScrubber knows secrets as they are, and as URLs and JSON write them.
func newScrubber(secrets map[string]bool) *Scrubber {
	forms := map[string]bool{}
	for s := range secrets {
		if len(s) <= tooShort {
			continue
		}
		quoted, _ := json.Marshal(s) // a string always marshals
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), url.UserPassword("", s).String()[1:], strings.Trim(string(quoted), `"`)} {
			if form != "" {
				forms[form] = true
			}
		}
	}
	if len(forms) == 0 {
		return &Scrubber{}
	}
	// The longest first: one secret may be a part of another.
	sorted := slices.SortedFunc(maps.Keys(forms), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	var pairs []string
	for _, s := range sorted {
		pairs = append(pairs, s, stars)
	}
	return &Scrubber{replace: strings.NewReplacer(pairs...)}
}

// Host reads what references name, as drivers.Access does.
type Host interface {
	Getenv(name string) (string, error)
	ReadFile(path string) ([]byte, error)
}

// Resolve fills ${env:NAME} and ${file:/path} in the strings of options from the host's environment and files (a newline at the end of
// a file is dropped). It returns the options with the secrets in them, and a Scrubber that removes these, and the passwords
// of URLs, from text. References that cannot be filled are one error that names them all.
func Resolve(options json.RawMessage, host Host) (json.RawMessage, *Scrubber, error) {
	tree, err := decode(options)
	if err != nil {
		return nil, nil, fmt.Errorf("resolve options: %w", err)
	}
	var missing []error
	secrets := map[string]bool{}
	fill := func(found string) string {
		value, err := lookup(reference.FindStringSubmatch(found), host)
		if err != nil {
			missing = append(missing, err)
		}
		secrets[value] = true
		return value
	}
	tree = eachString(tree, func(s string) string { return reference.ReplaceAllStringFunc(s, fill) })
	if len(missing) > 0 {
		return nil, nil, fmt.Errorf("resolve secrets of options: %w", errors.Join(missing...))
	}
	eachString(tree, func(s string) string {
		collectPasswords(s, secrets)
		return s
	})
	text, err := encode(tree)
	if err != nil {
		return nil, nil, fmt.Errorf("resolve options: %w", err)
	}
	collectFields(string(text), secrets)
	return text, newScrubber(secrets), nil
}

// Unfilled returns options with a word in place of each reference inside a longer string, as in "amqp://u:${env:PASSWORD}@host": what looks at
// options before an agent fills them in then finds an address where there will be one.
func Unfilled(options json.RawMessage) json.RawMessage {
	tree, err := decode(options)
	if err != nil {
		return options
	}
	tree = eachString(tree, func(s string) string {
		if reference.FindString(s) == s {
			return s
		}
		return reference.ReplaceAllString(s, "reference")
	})
	text, err := encode(tree)
	if err != nil {
		return options
	}
	return text
}

func lookup(ref []string, host Host) (string, error) {
	kind, name := ref[1], ref[2]
	if kind == "env" {
		value, err := host.Getenv(name)
		if err != nil {
			return "", fmt.Errorf("%s: %w", ref[0], err)
		}
		return value, nil
	}
	text, err := host.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", ref[0], err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" {
		return "", fmt.Errorf("%s: the file is empty", ref[0])
	}
	return value, nil
}

// collectPasswords adds the passwords of URLs in s, less those that are the user's name (guest:guest).
func collectPasswords(s string, secrets map[string]bool) {
	for _, part := range userinfo.FindAllStringSubmatch(s, -1) {
		user := strings.TrimSuffix(part[1][strings.LastIndex(part[1], "/")+1:], ":")
		if part[2] == user {
			continue
		}
		secrets[part[2]] = true
		if plain, err := url.PathUnescape(part[2]); err == nil {
			secrets[plain] = true
		}
	}
}

// collectFields adds the text of fields that hold a secret by their name.
func collectFields(text string, secrets map[string]bool) {
	for _, part := range fields[0].FindAllStringSubmatch(text, -1) {
		var value string
		if json.Unmarshal([]byte(`"`+part[2]+`"`), &value) == nil {
			secrets[value] = true
		}
	}
}

// Redacted is the run without the secrets that Redact finds, as it may be recorded and shown. r is not changed.
func (r Run) Redacted() Run {
	r.Cells = slices.Clone(r.Cells)
	known := map[string]json.RawMessage{}
	redacted := func(b Broker) Broker {
		text := string(b.Options)
		if _, ok := known[text]; !ok {
			known[text] = json.RawMessage(Redact(text))
		}
		b.Options, b.Via = known[text], Redact(b.Via)
		return b
	}
	for i, c := range r.Cells {
		r.Cells[i].Broker = redacted(c.Broker)
		r.Cells[i].Workload.Groups = slices.Clone(c.Workload.Groups)
		for k, g := range r.Cells[i].Workload.Groups {
			if g.Broker != nil {
				b := redacted(*g.Broker)
				r.Cells[i].Workload.Groups[k].Broker = &b
			}
		}
	}
	r.Influx = r.Influx.Redacted()
	r.Source.Text = Redact(r.Source.Text)
	r.Source.Set = slices.Clone(r.Source.Set)
	for i, s := range r.Source.Set {
		r.Source.Set[i] = Redact(s)
	}
	return r
}

// hostPort is an address by itself: a name or number, a colon and a port.
var hostPort = regexp.MustCompile(`^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$`)

// Endpoints lists the strings of options that are endpoints (URLs with a host, and host:port), redacted and sorted, each once.
func Endpoints(options json.RawMessage) []string {
	tree, err := decode(options)
	if err != nil {
		return nil
	}
	found := map[string]bool{}
	eachString(tree, func(s string) string {
		for _, part := range strings.Split(Redact(s), ",") {
			part = strings.TrimSpace(part)
			if scheme, rest, ok := strings.Cut(part, "://"); ok && scheme != "" && rest != "" || hostPort.MatchString(part) {
				found[part] = true
			}
		}
		return s
	})
	return slices.Sorted(maps.Keys(found))
}

// Fingerprint is a stable hash of what was tested: equal for equal subjects, whatever the passwords. The field Fingerprint itself does not enter.
func Fingerprint(s Subject) string {
	s.Fingerprint = ""
	text, err := json.Marshal(s) // maps are sorted
	if err != nil {
		panic("plan: subject does not marshal: " + err.Error()) // plain data always does
	}
	sum := sha256.Sum256([]byte("subject-1 " + Redact(string(text))))
	return hex.EncodeToString(sum[:6])
}

// decode reads JSON, with numbers as they are written.
func decode(text json.RawMessage) (any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	return tree, nil
}

// encode writes JSON without escaping what only HTML minds.
func encode(tree any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// eachString replaces every string value in a tree, in place where it can, keys aside, in the order of the keys.
func eachString(tree any, f func(string) string) any {
	switch x := tree.(type) {
	case string:
		return f(x)
	case []any:
		for i := range x {
			x[i] = eachString(x[i], f)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			x[k] = eachString(x[k], f)
		}
	}
	return tree
}
