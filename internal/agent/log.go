package agent

import (
	"context"
	"log/slog"
)

// scrubbingLog returns a logger that removes secrets with scrub, as drivers and their libraries may log anything. scrub
// must be safe for concurrent use.
func scrubbingLog(log *slog.Logger, scrub func(string) string) *slog.Logger {
	return slog.New(scrubbing{log.Handler(), scrub})
}

type scrubbing struct {
	to    slog.Handler
	scrub func(string) string
}

func (s scrubbing) Enabled(ctx context.Context, level slog.Level) bool {
	return s.to.Enabled(ctx, level)
}

func (s scrubbing) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, s.scrub(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(s.attr(a))
		return true
	})
	return s.to.Handle(ctx, clean)
}

func (s scrubbing) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = s.attr(a)
	}
	return scrubbing{s.to.WithAttrs(clean), s.scrub}
}

func (s scrubbing) WithGroup(name string) slog.Handler {
	return scrubbing{s.to.WithGroup(name), s.scrub}
}

// attr returns the attribute, or its scrubbed text if the text contained a secret.
func (s scrubbing) attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		var clean []slog.Attr
		for _, inner := range value.Group() {
			clean = append(clean, s.attr(inner))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(clean...)}
	}
	text := value.String()
	if clean := s.scrub(text); clean != text {
		return slog.String(a.Key, clean)
	}
	return a
}
