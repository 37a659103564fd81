package mysql

import (
	"context"
	"time"
)

const (
	// connectWithin is longer than an attempt may last.
	connectWithin = 10 * time.Second
	// redialAfter is when a new attempt had better dial anew: what was sent into
	// a network that was cut is repeated ever more seldom.
	redialAfter = time.Second
)

// coming is a connection that is being made.
type coming struct {
	since  time.Time
	cancel context.CancelFunc
	done   chan struct{} // closed when what stands below is set
	line   *line
	err    error
}

// connect dials. If that takes longer than the attempt has time, it goes on for
// the next one: with a short lease none of them might come to an end otherwise.
func (s *session) connect(ctx context.Context) (*line, error) {
	if s.coming != nil && time.Since(s.coming.since) > redialAfter {
		s.forget()
	}
	if s.coming == nil {
		pool, bare := s.b.lines, s.armed != nil
		if bare {
			pool = s.b.bare
		}
		ctx, cancel := context.WithTimeout(s.done, connectWithin)
		c := &coming{since: time.Now(), cancel: cancel, done: make(chan struct{})}
		s.coming = c
		go func() {
			defer close(c.done)
			defer cancel()
			c.line, c.err = dial(ctx, pool, bare)
		}()
	}
	select {
	case <-s.coming.done:
		c := s.coming
		s.coming = nil
		return c.line, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// forget closes a connection that came too late, or is still to come.
func (s *session) forget() {
	if c := s.coming; c != nil {
		s.coming = nil
		c.cancel()
		go func() {
			<-c.done
			if c.line != nil {
				c.line.close()
			}
		}()
	}
}
