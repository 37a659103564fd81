package cmd

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/simba-lock/simba/lease"
)

// waitingLine is the one line that somebody at a terminal sees while the run
// waits: who holds the mutex, where, since when. It is rewritten when that
// changes and erased before anything else is printed.
type waitingLine struct {
	*app
	mutex    string
	acquired func(owner string) time.Time

	mu    sync.Mutex
	shown bool
	over  bool // the wait has ended; nothing may be shown beside the job
}

// newWaitingLine is nil where there is no one to see it, or the command runs already.
func newWaitingLine(a *app, o *runOptions, acquired func(string) time.Time) *waitingLine {
	if o.quiet || o.jsonLog || o.verbose || o.wait == 0 || o.standby.on() || !canRewrite(a.stderr) {
		return nil
	}
	return &waitingLine{app: a, mutex: o.mutex, acquired: acquired}
}

// canRewrite: a dumb terminal would show what erases a line.
func canRewrite(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

const eraseLine = "\r\x1b[K"

func (l *waitingLine) show(e lease.Event) {
	if l == nil {
		return
	}
	text := fmt.Sprintf("simba: %s: waiting", l.mutex)
	if e.Info.PID != 0 || e.Info.Host != "" {
		text += " for " + who(e.Owner, e.Info)
		if since := l.acquired(e.Owner); !since.IsZero() {
			text += " since " + when(since, time.Now())
		}
	}
	if e.Rank > 0 {
		text += fmt.Sprintf(", place %d in the queue", e.Rank)
	}
	if width, _, err := term.GetSize(int(l.stderr.Fd())); err == nil {
		text = cut(text, width-1) // a line that wraps could not be rewritten
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.shown = true
	_, _ = l.msg.Write([]byte(eraseLine + text))
}

// erase ends it, and returns when the terminal is clean.
func (l *waitingLine) erase() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.shown {
		l.shown = false
		_, _ = l.msg.Write([]byte(eraseLine))
		l.msg.flush()
	}
}

// cut shortens a text to at most width characters.
func cut(s string, width int) string {
	runes := []rune(s)
	if width < 1 || len(runes) <= width {
		return s
	}
	return string(runes[:width-1]) + "…"
}
