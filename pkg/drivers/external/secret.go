package external

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// secretName is of options whose values are not for a log.
var secretName = regexp.MustCompile(`(?i)pass|secret|token|credential|key`)

// scrubber takes the secrets of options out of what a driver says: passwords in URLs, and what is named like one.
func scrubber(options json.RawMessage) func(string) string {
	var tree any
	if json.Unmarshal(options, &tree) != nil {
		return func(s string) string { return s }
	}
	var secrets []string
	collect("", tree, &secrets)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may be a part of another
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, "***")
	}
	return strings.NewReplacer(pairs...).Replace
}

func collect(name string, tree any, secrets *[]string) {
	switch v := tree.(type) {
	case map[string]any:
		for field, value := range v {
			collect(field, value, secrets)
		}
	case []any:
		for _, value := range v {
			collect(name, value, secrets)
		}
	case string:
		if v != "" && secretName.MatchString(name) {
			*secrets = append(*secrets, v)
		}
		if u, err := url.Parse(v); err == nil && u.User != nil {
			if password, _ := u.User.Password(); password != "" && password != u.User.Username() {
				*secrets = append(*secrets, password, url.QueryEscape(password), url.PathEscape(password))
			}
		}
	}
}
