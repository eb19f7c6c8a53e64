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

// stars replaces a secret.
const stars = "***"

// minSecret is the minimum length in bytes of secrets that are replaced. Replacing shorter ones would also replace
// ordinary text.
const minSecret = 4

// userinfo matches scheme://user:password@ in free text. A password may contain anything but white space, double quotes
// and "//": the pattern prefers hiding too much. JSON text may contain "\/" for "/".
var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.\-]*:(?://|\\/\\/)[^\s"/@:?#]*:)((?:[^\s"/]|/[^\s"/])*)(@)`)

// Redact replaces the password of every URL in free text, including CUE and JSON, by ***. It is for text with unknown
// secrets; Scrubber replaces known ones. References such as ${env:NAME} are not secrets and stay.
func Redact(s string) string {
	if !strings.Contains(s, "@") {
		return s
	}
	return userinfo.ReplaceAllStringFunc(s, func(found string) string {
		part := userinfo.FindStringSubmatch(found)
		// \(name) is interpolation in CUE
		if !isLiteral(part[2]) || strings.HasPrefix(part[2], `\(`) && strings.HasSuffix(part[2], ")") {
			return found
		}
		return part[1] + stars + part[3]
	})
}

// reference matches a reference to a secret on the agent's host.
var reference = regexp.MustCompile(`\$\{(env|file):([^{}]*)\}`)

// isLiteral reports whether the text of a secret field is the secret itself: not empty, not *** and not a reference.
func isLiteral(s string) bool { return s != "" && s != stars && reference.FindString(s) != s }

// Secret is a secret value with the path of its field: "brokers.b.options.password".
type Secret struct {
	Path, Value string
	inURL       bool // it is the password of a URL
}

// SecretsOf returns the secrets in the text of a field. A marked field is a secret as a whole; in other fields the
// passwords of URLs are. References are not secrets. Nor are passwords of URLs that equal the user name (guest:guest),
// because anyone can guess them.
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

// forms returns the encodings of a secret in texts: plain, and as in URLs, JSON and HTTP headers.
func forms(secret string) []string {
	all := []string{secret}
	if plain, err := url.PathUnescape(secret); err == nil && plain != secret { // the secret is part of a URL
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

// Scrubber replaces known secrets, and the password of any URL, by *** in text. A nil Scrubber replaces only passwords
// of URLs. It is safe for concurrent use.
type Scrubber struct {
	replace *strings.Replacer
}

// NewScrubber returns a Scrubber for the secrets of at least minSecret bytes, in their usual encodings. It returns nil
// if there are none.
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
	// The longest first: a secret may be part of another.
	var pairs []string
	for _, form := range slices.SortedFunc(maps.Keys(known), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	}) {
		pairs = append(pairs, form, stars)
	}
	return &Scrubber{replace: strings.NewReplacer(pairs...)}
}

// Scrub returns the text without secrets.
func (s *Scrubber) Scrub(text string) string {
	if s != nil {
		text = s.replace.Replace(text)
	}
	return Redact(text)
}

// json returns JSON without secrets in its strings. Strings at marked paths are replaced as a whole. It returns text
// unchanged if there are none.
func (s *Scrubber) json(text json.RawMessage, marked []string) json.RawMessage {
	tree, err := decode(text)
	if err != nil {
		return json.RawMessage(s.Scrub(string(text)))
	}
	changed := false
	tree = eachString(tree, func(path, value string) string {
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
	if err != nil { // cannot happen: it was decoded from JSON
		return json.RawMessage("null")
	}
	return clean
}

// Host reads the values of references, as drivers.Access does.
type Host interface {
	Getenv(name string) (string, error)
	ReadFile(path string) ([]byte, error)
}

// isMarked reports whether a path is one of the marked paths, or below one.
func isMarked(path string, marked []string) bool {
	return slices.ContainsFunc(marked, func(m string) bool { return path == m || strings.HasPrefix(path, m+".") })
}

// Resolve replaces ${env:NAME} and ${file:/path} in the strings of options by the host's variables and files. A newline
// at the end of a file is dropped. It returns the options with secrets, and a Scrubber for the inserted values, the
// strings at marked paths and the passwords of URLs. If references cannot be resolved, one error names all of them.
func Resolve(options json.RawMessage, marked []string, host Host) (json.RawMessage, *Scrubber, error) {
	tree, err := decode(options)
	if err != nil {
		return nil, nil, fmt.Errorf("resolve options: %w", err)
	}
	var missing []error
	var secrets []Secret
	tree = eachString(tree, func(path, s string) string {
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

// Unfilled replaces each reference within a longer string, as in "amqp://u:${env:PASSWORD}@host", by a word. Code that
// reads addresses before an agent resolves the references then finds them.
func Unfilled(options json.RawMessage) json.RawMessage {
	tree, err := decode(options)
	if err != nil {
		return options
	}
	tree = eachString(tree, func(_, s string) string {
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

func (s *Scrubber) all(texts []string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = s.Scrub(texts[i])
	}
	return texts
}

// coordinates returns the coordinates without secrets. Broker names are not changed.
func (s *Scrubber) coordinates(all []Coordinate) []Coordinate {
	all = slices.Clone(all)
	for i, x := range all {
		if x.Axis != "broker" {
			all[i].Value = s.json(x.Value, nil)
		}
	}
	return all
}

// hostPort matches an address: a name or number, a colon and a port.
var hostPort = regexp.MustCompile(`^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$`)

// Endpoints returns the strings of options that are endpoints (URLs with a host, and host:port), redacted, sorted, each
// once.
func Endpoints(options json.RawMessage) []string {
	tree, err := decode(options)
	if err != nil {
		return nil
	}
	found := map[string]bool{}
	eachString(tree, func(_, s string) string {
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

// Fingerprint returns a stable hash of the subject. Passwords and the field Fingerprint do not affect it.
func Fingerprint(s Subject) string {
	s.Fingerprint = ""
	text, err := json.Marshal(s) // encoding/json sorts maps
	if err != nil {
		panic("plan: subject does not marshal: " + err.Error()) // plain data always marshals
	}
	sum := sha256.Sum256([]byte("subject-1 " + Redact(string(text))))
	return hex.EncodeToString(sum[:6])
}

// decode parses JSON and keeps numbers as they are written.
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

// encode formats JSON without escaping characters for HTML.
func encode(tree any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// eachLeaf replaces every value in a tree that is no list and no object by the result of f, in place if possible, in
// the order of keys. A path consists of keys joined by dots; list items have the path of their list.
func eachLeaf(tree any, path string, f func(path string, leaf any) any) any {
	switch x := tree.(type) {
	case []any:
		for i := range x {
			x[i] = eachLeaf(x[i], path, f)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			x[k] = eachLeaf(x[k], strings.TrimPrefix(path+"."+k, "."), f)
		}
	default:
		return f(path, x)
	}
	return tree
}

// eachString replaces every string value in a tree by the result of f, as eachLeaf does.
func eachString(tree any, f func(path, s string) string) any {
	return eachLeaf(tree, "", func(path string, leaf any) any {
		if s, is := leaf.(string); is {
			return f(path, s)
		}
		return leaf
	})
}
