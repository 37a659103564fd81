package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// What simba prints about itself, all on standard error:
//
//   - nothing, unless something is wrong: cron mails what is printed;
//   - one line a message. It begins with "simba: ", then names the mutex if it
//     is about one, is lower case and says what to do;
//   - errors and warnings always, what merely happens (events) with -v, only
//     errors with -q;
//   - text that came from elsewhere passes through escape on its way;
//   - with --log-format json the same as one object a line, with constant keys.

// The keys of attributes.
const (
	keyMutex  = "mutex"
	keyStatus = "status" // simba's exit status
	keyOwner  = "owner"
	keyBefore = "before"
	keyFence  = "fence"
	keyState  = "state"
	keyError  = "error"
	keyAfter  = "after"
)

// newLogger writes messages of at least the level, as text or JSON.
func newLogger(to io.Writer, level slog.Level, asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(jsonLines{to}, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(&textHandler{to: to, level: level})
}

type jsonLines struct{ to io.Writer }

func (j jsonLines) Write(p []byte) (int, error) {
	_, err := j.to.Write(escapeJSON(p))
	return len(p), err
}

// textHandler writes messages for people. Errors and warnings are whole
// sentences; what events carry beside their name is appended.
type textHandler struct {
	to    io.Writer
	level slog.Level
	attrs []slog.Attr
}

func (h *textHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = append(append([]slog.Attr(nil), h.attrs...), attrs...)
	return &with
}

// WithGroup does nothing: no message has groups.
func (h *textHandler) WithGroup(string) slog.Handler { return h }

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	var mutex string
	var tail strings.Builder
	add := func(a slog.Attr) bool {
		switch {
		case a.Key == keyMutex:
			mutex = a.Value.String() + ": "
		case r.Level < slog.LevelWarn && a.Key != keyStatus:
			fmt.Fprintf(&tail, " %s=%s", a.Key, quoted(a.Value.String()))
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	if r.Level < slog.LevelWarn {
		fmt.Fprintf(&tail, " time=%s", r.Time.Format(time.RFC3339Nano))
	}
	_, err := fmt.Fprintf(h.to, "simba: %s%s%s\n", escape(mutex), escapeLines(r.Message), escape(tail.String()))
	return err
}

// quoted keeps a value with spaces apart from the next key.
func quoted(s string) string {
	if s == "" || strings.ContainsAny(s, " \"=") {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// escapeLines escapes a message that may have several lines of simba's own (a
// statement to run, for instance), which are indented to show that they belong
// together and to let nobody fake a message.
func escapeLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i := range lines {
		lines[i] = escape(lines[i])
	}
	return strings.Join(lines, "\n  ")
}
