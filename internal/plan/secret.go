package plan

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
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

// minSecret is the length in bytes from which a secret is replaced wherever it occurs: shorter ones would take ordinary
// text with them.
const minSecret = 4

// userinfo finds scheme://user:password@ in free text. A password may hold anything but white space, double quotes and
// "//": rather too much is hidden than too little. Text in JSON may write "/" as "\/".
var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.\-]*:(?://|\\/\\/)[^\s"/@:?#]*:)((?:[^\s"/]|/[^\s"/])*)(@)`)

// Redact replaces the password of every URL in free text, CUE and JSON included, by ***. It is for text whose secrets
// are not known; a Scrubber replaces those that are. References such as ${env:NAME} are no secrets and stay.
func Redact(s string) string {
	if !strings.Contains(s, "@") {
		return s
	}
	return userinfo.ReplaceAllStringFunc(s, func(found string) string {
		part := userinfo.FindStringSubmatch(found)
		// CUE fills in \(name)
		if !isLiteral(part[2]) || strings.HasPrefix(part[2], `\(`) && strings.HasSuffix(part[2], ")") {
			return found
		}
		return part[1] + stars + part[3]
	})
}

// reference is how options name a secret that only the agent's host knows.
var reference = regexp.MustCompile(`\$\{(env|file):([^{}]*)\}`)

// isLiteral reports whether text in the place of a secret is the secret itself: neither *** nor a reference.
func isLiteral(s string) bool { return s != "" && s != stars && reference.FindString(s) != s }

// Secret is a secret value and the path of the field that it is in: "brokers.b.options.password".
type Secret struct {
	Path, Value string
	inURL       bool // it is the password of a URL
}

// SecretsOf lists the secrets in the text of a field: all of it where the field is marked as secret, else the passwords
// of URLs. A reference is no secret, nor is the password of a URL that is its user's name (guest:guest): anybody would
// try it.
func SecretsOf(path, text string, marked bool) []Secret {
	if marked {
		if !isLiteral(text) {
			return nil
		}
		return []Secret{{Path: path, Value: text}}
	}
	var secrets []Secret
	for _, part := range userinfo.FindAllStringSubmatch(text, -1) {
		user := strings.TrimSuffix(part[1][strings.LastIndex(part[1], "/")+1:], ":")
		if part[2] != user && isLiteral(part[2]) {
			secrets = append(secrets, Secret{path, part[2], true})
		}
	}
	return secrets
}

// forms are the ways in which texts write a secret: as it is, and as URLs, JSON and headers of HTTP encode it.
func forms(secret string) []string {
	all := []string{secret}
	if plain, err := url.PathUnescape(secret); err == nil && plain != secret { // it is a part of a URL
		all = append(all, plain)
	}
	for _, s := range all {
		quoted, _ := encode(s) // a string always marshals
		forHTML, _ := json.Marshal(s)
		all = append(all, url.QueryEscape(s), url.PathEscape(s), url.UserPassword("", s).String()[1:],
			string(quoted[1:len(quoted)-1]), string(forHTML[1:len(forHTML)-1]),
			base64.RawStdEncoding.EncodeToString([]byte(s)))
	}
	return all
}

// Scrubber replaces secrets, and the password of any URL, in text by ***. A nil Scrubber replaces passwords of URLs
// only. Safe for concurrent use.
type Scrubber struct {
	replace *strings.Replacer
}

// NewScrubber returns a Scrubber of those secrets that have at least four bytes, in their usual encodings; nil if there
// are none.
func NewScrubber(secrets []Secret) *Scrubber {
	known := map[string]bool{}
	for _, s := range secrets {
		for _, form := range forms(s.Value) {
			if len(s.Value) >= minSecret && len(form) >= minSecret {
				known[form] = true
			}
		}
	}
	if len(known) == 0 {
		return nil
	}
	// The longest first: one secret may be a part of another.
	var pairs []string
	for _, form := range slices.SortedFunc(maps.Keys(known), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	}) {
		pairs = append(pairs, form, stars)
	}
	return &Scrubber{replace: strings.NewReplacer(pairs...)}
}

// Scrub returns text without secrets.
func (s *Scrubber) Scrub(text string) string {
	if s != nil {
		text = s.replace.Replace(text)
	}
	return Redact(text)
}

// json returns JSON without secrets in its strings, those at the marked paths replaced as a whole; it is text itself if
// there are none.
func (s *Scrubber) json(text json.RawMessage, marked []string) json.RawMessage {
	tree, err := decode(text)
	if err != nil {
		return json.RawMessage(s.Scrub(string(text)))
	}
	changed := false
	tree = eachString(tree, "", func(path, value string) string {
		scrubbed := s.Scrub(value)
		if isMarked(path, marked) && isLiteral(value) {
			scrubbed = stars
		}
		changed = changed || scrubbed != value
		return scrubbed
	})
	if !changed {
		return text
	}
	clean, err := encode(tree)
	if err != nil { // it was JSON a moment ago
		return json.RawMessage("null")
	}
	return clean
}

// Host reads what references name, as drivers.Access does.
type Host interface {
	Getenv(name string) (string, error)
	ReadFile(path string) ([]byte, error)
}

// isMarked reports whether a path is one of those that are secret, or below one.
func isMarked(path string, marked []string) bool {
	return slices.ContainsFunc(marked, func(m string) bool { return path == m || strings.HasPrefix(path, m+".") })
}

// Resolve fills ${env:NAME} and ${file:/path} in the strings of options from the host's environment and files (a
// newline at the end of a file is dropped). It returns the options with the secrets in them, and a Scrubber that
// removes from text what was filled in, the strings at the marked paths, and the passwords of URLs. References that
// cannot be filled are one error that names them all.
func Resolve(options json.RawMessage, marked []string, host Host) (json.RawMessage, *Scrubber, error) {
	tree, err := decode(options)
	if err != nil {
		return nil, nil, fmt.Errorf("resolve options: %w", err)
	}
	var missing []error
	var secrets []Secret
	tree = eachString(tree, "", func(path, s string) string {
		s = reference.ReplaceAllStringFunc(s, func(found string) string {
			value, err := lookup(reference.FindStringSubmatch(found), host)
			if err != nil {
				missing = append(missing, err)
			}
			secrets = append(secrets, Secret{Path: path, Value: value})
			return value
		})
		secrets = append(secrets, SecretsOf(path, s, isMarked(path, marked))...)
		return s
	})
	if len(missing) > 0 {
		return nil, nil, fmt.Errorf("resolve secrets of options: %w", errors.Join(missing...))
	}
	text, err := encode(tree)
	if err != nil {
		return nil, nil, fmt.Errorf("resolve options: %w", err)
	}
	return text, NewScrubber(secrets), nil
}

// Unfilled returns options with a word in place of each reference inside a longer string, as in
// "amqp://u:${env:PASSWORD}@host": what looks at options before an agent fills them in then finds an address where
// there will be one.
func Unfilled(options json.RawMessage) json.RawMessage {
	tree, err := decode(options)
	if err != nil {
		return options
	}
	tree = eachString(tree, "", func(_, s string) string {
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

// secrets lists those of a broker's options and address.
func (b Broker) secrets() []Secret {
	tree, err := decode(b.Options)
	if err != nil {
		return nil
	}
	secrets := SecretsOf("via", b.Via, false)
	eachString(tree, "", func(path, s string) string {
		secrets = append(secrets, SecretsOf(path, s, isMarked(path, b.Secret))...)
		return s
	})
	return secrets
}

// Redacted is the broker without its secrets. b is not changed.
func (b Broker) Redacted() Broker { return b.redacted(NewScrubber(b.secrets())) }

func (b Broker) redacted(s *Scrubber) Broker {
	b.Options, b.Via = s.json(b.Options, b.Secret), s.Scrub(b.Via)
	return b
}

// Redacted is the run without its secrets, as it may be recorded and shown. Names stay, whatever the secrets are. r is
// not changed.
func (r Run) Redacted() Run {
	key := func(b Broker) string { return b.Name + " " + b.Via + " " + string(b.Options) }
	brokers := map[string]Broker{}
	for _, c := range r.Cells {
		brokers[key(c.Broker)] = c.Broker
		for _, g := range c.Workload.Groups {
			if g.Broker != nil {
				brokers[key(*g.Broker)] = *g.Broker
			}
		}
	}
	var secrets []Secret
	for _, b := range brokers {
		secrets = append(secrets, b.secrets()...)
	}
	if r.Influx != nil {
		secrets = append(secrets, r.Influx.Secrets()...)
	}
	scrub := NewScrubber(secrets)
	for k, b := range brokers {
		brokers[k] = b.redacted(scrub)
	}
	r.Cells = slices.Clone(r.Cells)
	for i, c := range r.Cells {
		r.Cells[i].Broker = brokers[key(c.Broker)]
		r.Cells[i].Workload.Groups = slices.Clone(c.Workload.Groups)
		for k, g := range r.Cells[i].Workload.Groups {
			if g.Broker != nil {
				b := brokers[key(*g.Broker)]
				r.Cells[i].Workload.Groups[k].Broker = &b
			}
		}
		if scrub != nil {
			r.Cells[i].Notes = scrub.all(c.Notes)
			r.Cells[i].Coordinates = scrub.coordinates(c.Coordinates)
		}
	}
	if scrub != nil {
		r.Excluded = slices.Clone(r.Excluded)
		for i, x := range r.Excluded {
			r.Excluded[i].Reason, r.Excluded[i].Coordinates = scrub.Scrub(x.Reason), scrub.coordinates(x.Coordinates)
		}
	}
	r.Influx = r.Influx.Redacted()
	r.Source.Text, r.Source.Set, r.Source.Filter = scrub.Scrub(r.Source.Text), scrub.all(r.Source.Set),
		scrub.all(r.Source.Filter)
	return r
}

func (s *Scrubber) all(texts []string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = s.Scrub(texts[i])
	}
	return texts
}

// coordinates leaves the one that is a broker's name.
func (s *Scrubber) coordinates(all []Coordinate) []Coordinate {
	all = slices.Clone(all)
	for i, x := range all {
		if x.Axis != "broker" {
			all[i].Value = s.json(x.Value, nil)
		}
	}
	return all
}

// Redacted is the source without secrets. One that does not occur in it as it is written, or is too short to be
// replaced, is hidden by leaving out the text and the values of --set: Text says why.
func (s Source) Redacted(secrets []Secret) Source {
	all := s.Text + "\n" + strings.Join(s.Set, "\n")
	for _, x := range secrets {
		var why string
		switch {
		case len(x.Value) < minSecret && x.inURL: // which Redact finds
			continue
		case len(x.Value) < minSecret:
			why = fmt.Sprintf("is shorter than %d characters", minSecret)
		case !slices.ContainsFunc(forms(x.Value), func(form string) bool { return strings.Contains(all, form) }):
			why = "does not occur in it as one text"
		default:
			continue
		}
		s = s.Omit(fmt.Sprintf("the secret in %s %s", x.Path, why))
		break
	}
	scrub := NewScrubber(secrets)
	s.Text, s.Set, s.Filter = scrub.Scrub(s.Text), scrub.all(s.Set), scrub.all(s.Filter)
	return s
}

// Omit leaves out the text and the values of --set; Text says why.
func (s Source) Omit(why string) Source {
	s.Text, s.Omitted, s.Set = fmt.Sprintf("// The matrix is not recorded: %s.\n", why), true, slices.Clone(s.Set)
	for i, set := range s.Set {
		path, _, _ := strings.Cut(set, "=")
		s.Set[i] = path + "=" + stars
	}
	return s
}

// hostPort is an address by itself: a name or number, a colon and a port.
var hostPort = regexp.MustCompile(`^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$`)

// Endpoints lists the strings of options that are endpoints (URLs with a host, and host:port), redacted and sorted,
// each once.
func Endpoints(options json.RawMessage) []string {
	tree, err := decode(options)
	if err != nil {
		return nil
	}
	found := map[string]bool{}
	eachString(tree, "", func(_, s string) string {
		for _, part := range strings.Split(Redact(s), ",") {
			part = strings.TrimSpace(part)
			if scheme, rest, ok := strings.Cut(part, "://"); ok && scheme != "" && rest != "" ||
				hostPort.MatchString(part) {
				found[part] = true
			}
		}
		return s
	})
	return slices.Sorted(maps.Keys(found))
}

// Fingerprint is a stable hash of what was tested: equal for equal subjects, whatever the passwords. The field
// Fingerprint itself does not enter.
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

// eachString replaces every string value in a tree, in place where it can, keys aside, in the order of the keys. A path
// is the keys with dots between them; the items of a list have that of the list.
func eachString(tree any, path string, f func(path, s string) string) any {
	switch x := tree.(type) {
	case string:
		return f(path, x)
	case []any:
		for i := range x {
			x[i] = eachString(x[i], path, f)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			x[k] = eachString(x[k], strings.TrimPrefix(path+"."+k, "."), f)
		}
	}
	return tree
}
